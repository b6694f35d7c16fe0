//! A hand-written service, and helpers that serve it.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use erpc_core::client::Session;
use erpc_core::endpoint::{Endpoint, Handle};
use erpc_core::event_loop::IdlePolicy;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, MethodCollision, Mode, Request, Response, Routes, Service};
use erpc_core::serving::WorkerPool;
use erpc_core::status::Status;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

#[derive(Clone, PartialEq, Eq, prost::Message)]
pub(crate) struct Number {
    #[prost(uint64, tag = "1")]
    pub(crate) value: u64,
    #[prost(bytes = "vec", tag = "2")]
    pub(crate) ballast: Vec<u8>,
}

pub(crate) fn number(value: u64) -> Number {
    Number { value, ballast: Vec::new() }
}

/// Answers with the double. Panics for 13, fails with `NOT_FOUND` for 0.
pub(crate) const DOUBLE: Method<Number, Number> = Method::new("test.Math/Double");
/// Like `DOUBLE`, on a worker.
pub(crate) const SLOW_DOUBLE: Method<Number, Number> = Method::new("test.Math/SlowDouble");
/// Waits on a worker until the test opens the gate.
pub(crate) const GATED: Method<Number, Number> = Method::new("test.Math/Gated");

/// Blocks threads until it is opened.
#[derive(Default)]
pub(crate) struct Gate {
    /// Number of threads that have arrived, and whether the gate is open.
    state: Mutex<(u32, bool)>,
    changed: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        self.state.lock().unwrap().1 = true;
        self.changed.notify_all();
    }

    /// Waits until a thread has arrived at the gate.
    pub(crate) fn wait_for_arrival(&self) {
        let state = self.state.lock().unwrap();
        drop(self.changed.wait_while(state, |(arrived, _)| *arrived == 0).unwrap());
    }

    /// Whether a thread has arrived at the gate.
    pub(crate) fn has_arrivals(&self) -> bool {
        self.state.lock().unwrap().0 > 0
    }

    pub(crate) fn pass(&self) {
        let mut state = self.state.lock().unwrap();
        state.0 += 1;
        self.changed.notify_all();
        drop(self.changed.wait_while(state, |(_, open)| !*open).unwrap());
    }
}

#[derive(Default)]
pub(crate) struct Math {
    pub(crate) gate: Arc<Gate>,
}

impl Math {
    fn double(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        match request.into_message() {
            Number { value: 0, .. } => Err(Status::not_found("zero is nothing")),
            Number { value: 13, .. } => panic!("the handler panics on 13"),
            Number { value, ballast } => Ok(Response::new(Number { value: value * 2, ballast })),
        }
    }

    fn gated(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.gate.pass();
        Ok(Response::new(request.into_message()))
    }
}

impl Service for Math {
    const NAME: &'static str = "test.Math";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(DOUBLE, Mode::Dispatch, &self, Self::double)?;
        routes.unary(SLOW_DOUBLE, Mode::Worker, &self, Self::double)?;
        routes.unary(GATED, Mode::Worker, &self, Self::gated)
    }
}

pub(crate) fn math() -> Arc<Routes> {
    let mut routes = Routes::new();
    Arc::new(Math::default()).register(&mut routes).unwrap();
    Arc::new(routes)
}

pub(crate) fn client(hub: &MemHub) -> Endpoint<MemTransport> {
    Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new()).unwrap()
}

/// An endpoint that serves `routes` on this thread.
pub(crate) fn server(hub: &MemHub, routes: Arc<Routes>) -> (Endpoint<MemTransport>, MemRoute) {
    let endpoint = client(hub);
    endpoint.listen();
    assert!(endpoint.serve(routes, None));
    let route = endpoint.local_route().unwrap();
    (endpoint, route)
}

/// A server's thread must end within this time.
const END_LIMIT: Duration = Duration::from_secs(20);

/// A server on its own thread.
pub(crate) struct Background {
    pub(crate) route: MemRoute,
    handle: Handle<MemTransport>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Background {
    pub(crate) fn start(hub: &MemHub, routes: Arc<Routes>, workers: Option<WorkerPool>) -> Self {
        let (hub, stop) = (hub.clone(), Arc::new(AtomicBool::new(false)));
        let (send, receive) = channel();
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let endpoint = client(&hub);
            endpoint.set_idle_policy(IdlePolicy::Sleep);
            endpoint.listen();
            assert!(endpoint.serve(routes, workers.as_ref()));
            send.send((endpoint.local_route().unwrap(), endpoint.handle())).unwrap();
            endpoint.run_until(|| stopped.load(Ordering::Acquire));
        });
        let (route, handle) = receive.recv().unwrap();
        Self { route, handle, stop, thread: Some(thread) }
    }

    /// A client endpoint with an open session to the server.
    pub(crate) fn connect(&self, hub: &MemHub) -> (Endpoint<MemTransport>, Session<MemTransport>) {
        let endpoint = client(hub);
        let session = endpoint.connect(self.route).unwrap();
        (endpoint, session)
    }
}

impl Drop for Background {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Release);
        self.handle.wake();
        let thread = self.thread.take().unwrap();
        if std::thread::panicking() {
            return;
        }
        let end = Instant::now() + END_LIMIT;
        while !thread.is_finished() {
            assert!(Instant::now() < end, "the server's loop or one of its workers has not ended");
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(thread.join().is_ok());
    }
}
