//! Over UDP sockets: servers, their threads, and the errors that users get.

use std::future::Future;
use std::net::UdpSocket;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Wake};
use std::time::{Duration, Instant};

use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::IdlePolicy;
use erpc_core::executor::{Sleep, join_all};
use erpc_core::protocol::{CallError, Cause, EndpointConfig};
use erpc_core::server::{Nexus, ServeError, Server, ServerHandle};
use erpc_core::service::{Method, MethodCollision, Request, Response, Routes, Service};
use erpc_core::status::{Code, Status};
use erpc_core::transport::udp::UdpConfig;

use crate::support::{DOUBLE, GATED, Gate, Math, Number, SLOW_DOUBLE, math, number};

#[test]
fn a_server_answers_over_udp() {
    let server =
        Server::builder().add_service(Math::default()).workers(2).spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    assert_eq!(session.peer().socket_addr(), server.local_addr());
    for value in 20..60 {
        assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(value))), Ok(number(value * 2)));
    }
    let calls = (100..400).map(|value| session.call(&DOUBLE, &number(value)));
    assert!(
        endpoint
            .block_on(join_all(calls))
            .into_iter()
            .zip(100..)
            .all(|(got, value)| got == Ok(number(value * 2)))
    );
    let large = Number { value: 1, ballast: vec![3; 1 << 20] };
    assert_eq!(
        endpoint.block_on(session.call(&SLOW_DOUBLE, &large)).map(|reply| reply.value),
        Ok(2)
    );
    let stats = server.stats();
    assert_eq!((stats.protocol.requests, stats.server_sessions), (341, 1));
    server.shutdown();
}

#[test]
fn sessions_are_spread_over_threads() {
    let builder = Server::builder().add_service(Math::default()).threads(2).idle(IdlePolicy::Sleep);
    let server = builder.spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let sessions: Vec<_> = (0..8).map(|_| endpoint.connect(server.local_addr()).unwrap()).collect();
    for session in &sessions {
        assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(2))), Ok(number(4)));
    }
    let per_thread: Vec<_> =
        server.endpoint_stats().iter().map(|stats| stats.server_sessions).collect();
    assert_eq!(per_thread, [4, 4]);
    assert_eq!(server.handles().count(), 2);
}

#[test]
fn connecting_to_a_closed_port_fails_in_time() {
    // Nothing listens at this port: it was free a moment ago.
    let address = UdpSocket::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let config = EndpointConfig::new().connect_timeout(Duration::from_millis(100));
    let endpoint = Endpoint::udp_with(&UdpConfig::new(), config).unwrap();
    let started = Instant::now();
    let error = endpoint.connect(address).unwrap_err();
    assert!(started.elapsed() < Duration::from_secs(1), "{:?}", started.elapsed());
    assert!(error.to_string().contains(&address.to_string()), "{error}");
}

#[test]
fn an_address_without_a_port_fails_with_advice() {
    let error = Endpoint::udp().unwrap().connect("127.0.0.1").unwrap_err();
    assert!(error.to_string().contains("127.0.0.1:PORT"), "{error}");
}

#[test]
fn spawn_fails_with_the_reason_why_a_server_cannot_start() {
    let taken = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap();
    let error = Server::builder().add_service(Math::default()).spawn(address).unwrap_err();
    assert!(
        matches!(error, ServeError::Bind(_)) && error.to_string().contains(&address.to_string()),
        "{error}"
    );

    let twice = Server::builder().add_service(Math::default()).add_service(Math::default());
    assert!(matches!(twice.spawn("127.0.0.1:0"), Err(ServeError::Collision(_))));
    assert!(matches!(Server::builder().spawn("127.0.0.1:0"), Err(ServeError::NoService)));
    let config = EndpointConfig::new().credits(0);
    let wrong = Server::builder().add_service(Math::default()).config(config);
    assert!(matches!(wrong.spawn("127.0.0.1:0"), Err(ServeError::Config(_))));
    let pinned = Server::builder().add_service(Math::default()).core(1_000);
    assert!(matches!(pinned.spawn("127.0.0.1:0"), Err(ServeError::Pin { core: 1_000, .. })));
}

#[test]
fn a_server_that_shuts_down_ends_the_calls_of_its_clients() {
    let server = Server::builder().add_service(Math::default()).spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(1))), Ok(number(2)));
    drop(server);
    let started = Instant::now();
    let error = endpoint.block_on(session.call(&DOUBLE, &number(1))).unwrap_err();
    assert!(!matches!(error, CallError::Status(_)), "{error}");
    assert!(
        started.elapsed() < Duration::from_secs(5),
        "the client learns of the shutdown from the server"
    );
}

#[test]
fn a_server_that_shuts_down_answers_the_calls_of_its_workers() {
    let gate = Arc::new(Gate::default());
    let math = Math { gate: Arc::clone(&gate) };
    let server = Server::builder().add_service(math).workers(1).spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    let call = session.call(&GATED, &number(7));
    let arrived = Arc::new(AtomicBool::new(false));
    let watcher = std::thread::spawn({
        let (gate, arrived, handle) = (Arc::clone(&gate), Arc::clone(&arrived), endpoint.handle());
        move || {
            gate.wait_for_arrival();
            arrived.store(true, Ordering::Release);
            handle.wake();
        }
    });
    endpoint.run_until(|| arrived.load(Ordering::Acquire));
    watcher.join().unwrap();
    let ending = std::thread::spawn(|| server.shutdown());
    gate.open();
    // If the call took long, the server has announced its response, and the client has to fetch it.
    // The server may have ended by then.
    let outcome = endpoint.block_on(call);
    let is_answered =
        outcome == Ok(number(7)) || outcome == Err(CallError::ResponseLost(Cause::PeerClosed));
    assert!(is_answered, "{outcome:?}");
    ending.join().unwrap();
}

