//! A client and a server on one thread, in virtual time.

use std::cell::{Cell, RefCell};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::Routes;
use erpc_core::time::Instant;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

const CLIENT: MemRoute = MemRoute::new(1);
pub(crate) const SERVER: MemRoute = MemRoute::new(2);

pub(crate) struct TestBed {
    hub: MemHub,
    now: Cell<Instant>,
    client: RefCell<Option<Endpoint<MemTransport>>>,
    server: Endpoint<MemTransport>,
}

impl TestBed {
    pub(crate) fn new(routes: Routes) -> Self {
        Self::with(routes, EndpointConfig::new(), EndpointConfig::new())
    }

    pub(crate) fn with(routes: Routes, client: EndpointConfig, server: EndpointConfig) -> Self {
        let hub = MemHub::new();
        let start = Instant::from_nanos(1_000_000);
        let endpoint = |route, config: EndpointConfig| {
            let port = hub.port_at(route, MemConfig::default()).unwrap();
            let endpoint = Endpoint::new(port, config).unwrap();
            endpoint.run_once_at(start);
            endpoint
        };
        let (client, server) = (endpoint(CLIENT, client.seed(1)), endpoint(SERVER, server.seed(2)));
        server.listen();
        assert!(server.serve(Arc::new(routes), None));
        Self { hub, now: Cell::new(start), client: RefCell::new(Some(client)), server }
    }

    /// Runs a turn of both endpoints. If nothing was done, the time jumps to the next deadline, by
    /// at most 100 ms.
    pub(crate) fn turn(&self) {
        let now = self.now.get().plus_nanos(2_000);
        self.now.set(now);
        let client = self.client.borrow().clone();
        let all = || client.iter().chain([&self.server]);
        let work: usize = all().map(|endpoint| endpoint.run_once_at(now)).sum();
        if work == 0 {
            let next = all().map(Endpoint::next_deadline).min().unwrap();
            self.now.set(now.max(next.min(now + Duration::from_millis(100))));
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn run_for(&self, time: Duration) {
        let end = self.now.get() + time;
        while self.now.get() < end {
            self.turn();
        }
    }

    /// Runs until `done`, for at most 60 s of virtual time.
    pub(crate) fn until(&self, what: &str, done: impl Fn() -> bool) {
        let end = self.now.get() + Duration::from_secs(60);
        while !done() {
            assert!(self.now.get() < end, "not within 60 s: {what}");
            self.turn();
        }
    }

    /// Runs until the future completes, for at most 60 s of virtual time.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let output = RefCell::new(None);
        let future = RefCell::new(future.as_mut());
        self.until("the future ends", || {
            match poll(future.borrow_mut().as_mut()) {
                Poll::Ready(done) => *output.borrow_mut() = Some(done),
                Poll::Pending => {}
            }
            output.borrow().is_some()
        });
        output.take().unwrap()
    }

    pub(crate) fn client(&self) -> Endpoint<MemTransport> {
        self.client.borrow().clone().unwrap()
    }

    pub(crate) fn session(&self) -> Session<MemTransport> {
        self.wait(self.client().connect_async(SERVER)).unwrap()
    }

    /// Stops running the client's endpoint and returns it.
    pub(crate) fn end_client(&self) -> Option<Endpoint<MemTransport>> {
        self.client.take()
    }

    /// Whether the client's endpoint is gone: its port can be bound again.
    pub(crate) fn client_is_gone(&self) -> bool {
        self.hub.port_at(CLIENT, MemConfig::default()).is_ok()
    }
}

pub(crate) fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}
