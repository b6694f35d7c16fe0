//! Servers that were killed, ports where nothing listens, networks without a route: the system
//! reports them, and connecting and calls fail quickly, with the reported reason. Forged ICMP
//! messages have no effect.

use std::cell::Cell;
use std::io::Read;
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erpc::{
    Balance, CallError, CallOptions, Cause, Channel, ConnectError, ConnectFailure, Endpoint,
    EndpointConfig, IdlePolicy, NetworkError, RetryPolicy, Server, ServerHandle,
};
use erpc_test_tools::ipv4::checksum;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::netns::{Namespace, skip};
use erpc_test_tools::process::Process;
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::load::{Ending, Load, judge};
use erpc_tests::proto::*;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};

/// Number of attempts. Other load of the machine may delay some of them, but not the quickest one.
const ATTEMPTS: usize = 5;

const POLICIES: [IdlePolicy; 2] = [IdlePolicy::Spin, IdlePolicy::Sleep];

/// An address at which nothing listens. The port was free a moment ago.
fn nobody(address: &str) -> SocketAddr {
    let socket = UdpSocket::bind(address).expect("a port is free");
    socket.local_addr().expect("the socket has an address")
}

fn start(address: &str) -> (Process, SocketAddr) {
    let process = Process::start("server", env!("CARGO_BIN_EXE_lab_server"), &[address, "2"]);
    let address = process.expect_address("LISTENING");
    (process, address)
}

fn serve(address: &str) -> ServerHandle {
    let server = Server::builder().add_service(LabService::default()).udp(loopback()).threads(1);
    server.spawn(address).expect("the server starts")
}

fn count(endpoint: &Endpoint, lab: &LocalLabClient, number: u64) {
    assert_eq!(endpoint.block_on(lab.count(CountRequest { number })), Ok(CountReply { number }));
}

/// Asserts that the best attempt took less than `limit`.
#[track_caller]
fn quick(times: &[Duration], limit: Duration) {
    let best = times.iter().min().expect("there were attempts");
    assert!(*best < limit, "the best attempt took {best:?}: {times:?}");
    assert!(times.iter().all(|time| *time < secs(1)), "{times:?}");
}

#[test]
fn connecting_to_a_port_without_a_listener_fails_within_50_ms() {
    within(secs(60), || {
        for (here, policy) in ["127.0.0.1:0", "[::1]:0"].into_iter().zip(POLICIES) {
            let mut times = Vec::new();
            for _ in 0..ATTEMPTS {
                let endpoint = Endpoint::udp_with(
                    &loopback().address(here.parse().expect("an address")),
                    EndpointConfig::new(),
                )
                .expect("the client endpoint opens");
                endpoint.set_idle_policy(policy);
                let address = nobody(here);
                let begun = Instant::now();
                let error =
                    LocalLabClient::connect(&endpoint, address).expect_err("no server answers");
                times.push(begun.elapsed());
                let reason = ConnectError::Unreachable(NetworkError::NothingListens);
                assert!(
                    matches!(error.reason(), ConnectFailure::Handshake(r) if *r == reason),
                    "{error}"
                );
                let text = error.to_string();
                assert!(text.contains(&address.to_string()), "no address: {text}");
                assert!(text.contains("connection refused"), "no reason of the system: {text}");
            }
            quick(&times, millis(50));
        }
    });
}

#[test]
fn calls_in_flight_to_a_killed_server_end_within_100_ms() {
    within(secs(100), || {
        for policy in POLICIES {
            let (mut ends, mut connects) = (Vec::new(), Vec::new());
            for _ in 0..ATTEMPTS {
                let endpoint = client(EndpointConfig::new());
                endpoint.set_idle_policy(policy);
                let load = Load::new(&[(1, 500)]);
                let (mut server, address) = start("127.0.0.1:0");
                Load::start(&load, || {
                    let lab = LocalLabClient::connect(&endpoint, address).expect("it listens");
                    // A retry would end with the failure of another connect.
                    lab.with(CallOptions::new().retry(RetryPolicy::never()))
                });
                load.run(&endpoint, 300);
                server.kill();
                let begun = Instant::now();
                load.drain(&endpoint, secs(5));
                ends.push(begun.elapsed());
                let reason = Some(Cause::Unreachable(NetworkError::NothingListens));
                let outcomes = load.outcomes();
                let causes = outcomes.values().map(|outcome| outcome.cause());
                assert!(causes.into_iter().all(|cause| cause.is_none() || cause == reason));
                drop(outcomes);
                let executed = server.rest().into_iter().map(|line| {
                    let id = line.strip_prefix("EXECUTED ").expect("the id of a piece of work");
                    id.parse().expect("a number")
                });
                let counts = judge(&executed.collect::<Vec<u64>>(), &load.endings());
                assert!(counts.contains_key(&Ending::MaybeExecuted), "{counts:?}");

                let begun = Instant::now();
                let error = LocalLabClient::connect(&endpoint, address).expect_err("it is dead");
                connects.push(begun.elapsed());
                assert!(error.to_string().contains("connection refused"), "{error}");
            }
            quick(&ends, millis(100));
            quick(&connects, millis(50));
        }
    });
}

