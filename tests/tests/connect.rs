//! Connecting: without a server, with a silent peer, with several servers, and among noise.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use erpc::{
    CallError, Cause, ConnectError, ConnectFailed, ConnectFailure, Endpoint, EndpointConfig,
    IdlePolicy, NetworkError, Server, ServerHandle, join_all,
};
use erpc_test_tools::data::fill;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::process::Process;
use erpc_test_tools::random::Random;
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::proto::*;

const ANY_PORT: &str = "127.0.0.1:0";

fn serve() -> ServerHandle {
    Server::builder()
        .add_service(LabService::default())
        .udp(loopback())
        .threads(2)
        .spawn(ANY_PORT)
        .expect("the server starts")
}

fn counts(endpoint: &Endpoint, lab: &LocalLabClient, number: u64) {
    assert_eq!(endpoint.block_on(lab.count(CountRequest { number })), Ok(CountReply { number }));
}

/// Asserts that connecting fails within `timeout` plus 1 s, with an error that names the address.
#[track_caller]
fn fails_within(endpoint: &Endpoint, address: SocketAddr, timeout: Duration) -> ConnectFailed {
    let begun = Instant::now();
    let error = LocalLabClient::connect(endpoint, address).expect_err("no server answers");
    let took = begun.elapsed();
    assert!(took < timeout + secs(1), "connecting failed after {took:?}, timeout {timeout:?}");
    assert!(error.to_string().contains(&address.to_string()), "the error has no address: {error}");
    assert_eq!(error.address(), address.to_string());
    error
}

#[test]
fn connecting_fails_before_its_timeout_when_no_server_listens() {
    within(secs(30), || {
        // A port that was free a moment ago.
        let address = UdpSocket::bind(ANY_PORT)
            .and_then(|socket| socket.local_addr())
            .expect("a port is free");
        for (timeout, policy) in [(millis(100), IdlePolicy::Spin), (millis(400), IdlePolicy::Sleep)]
        {
            let endpoint = client(EndpointConfig::new().connect_timeout(timeout));
            endpoint.set_idle_policy(policy);
            let error = fails_within(&endpoint, address, timeout);
            assert!(
                matches!(
                    error.reason(),
                    ConnectFailure::Handshake(ConnectError::Unreachable(
                        NetworkError::NothingListens
                    ))
                ),
                "{error}"
            );
        }
    });
}

#[test]
fn connecting_times_out_when_the_peer_is_silent() {
    within(secs(30), || {
        let silent = UdpSocket::bind(ANY_PORT).expect("the socket opens");
        let address = silent.local_addr().expect("the socket has an address");
        let timeout = millis(300);
        let endpoint = client(EndpointConfig::new().connect_timeout(timeout));
        let begun = Instant::now();
        let error = fails_within(&endpoint, address, timeout);
        assert!(
            begun.elapsed() >= timeout,
            "connecting to a silent peer lasts for the whole timeout"
        );
        assert!(
            matches!(error.reason(), ConnectFailure::Handshake(ConnectError::Timeout)),
            "{error}"
        );

        // The client sent several hellos, with growing intervals.
        silent.set_nonblocking(true).expect("the socket becomes non-blocking");
        let mut packet = [0; 2_000];
        // Counts only this endpoint's packets: another test may send to this port, which that test
        // found free a moment ago.
        let ours = endpoint.local_route().expect("called outside of the loop").socket_addr().port();
        let asked = std::iter::from_fn(|| silent.recv_from(&mut packet).ok())
            .filter(|(_, from)| from.port() == ours)
            .count();
        assert!((2..=8).contains(&asked), "the client sent {asked} hellos");

        // Calls that were made while the session was opening end when it fails to open.
        let lab = LocalLabClient::new(endpoint.open(address.into()));
        let calls: Vec<_> = (0..20).map(|number| lab.count(CountRequest { number })).collect();
        for reply in endpoint.block_on(join_all(calls)) {
            assert_eq!(reply, Err(CallError::NotExecuted(Cause::Connect(ConnectError::Timeout))));
        }
    });
}

