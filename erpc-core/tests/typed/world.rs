//! A client and some servers on one thread, in virtual time: no real waiting, and every run is the
//! same.

use std::cell::{Cell, RefCell};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use erpc_core::client::Call;
use erpc_core::endpoint::Endpoint;
use erpc_core::executor::JoinHandle;
use erpc_core::health::HealthReporter;
use erpc_core::protocol::{CallError, EndpointConfig};
use erpc_core::service::{
    Incoming, Method, Mode, Outgoing, Request, Responder, Response, Routes, Service,
};
use erpc_core::status::Status;
use erpc_core::time::Instant;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

use crate::support::{Number, number};

/// Answers with the index of the server.
pub(crate) const WHO: Method<Number, Number> = Method::new("test.World/Who");
/// Like `WHO`, but idempotent.
pub(crate) const WHO_AGAIN: Method<Number, Number> =
    Method::new("test.World/WhoAgain").idempotent();
/// Like `WHO_AGAIN`, but the answer is deferred until [`Behaviour::answer`].
pub(crate) const HELD: Method<Number, Number> = Method::new("test.World/Held").idempotent();

/// Like `WHO_AGAIN`. The response has the request's metadata, and the entry `time-left`: the
/// request's remaining time in us.
pub(crate) const TELL: Method<Number, Number> = Method::new("test.World/Tell").idempotent();

/// A stream that sends the index of the server and stays open until the client's messages end.
pub(crate) const STAY: Method<Number, Number> = Method::new("test.World/Stay");

/// Adds up the client's numbers. The response's ballast names the server by its length.
pub(crate) const SUM: Method<Number, Number> = Method::new("test.World/Sum");

/// Waits for the time in ms that the request names, as a task, and answers with the server's index.
pub(crate) const LATER: Method<Number, Number> = Method::new("test.World/Later");

/// A server's behaviour and counters. It outlives the server's endpoint.
#[derive(Default)]
pub(crate) struct Behaviour {
    index: u64,
    /// Number of requests that a handler has received.
    pub(crate) handled: AtomicU64,
    /// Number of requests still to be answered `UNAVAILABLE`.
    pub(crate) unavailable: AtomicU64,
    held: std::sync::Mutex<Vec<Responder<Number>>>,
    pub(crate) health: HealthReporter,
    /// True if the server does not report its health.
    pub(crate) is_silent: AtomicBool,
}

impl Behaviour {
    fn who(&self, _: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        let take = |left: u64| left.checked_sub(1);
        match self.unavailable.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take) {
            Ok(_) => Err(Status::unavailable("the test's status")),
            Err(_) => Ok(Response::new(number(self.index))),
        }
    }

    fn hold(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        Ok(request.defer(|_, responder| self.held.lock().unwrap().push(responder)))
    }

    fn tell(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        let mut metadata = request.metadata().to_owned();
        let left = request.time_left().map_or(0, |left| left.as_micros() as u64);
        metadata.insert("time-left", left.to_le_bytes()).unwrap();
        self.who(request).map(|response| response.with_metadata(metadata))
    }

    async fn stay(
        &self,
        request: Request<'_, Incoming<Number>>,
        out: Outgoing<Number>,
    ) -> Result<(), Status> {
        let mut numbers = request.into_message();
        out.send(number(self.index)).await?;
        while numbers.next().await?.is_some() {}
        Ok(())
    }

    async fn sum(
        &self,
        request: Request<'_, Incoming<Number>>,
    ) -> Result<Response<Number>, Status> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        let (mut numbers, mut sum) = (request.into_message(), 0);
        while let Some(number) = numbers.next().await? {
            sum += number.value;
        }
        Ok(Response::new(Number { value: sum, ballast: vec![0; self.index as usize] }))
    }

    async fn later(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.handled.fetch_add(1, Ordering::Relaxed);
        let time = Duration::from_millis(request.message().value);
        let sleep = Endpoint::<MemTransport>::current().expect("within the loop").sleep(time);
        sleep.await;
        Ok(Response::new(number(self.index)))
    }

    pub(crate) fn handled(&self) -> u64 {
        self.handled.load(Ordering::Relaxed)
    }

    /// Answers all held calls. Returns their number.
    pub(crate) fn answer(&self) -> usize {
        let held = std::mem::take(&mut *self.held.lock().unwrap());
        let count = held.len();
        held.into_iter().for_each(|responder| responder.send(&number(self.index)));
        count
    }
}