#[test]
fn a_session_survives_the_death_of_another_server() {
    within(secs(60), || {
        let endpoint = client(EndpointConfig::new());
        let (mut dies, address) = start("127.0.0.1:0");
        let lives = serve("127.0.0.1:0");
        let dead = LocalLabClient::connect(&endpoint, address).expect("it listens");
        let alive = LocalLabClient::connect(&endpoint, lives.local_addr()).expect("it listens");
        dies.kill();
        let gone = CallError::MaybeExecuted(Cause::Unreachable(NetworkError::NothingListens));
        // The system reports errors about packets to the dead server in later operations of the
        // socket, which both sessions share. No packet to the living server may be lost because of
        // this.
        let call = dead.count(CountRequest { number: 0 });
        for number in 0..2_000 {
            count(&endpoint, &alive, number);
        }
        assert_eq!(endpoint.block_on(call), Err(gone));
        let stats = endpoint.stats().expect("called outside of the loop");
        assert_eq!(stats.transport.tx_dropped, 0);
        assert_eq!(stats.protocol.retransmissions.shown_lost(), 0, "{:?}", stats.protocol);
    });
}

#[test]
fn a_server_that_restarts_at_its_port_resets_the_session() {
    within(secs(60), || {
        let endpoint = client(EndpointConfig::new());
        let (mut server, address) = start("127.0.0.1:0");
        let lab = LocalLabClient::connect(&endpoint, address).expect("it listens");
        count(&endpoint, &lab, 1);
        server.kill();
        let _server = start(&address.to_string());
        // Nothing was sent while the port was closed, so the client first hears of the restart when
        // the new server resets the session.
        let reply = endpoint.block_on(lab.count(CountRequest { number: 2 }));
        assert_eq!(reply, Err(CallError::MaybeExecuted(Cause::PeerReset)));
    });
}

#[test]
fn round_robin_leaves_a_killed_server_at_once() {
    within(secs(60), || {
        let mut pauses = Vec::new();
        for _ in 0..ATTEMPTS {
            let endpoint = client(EndpointConfig::new());
            let mut servers: Vec<_> = (0..3).map(|_| start("127.0.0.1:0")).collect();
            let routes: Vec<_> = servers.iter().map(|(_, address)| (*address).into()).collect();
            let channel = Channel::to(&endpoint, routes).balance(Balance::RoundRobin).build();
            endpoint.block_on(channel.ready()).expect("the servers answer");
            let lab = LocalLabClient::new(channel.clone());
            let (longest, failed) = (Rc::new(Cell::new(Duration::ZERO)), Rc::new(Cell::new(0)));
            let call = |number| {
                let begun = Instant::now();
                let reply = endpoint.block_on(lab.count(CountRequest { number }));
                longest.set(longest.get().max(begun.elapsed()));
                failed.set(failed.get() + u32::from(reply.is_err()));
                reply
            };
            while channel.backends().iter().any(|server| server.sessions == 0) {
                let _ = call(0);
            }
            longest.set(Duration::ZERO);
            failed.set(0);
            servers[0].0.kill();
            for number in 0..1_000 {
                // A call that is lost with the server fails; no other one does.
                let _ = call(number);
            }
            assert!(failed.get() <= 1, "{} calls failed", failed.get());
            pauses.push(longest.get());
        }
        quick(&pauses, millis(100));
    });
}