#[test]
fn an_endpoint_that_does_not_listen_refuses_sessions() {
    within(secs(30), || {
        let (client_only, endpoint) =
            (client(EndpointConfig::new()), client(EndpointConfig::new()));
        let address = client_only.local_route().expect("called outside of the loop");
        let connecting = endpoint.spawn(endpoint.connect_async(address));
        while !connecting.is_finished() {
            endpoint.run_once();
            client_only.run_once();
        }
        let error = endpoint.block_on(connecting).expect_err("the peer does not listen");
        assert!(
            matches!(error.reason(), ConnectFailure::Handshake(ConnectError::NotListening)),
            "{error}"
        );
    });
}

#[test]
fn a_full_server_refuses_sessions_until_one_closes() {
    within(secs(30), || {
        let config = EndpointConfig::new().max_sessions(2);
        let server =
            Server::builder().add_service(LabService::default()).udp(loopback()).config(config);
        let server = server.spawn(ANY_PORT).expect("the server starts");
        let endpoint = client(EndpointConfig::new());
        let connect = || endpoint.connect(server.local_addr());
        let sessions =
            [connect().expect("session 1 of 2 opens"), connect().expect("session 2 of 2 opens")];
        let error = connect().expect_err("the server has no room for a third session");
        assert!(matches!(error.reason(), ConnectFailure::Handshake(ConnectError::Full)), "{error}");
        for session in &sessions {
            counts(&endpoint, &LocalLabClient::new(session.clone()), 1);
        }
        endpoint.block_on(sessions[0].disconnect());
        let again = connect().expect("the server has room again");
        counts(&endpoint, &LocalLabClient::new(again), 2);

        // The client's own limit of sessions applies, too.
        let server = serve();
        let small = client(EndpointConfig::new().max_sessions(1));
        let first = small.open(server.local_addr().into());
        let error = small.connect(server.local_addr()).expect_err("the client may have 1 session");
        assert!(
            matches!(error.reason(), ConnectFailure::Handshake(ConnectError::TooManySessions)),
            "{error}"
        );
        counts(&small, &LocalLabClient::new(first), 3);
    });
}

#[test]
fn one_process_has_several_servers() {
    within(secs(30), || {
        let servers: Vec<_> = (0..4).map(|_| serve()).collect();
        let endpoint = client(EndpointConfig::new());
        let labs: Vec<_> = servers
            .iter()
            .map(|server| {
                LocalLabClient::connect(&endpoint, server.local_addr()).expect("the server answers")
            })
            .collect();
        for (at, lab) in labs.iter().enumerate() {
            let put = PutRequest { key: "which".into(), value: at.to_string().into() };
            assert_eq!(
                endpoint.block_on(lab.put(put)),
                Ok(PutReply { replaced: false }),
                "each server has its own store"
            );
        }
        for (at, lab) in labs.iter().enumerate() {
            let got = endpoint.block_on(lab.get(GetRequest { key: "which".into() }));
            assert_eq!(got, Ok(GetReply { value: at.to_string().into() }));
        }
    });
}

#[test]
fn clients_use_several_server_processes_on_one_host() {
    within(secs(60), || {
        let start = |n| {
            Process::start(
                &format!("server {n}"),
                env!("CARGO_BIN_EXE_lab_server"),
                &[ANY_PORT, "2"],
            )
        };
        let processes: Vec<_> = (0..3).map(start).collect();
        let addresses: Vec<_> =
            processes.iter().map(|process| process.expect_address("LISTENING")).collect();
        let endpoints = [client(EndpointConfig::new()), client(EndpointConfig::new())];
        for endpoint in &endpoints {
            let labs: Vec<_> = addresses
                .iter()
                .map(|address| {
                    LocalLabClient::connect(endpoint, *address).expect("the server answers")
                })
                .collect();
            let calls =
                (0..300).map(|number| labs[number as usize % 3].count(CountRequest { number }));
            for (number, reply) in (0..).zip(endpoint.block_on(join_all(calls))) {
                assert_eq!(reply, Ok(CountReply { number }));
            }
        }
        drop(endpoints);
        processes.into_iter().for_each(Process::finish);
    });
}

/// A hello packet of a client, as a base for noise that looks like packets of erpc.
fn a_real_hello() -> Vec<u8> {
    let silent = UdpSocket::bind(ANY_PORT).expect("the socket opens");
    silent.set_read_timeout(Some(secs(10))).expect("the timeout is valid");
    let endpoint = client(EndpointConfig::new());
    let address = silent.local_addr().expect("the socket has an address");
    let _session = endpoint.open(address.into());
    endpoint.run_for(millis(1));
    let mut packet = vec![0; 2_000];
    let len = silent.recv(&mut packet).expect("the client sends a hello");
    packet.truncate(len);
    packet
}