const HOLD: Method<Number, Number> = Method::new("test.Holder/Hold");

/// Endpoints that handlers have leaked. The leak checker accepts memory that a static names.
static LEAKED: Mutex<Vec<AtomicPtr<Endpoint>>> = Mutex::new(Vec::new());

/// Handlers that hold the endpoint wherever a handler can.
struct Holder {
    entered: Arc<AtomicBool>,
}

impl Holder {
    async fn hold(&self, _: Request<'_, Number>) -> Result<Response<Number>, Status> {
        struct Kept(Endpoint);
        let endpoint: Endpoint = Endpoint::current().expect("a loop runs");
        let kept = endpoint.local(|endpoint| Kept(endpoint.clone()));
        let task = kept.0.clone();
        let leaked = Box::into_raw(Box::new(endpoint.clone()));
        LEAKED.lock().unwrap().push(AtomicPtr::new(leaked));
        drop(endpoint.spawn(async move { task.sleep(Duration::from_secs(3_600)).await }));
        self.entered.store(true, Ordering::Release);
        endpoint.sleep(Duration::from_secs(3_600)).await;
        Err(Status::internal("the handler is dropped before"))
    }
}

impl Service for Holder {
    const NAME: &'static str = "test.Holder";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary_async(HOLD, &self, Self::hold)
    }
}

/// Starts a server and a call whose handler holds the server's endpoint. Then `end` must end the
/// server. Checks that the caller learns of the end immediately, and that the port is free.
fn check_end(threads: usize, end: impl FnOnce(ServerHandle)) {
    let entered = Arc::new(AtomicBool::new(false));
    let holder = Holder { entered: Arc::clone(&entered) };
    let server =
        Server::builder().add_service(holder).threads(threads).spawn("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(address).unwrap();
    let call = session.call(&HOLD, &number(1));
    while !entered.load(Ordering::Acquire) {
        endpoint.run_once();
    }
    let begin = Instant::now();
    end(server);
    let error = endpoint.block_on(call).unwrap_err();
    assert_eq!(error, CallError::MaybeExecuted(Cause::PeerClosed));
    assert!(begin.elapsed() < Duration::from_secs(2), "{:?}", begin.elapsed());
    let again = Server::builder().add_service(Math::default()).spawn(address);
    let _again = again.expect("the port is free");
    let session = endpoint.connect(address).unwrap();
    assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(1))), Ok(number(2)));
}

#[test]
fn a_server_ends_although_its_handlers_hold_its_endpoint() {
    check_end(1, |server| server.shutdown());
    check_end(3, |server| server.shutdown());
}

/// A waker that panics when the event loop fires its timer. There, no code of the loop catches the
/// panic.
struct Bomb;

impl Wake for Bomb {
    fn wake(self: Arc<Self>) {
        panic!("a waker of another executor panics");
    }
}

#[test]
fn a_server_whose_loop_panics_ends_although_its_handlers_hold_its_endpoint() {
    for threads in [1, 3] {
        check_end(threads, |server| {
            let handle = server.handles().next().unwrap();
            struct Planted(#[expect(dead_code, reason = "only its drop matters")] Pin<Box<Sleep>>);
            let plant = |endpoint: &Endpoint| {
                let mut sleep = Box::pin(endpoint.sleep(Duration::from_millis(1)));
                let waker = Arc::new(Bomb).into();
                assert!(sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
                // If the sleep were dropped, its timer would not fire.
                endpoint.local(|_| Planted(sleep));
            };
            handle.submit(plant).unwrap();
            assert!(matches!(server.wait(), Err(ServeError::Panicked)));
        });
    }
}

#[test]
fn several_servers_live_in_one_process() {
    let servers: Vec<_> = (0..3)
        .map(|_| Server::builder().add_service(Math::default()).spawn("127.0.0.1:0").unwrap())
        .collect();
    let endpoint = Endpoint::udp().unwrap();
    for server in &servers {
        let session = endpoint.connect(server.local_addr()).unwrap();
        assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(2))), Ok(number(4)));
    }
}

#[test]
fn a_nexus_serves_from_one_thread() {
    let nexus = Nexus::bind("127.0.0.1:0".parse().unwrap(), 2, UdpConfig::new()).unwrap();
    let address = nexus.local_addr();
    let seats = nexus.into_seats().into_iter();
    let servers: Vec<_> = seats.map(|seat| seat.open(EndpointConfig::new()).unwrap()).collect();
    servers.iter().for_each(|server| assert!(server.serve(math(), None)));
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.open(address.into());
    let calls = [session.call(&DOUBLE, &number(3)), session.call(&DOUBLE, &number(13))];
    let task = endpoint.spawn(join_all(calls));
    while !task.is_finished() {
        for server in &servers {
            server.run_once();
        }
        endpoint.run_once();
    }
    let replies = endpoint.block_on(task);
    assert_eq!(replies[0], Ok(number(6)));
    assert!(
        matches!(&replies[1], Err(CallError::Status(status)) if status.code() == Code::Internal)
    );
}