#[test]
fn a_network_without_a_route_fails_quickly_and_says_so() {
    let test = "a_network_without_a_route_fails_quickly_and_says_so";
    let namespace = match Namespace::new("no-route") {
        Ok(namespace) => namespace,
        Err(reason) => return skip(test, &reason),
    };
    namespace.ip("link set lo up").expect("loopback works");
    namespace.ip("address add 192.0.2.1/32 dev lo").expect("loopback has any address");
    namespace.within(|| {
        let server = serve("192.0.2.1:7000");
        let any = "0.0.0.0:0".parse().expect("an address");
        let open = || {
            Endpoint::udp_with(&loopback().address(any), EndpointConfig::new())
                .expect("the client endpoint opens")
        };
        let (mut connects, mut ends) = (Vec::new(), Vec::new());
        for policy in POLICIES.into_iter().cycle().take(ATTEMPTS) {
            let endpoint = open();
            endpoint.set_idle_policy(policy);
            let begun = Instant::now();
            let nowhere: SocketAddr = "198.51.100.1:7000".parse().expect("an address");
            let error = LocalLabClient::connect(&endpoint, nowhere).expect_err("there is no route");
            connects.push(begun.elapsed());
            assert!(error.to_string().contains("Network is unreachable"), "{error}");

            let lab = LocalLabClient::connect(&endpoint, server.local_addr()).expect("it listens");
            count(&endpoint, &lab, 1);
            namespace.ip("address delete 192.0.2.1/32 dev lo").expect("the address goes away");
            let begun = Instant::now();
            let reply = endpoint.block_on(lab.count(CountRequest { number: 2 }));
            ends.push(begun.elapsed());
            namespace.ip("address add 192.0.2.1/32 dev lo").expect("the address comes back");
            assert!(
                matches!(
                    reply,
                    Err(CallError::MaybeExecuted(Cause::Unreachable(NetworkError::NotSent(_))))
                ),
                "{reply:?}"
            );
        }
        quick(&connects, millis(50));
        quick(&ends, millis(100));
    });
}

/// An ICMP message "port unreachable" that quotes `packet`, which begins with its IPv4 header.
fn port_unreachable(packet: &[u8]) -> Vec<u8> {
    let mut message = vec![3, 3, 0, 0, 0, 0, 0, 0];
    message.extend_from_slice(&packet[..packet.len().min(128)]);
    let sum = checksum(&message);
    message[2..4].copy_from_slice(&sum.to_be_bytes());
    message
}

/// Sees all UDP packets of this host until `stop`, and forges an ICMP message about each packet to
/// the port `server`. Returns the number of forged messages.
fn forge(server: u16, stop: &AtomicBool) -> usize {
    let raw = |protocol| Socket::new(Domain::IPV4, Type::RAW, Some(protocol)).expect("root");
    let (mut seen, forger) = (raw(Protocol::UDP), raw(Protocol::ICMPV4));
    seen.set_read_timeout(Some(millis(10))).expect("a socket has a timeout");
    let (mut packet, mut forged) = ([0; 2_048], 0);
    while !stop.load(Ordering::Relaxed) {
        let Ok(len) = seen.read(&mut packet) else { continue };
        if len >= 28 && packet[22..24] == server.to_be_bytes() {
            let [.., a, b, c, d] = packet[..16] else { unreachable!("the packet has a header") };
            let sender = SockAddr::from(SocketAddr::from((Ipv4Addr::new(a, b, c, d), 0)));
            let message = port_unreachable(&packet[..len]);
            forged += usize::from(forger.send_to(&message, &sender).is_ok());
        }
    }
    forged
}

#[test]
fn forged_icmp_messages_end_no_session() {
    let test = "forged_icmp_messages_end_no_session";
    let namespace = match Namespace::new("forger") {
        Ok(namespace) => namespace,
        Err(reason) => return skip(test, &reason),
    };
    namespace.ip("link set lo up").expect("loopback works");
    namespace.within(|| {
        let server = serve("127.0.0.1:0");
        // The server has at least half a second for its answer, on a machine with other load.
        let endpoint = client(EndpointConfig::new().min_rto(millis(500)));
        let lab = LocalLabClient::connect(&endpoint, server.local_addr()).expect("it listens");
        let (stop, port) = (AtomicBool::new(false), server.local_addr().port());
        let forged = thread::scope(|scope| {
            let forger = scope.spawn(|| {
                namespace.enter();
                forge(port, &stop)
            });
            let begun = Instant::now();
            let mut number = 0;
            while begun.elapsed() < secs(2) {
                number += 1;
                count(&endpoint, &lab, number);
            }
            // While a handler runs, the client sends pings. The forger reports these as
            // undelivered, too, but the server answers them.
            assert_eq!(endpoint.block_on(lab.nap(NapRequest { millis: 300 })), Ok(NapReply {}));
            stop.store(true, Ordering::Relaxed);
            forger.join().expect("the forger does not panic")
        });
        let stats = endpoint.stats().expect("called outside of the loop");
        let reports = stats.protocol.undelivered + stats.protocol.stray_reports;
        assert!(forged > 100 && reports > 100, "{forged} forged, {reports} reported");
        assert_eq!((stats.protocol.failures, stats.transport.tx_dropped), (0, 0));
    });
}