pub(crate) struct World {
    hub: MemHub,
    now: Cell<Instant>,
    pub(crate) client: Endpoint<MemTransport>,
    pub(crate) behaviours: Vec<Arc<Behaviour>>,
    servers: RefCell<Vec<Option<Endpoint<MemTransport>>>>,
}

impl World {
    /// A world whose servers run.
    pub(crate) fn new(servers: u64) -> Self {
        let world = Self::asleep(servers);
        (0..servers as usize).for_each(|index| world.start(index));
        world
    }

    /// A world whose servers do not run yet.
    pub(crate) fn asleep(servers: u64) -> Self {
        let hub = MemHub::new();
        let behaviour = |index| Arc::new(Behaviour { index, ..Behaviour::default() });
        let start = Instant::from_nanos(1_000_000);
        let client = Endpoint::new(hub.port(MemConfig::default()), config(99)).unwrap();
        client.run_once_at(start);
        Self {
            client,
            hub,
            now: Cell::new(start),
            behaviours: (0..servers).map(behaviour).collect(),
            servers: RefCell::new((0..servers).map(|_| None).collect()),
        }
    }

    pub(crate) fn route(index: usize) -> MemRoute {
        MemRoute::new(1_000 + index as u32)
    }

    pub(crate) fn routes(&self) -> Vec<MemRoute> {
        (0..self.behaviours.len()).map(Self::route).collect()
    }

    pub(crate) fn start(&self, index: usize) {
        self.start_with(index, config(index as u64));
    }

    /// Starts a server that accepts one session.
    pub(crate) fn start_narrow(&self, index: usize) {
        self.start_with(index, config(index as u64).max_sessions(1));
    }

    fn start_with(&self, index: usize, config: EndpointConfig) {
        let endpoint = self.endpoint(index, config);
        let mut routes = Routes::new();
        let behaviour = &self.behaviours[index];
        routes.unary(WHO, Mode::Dispatch, behaviour, Behaviour::who).unwrap();
        routes.unary(WHO_AGAIN, Mode::Dispatch, behaviour, Behaviour::who).unwrap();
        routes.unary(TELL, Mode::Dispatch, behaviour, Behaviour::tell).unwrap();
        routes.unary(HELD, Mode::Dispatch, behaviour, Behaviour::hold).unwrap();
        routes.bidi_streaming(STAY, behaviour, Behaviour::stay).unwrap();
        routes.client_streaming(SUM, behaviour, Behaviour::sum).unwrap();
        routes.unary_async(LATER, behaviour, Behaviour::later).unwrap();
        if !behaviour.is_silent.load(Ordering::Relaxed) {
            Arc::new(behaviour.health.clone()).register(&mut routes).unwrap();
        }
        endpoint.listen();
        assert!(endpoint.serve(Arc::new(routes), None));
        self.servers.borrow_mut()[index] = Some(endpoint);
    }

    /// Starts an endpoint that does not listen.
    pub(crate) fn start_deaf(&self, index: usize) {
        self.servers.borrow_mut()[index] = Some(self.endpoint(index, config(index as u64)));
    }

    fn endpoint(&self, index: usize, config: EndpointConfig) -> Endpoint<MemTransport> {
        let port = self.hub.port_at(Self::route(index), MemConfig::default()).unwrap();
        let endpoint = Endpoint::new(port, config).unwrap();
        endpoint.run_once_at(self.now.get());
        endpoint
    }

    /// Drains a server. The output is the number of calls and streams that were cut off.
    pub(crate) fn drain(&self, index: usize, within: Duration) -> JoinHandle<usize> {
        let servers = self.servers.borrow();
        let endpoint = servers[index].as_ref().unwrap();
        endpoint.spawn(endpoint.drain(within))
    }

