//! Over UDP sockets: servers, their threads, and the errors that users get.

use std::net::UdpSocket;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::IdlePolicy;
use erpc_core::executor::join_all;
use erpc_core::protocol::{CallError, EndpointConfig};
use erpc_core::server::{Nexus, ServeError, Server};
use erpc_core::status::Code;
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
    // A port that was free a moment ago.
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
    assert_eq!(endpoint.block_on(call), Ok(number(7)));
    ending.join().unwrap();
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