#[test]
fn noise_at_a_servers_port_disturbs_no_session() {
    within(secs(60), || {
        let server = serve();
        let address = server.local_addr();
        let noise = UdpSocket::bind(ANY_PORT).expect("the socket opens");
        let endpoint = client(EndpointConfig::new());
        let lab = LocalLabClient::connect(&endpoint, address).expect("the server answers");
        let hello = a_real_hello();
        let mut random = Random::new(5);
        let mut made = 0u64;
        for round in 0..20_000u64 {
            let mut packet = match random.below(5) {
                // All lengths, with many short ones.
                0 => vec![0; random.below(40) as usize],
                1 => vec![0; random.below(3_000) as usize],
                2 if round % 50 == 0 => vec![0; 65_507],
                _ => hello.clone(),
            };
            if packet.len() != hello.len() {
                fill(round, &mut packet);
                // A packet that starts like a real one passes the first checks.
                let like = random.below(24) as usize;
                let like = like.min(packet.len());
                packet[..like].copy_from_slice(&hello[..like]);
            } else if random.below(3) == 0 {
                let len = random.below(packet.len() as u64) as usize;
                packet.truncate(len);
            }
            // Changes up to 5 of the first 64 bytes: of the header, such as sizes and kinds, and
            // of the body.
            for _ in 0..random.below(6) {
                let at = random.below(64) as usize;
                if let Some(byte) = packet.get_mut(at) {
                    *byte = random.word() as u8;
                }
            }
            // Sending fails if the queue is full, which is no failure of the test.
            made += u64::from(noise.send_to(&packet, address).is_ok());
            if round % 20 == 0 {
                counts(&endpoint, &lab, round);
            }
        }
        assert!(made > 10_000, "{made} packets of noise");
        let new = LocalLabClient::connect(&endpoint, address).expect("new sessions open");
        counts(&endpoint, &new, 1);
        let stats = server.stats();
        assert_eq!(stats.server_sessions, 2, "noise opens no session: {stats:?}");
        assert_eq!(stats.protocol.requests, 1_001, "noise makes no call");
        assert!(
            stats.protocol.dropped_in_all() > 1_000,
            "the server received and dropped the noise: {:?}",
            stats.protocol
        );
        eprintln!("{made} packets of noise: {:?}", stats.protocol);
        // No answer to noise is longer than a hello.
        noise.set_nonblocking(true).expect("the socket becomes non-blocking");
        let mut answer = [0; 2_000];
        while let Ok(len) = noise.recv(&mut answer) {
            assert!(len <= hello.len(), "an answer to noise has {len} bytes");
        }
    });
}

#[test]
fn noise_at_a_clients_port_disturbs_no_session() {
    within(secs(60), || {
        let server = serve();
        let endpoint = client(EndpointConfig::new());
        let session = endpoint.connect(server.local_addr()).expect("the server answers");
        let lab = LocalLabClient::new(session.clone());
        let address = endpoint.local_route().expect("called outside of the loop").socket_addr();
        let noise = UdpSocket::bind(ANY_PORT).expect("the socket opens");
        let mut random = Random::new(6);
        for round in 0..5_000 {
            let mut packet = vec![0; random.below(2_000) as usize];
            fill(round, &mut packet);
            noise.send_to(&packet, address).unwrap_or(0);
            if round % 20 == 0 {
                counts(&endpoint, &lab, round);
            }
        }
        assert!(session.is_open());
    });
}

#[test]
fn a_client_reaches_a_wildcard_server_that_answers_from_another_address() {
    within(secs(30), || {
        let server = Server::builder()
            .add_service(LabService::default())
            .spawn("0.0.0.0:0")
            .expect("the server starts");
        let port = server.local_addr().port();
        let endpoint = client(EndpointConfig::new());
        // The server's answers come from 127.0.0.1, which the kernel picks as their source.
        let lab = LocalLabClient::connect(&endpoint, SocketAddr::from(([127, 0, 0, 2], port)))
            .expect("the server answers");
        counts(&endpoint, &lab, 7);
    });
}