    /// Runs a server, but not its client, until the drain is over. Returns the time at which the
    /// drain was over.
    pub(crate) fn run_server_alone(&self, index: usize, drain: &JoinHandle<usize>) -> Instant {
        let servers = self.servers.borrow();
        let server = servers[index].as_ref().unwrap();
        while !drain.is_finished() {
            let now = self.now.get().plus_nanos(2_000);
            let idle = server.run_once_at(now) == 0;
            self.now.set(if idle { now.max(server.next_deadline()) } else { now });
        }
        self.now.get()
    }

    /// Ends a server, which closes its sessions.
    pub(crate) fn stop(&self, index: usize) {
        drop(self.servers.borrow_mut()[index].take());
    }

    /// Number of sessions that clients have with the server now.
    pub(crate) fn sessions(&self, index: usize) -> usize {
        let servers = self.servers.borrow();
        servers[index].as_ref().unwrap().stats().unwrap().server_sessions
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    /// Runs a turn of all endpoints. If nothing was done, the time jumps to the next deadline, by
    /// at most 1 s.
    pub(crate) fn turn(&self) {
        let now = self.now.get().plus_nanos(2_000);
        self.now.set(now);
        let servers = self.servers.borrow();
        let all = || std::iter::once(&self.client).chain(servers.iter().flatten());
        let work: usize = all().map(|endpoint| endpoint.run_once_at(now)).sum();
        if work == 0 {
            let next = all().map(Endpoint::next_deadline).min().unwrap();
            self.now.set(now.max(next.min(now + Duration::from_secs(1))));
        }
    }

    /// Runs until `done`, for at most 60 s of virtual time.
    pub(crate) fn run_until(&self, done: impl Fn() -> bool) {
        let end = self.now.get() + Duration::from_secs(60);
        while !done() {
            assert!(self.now.get() < end, "the condition is not met within 60 s");
            self.turn();
        }
    }

    pub(crate) fn run_for(&self, time: Duration) {
        let end = self.now.get() + time;
        while self.now.get() < end {
            self.turn();
        }
    }

    /// Lets `time` pass in which only the servers run. The client's packets wait.
    pub(crate) fn client_away(&self, time: Duration) {
        let end = self.now.get() + time;
        let servers = self.servers.borrow();
        let all = || servers.iter().flatten();
        while self.now.get() < end {
            let now = self.now.get().plus_nanos(2_000);
            self.now.set(now);
            let work: usize = all().map(|endpoint| endpoint.run_once_at(now)).sum();
            if work == 0 {
                let next = all().map(Endpoint::next_deadline).min().unwrap();
                self.now.set(now.max(next.min(end)));
            }
        }
    }

    /// Runs until the call has ended. In each turn, server 0 answers all calls that it holds.
    pub(crate) fn finish_answered(
        &self,
        call: Call<Number, MemTransport>,
    ) -> Result<u64, CallError> {
        self.run_until(|| {
            self.behaviours[0].answer();
            call.is_ready()
        });
        self.finish(call)
    }

    /// Runs until the call has ended.
    pub(crate) fn finish(&self, call: Call<Number, MemTransport>) -> Result<u64, CallError> {
        self.wait(call).map(|number| number.value)
    }

    /// Runs until the future completes.
    pub(crate) fn wait<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let output = RefCell::new(None);
        let mut cx = Context::from_waker(Waker::noop());
        let future = RefCell::new((&mut future, &mut cx));
        self.run_until(|| {
            let (future, cx) = &mut *future.borrow_mut();
            if let Poll::Ready(done) = future.as_mut().poll(cx) {
                output.replace(Some(done));
            }
            output.borrow().is_some()
        });
        output.take().unwrap()
    }
}

fn config(seed: u64) -> EndpointConfig {
    EndpointConfig::new().seed(seed).connect_timeout(Duration::from_millis(100))
}
