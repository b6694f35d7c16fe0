//! Getting together: with nobody, with somebody who is silent, with several, among noise.

use std::net::{SocketAddr, UdpSocket};
use std::time::{Duration, Instant};

use erpc::transport::udp::UdpError;
use erpc::{
    CallError, Cause, ConnectError, ConnectFailed, ConnectFailure, Endpoint, EndpointConfig,
    IdlePolicy, ServeError, Server, ServerHandle, join_all,
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
        .expect("it starts")
}

fn counts(endpoint: &Endpoint, lab: &LabClient, number: u64) {
    assert_eq!(endpoint.block_on(lab.count(CountRequest { number })), Ok(CountReply { number }));
}

/// Tries to connect, which must fail after about `timeout`, naming the address.
#[track_caller]
fn fails_within(endpoint: &Endpoint, address: SocketAddr, timeout: Duration) -> ConnectFailed {
    let begun = Instant::now();
    let error = LabClient::connect(endpoint, address).expect_err("nobody answers there");
    let took = begun.elapsed();
    assert!(took < timeout + secs(1), "it took {took:?} to fail, {timeout:?} were allowed");
    assert!(error.to_string().contains(&address.to_string()), "the address is missing in: {error}");
    assert_eq!(error.address(), address.to_string());
    error
}

#[test]
fn nobody_listens() {
    within(secs(30), || {
        // A port that was just free.
        let address =
            UdpSocket::bind(ANY_PORT).and_then(|socket| socket.local_addr()).expect("a free port");
        for (timeout, policy) in [(millis(100), IdlePolicy::Spin), (millis(400), IdlePolicy::Sleep)]
        {
            let endpoint = client(EndpointConfig::new().connect_timeout(timeout));
            endpoint.set_idle_policy(policy);
            let error = fails_within(&endpoint, address, timeout);
            assert!(
                matches!(error.reason(), ConnectFailure::Handshake(ConnectError::Timeout)),
                "{error}"
            );
        }
    });
}

#[test]
fn packets_vanish() {
    within(secs(30), || {
        let silent = UdpSocket::bind(ANY_PORT).expect("a socket");
        let address = silent.local_addr().expect("it has one");
        let timeout = millis(300);
        let endpoint = client(EndpointConfig::new().connect_timeout(timeout));
        let begun = Instant::now();
        let error = fails_within(&endpoint, address, timeout);
        assert!(
            begun.elapsed() >= timeout,
            "packets that vanish look like a slow server until the end"
        );
        assert!(
            matches!(error.reason(), ConnectFailure::Handshake(ConnectError::Timeout)),
            "{error}"
        );

        // It was asked several times, and less and less often.
        silent.set_nonblocking(true).expect("a socket that does not block");
        let mut packet = [0; 2_000];
        // By this endpoint: another test may try the port, which it found free a moment ago.
        let ours = endpoint.local_route().expect("outside of the loop").socket_addr().port();
        let asked = std::iter::from_fn(|| silent.recv_from(&mut packet).ok())
            .filter(|(_, from)| from.port() == ours)
            .count();
        assert!((2..=8).contains(&asked), "asked {asked} times");

        // Calls that were made meanwhile end with the session.
        let lab = LabClient::new(endpoint.open(address.into()));
        let calls: Vec<_> = (0..20).map(|number| lab.count(CountRequest { number })).collect();
        for reply in endpoint.block_on(join_all(calls)) {
            assert_eq!(reply, Err(CallError::NotExecuted(Cause::Connect(ConnectError::Timeout))));
        }
    });
}

#[test]
fn a_peer_that_is_no_server_says_so() {
    within(secs(30), || {
        let (client_only, endpoint) =
            (client(EndpointConfig::new()), client(EndpointConfig::new()));
        let address = client_only.local_route().expect("outside of the loop");
        let connecting = endpoint.spawn(endpoint.connect_async(address));
        while !connecting.is_finished() {
            endpoint.run_once();
            client_only.run_once();
        }
        let error = endpoint.block_on(connecting).expect_err("it does not serve");
        assert!(
            matches!(error.reason(), ConnectFailure::Handshake(ConnectError::NotListening)),
            "{error}"
        );
    });
}

#[test]
fn a_server_that_is_full_says_so_and_has_room_again() {
    within(secs(30), || {
        let config = EndpointConfig::new().max_sessions(2);
        let server =
            Server::builder().add_service(LabService::default()).udp(loopback()).config(config);
        let server = server.spawn(ANY_PORT).expect("it starts");
        let endpoint = client(EndpointConfig::new());
        let connect = || endpoint.connect(server.local_addr());
        let sessions = [connect().expect("one of two"), connect().expect("two of two")];
        let error = connect().expect_err("there is no room for a third");
        assert!(matches!(error.reason(), ConnectFailure::Handshake(ConnectError::Full)), "{error}");
        for session in &sessions {
            counts(&endpoint, &LabClient::new(session.clone()), 1);
        }
        endpoint.block_on(sessions[0].disconnect());
        let again = connect().expect("the place is free again");
        counts(&endpoint, &LabClient::new(again), 2);

        // The client's own limit.
        let server = serve();
        let small = client(EndpointConfig::new().max_sessions(1));
        let first = small.open(server.local_addr().into());
        let error = small.connect(server.local_addr()).expect_err("one is all it may have");
        assert!(
            matches!(error.reason(), ConnectFailure::Handshake(ConnectError::TooManySessions)),
            "{error}"
        );
        counts(&small, &LabClient::new(first), 3);
    });
}

#[test]
fn an_address_that_is_taken() {
    within(secs(30), || {
        let first = serve();
        let taken = first.local_addr();
        for threads in [1, 2] {
            let again =
                Server::builder().add_service(LabService::default()).threads(threads).spawn(taken);
            let Err(error) = again else { panic!("two servers at {taken}") };
            assert!(
                matches!(error, ServeError::Bind(UdpError::AddressInUse { address }) if address == taken),
                "{error:?}"
            );
            assert!(error.to_string().contains(&taken.to_string()), "{error}");
        }
        let endpoint = client(EndpointConfig::new());
        counts(
            &endpoint,
            &LabClient::connect(&endpoint, taken).expect("the first is not disturbed"),
            1,
        );
        first.shutdown();
        let again = Server::builder().add_service(LabService::default()).threads(2).spawn(taken);
        assert_eq!(again.expect("the address is free again").local_addr(), taken);
    });
}

#[test]
fn several_servers_in_one_process() {
    within(secs(30), || {
        let servers: Vec<_> = (0..4).map(|_| serve()).collect();
        let endpoint = client(EndpointConfig::new());
        let labs: Vec<_> = servers
            .iter()
            .map(|server| LabClient::connect(&endpoint, server.local_addr()).expect("each answers"))
            .collect();
        for (at, lab) in labs.iter().enumerate() {
            let put = PutRequest { key: "which".into(), value: at.to_string().into() };
            assert_eq!(
                endpoint.block_on(lab.put(put)),
                Ok(PutReply { replaced: false }),
                "each has its own store"
            );
        }
        for (at, lab) in labs.iter().enumerate() {
            let got = endpoint.block_on(lab.get(GetRequest { key: "which".into() }));
            assert_eq!(got, Ok(GetReply { value: at.to_string().into() }));
        }
    });
}

#[test]
fn several_processes_on_one_host() {
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
                .map(|address| LabClient::connect(endpoint, *address).expect("each answers"))
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

/// The connection ids and addresses of a session cannot be known here, but what a packet looks like can.
fn a_real_hello() -> Vec<u8> {
    let silent = UdpSocket::bind(ANY_PORT).expect("a socket");
    silent.set_read_timeout(Some(secs(10))).expect("a time-out");
    let endpoint = client(EndpointConfig::new());
    let _session = endpoint.open(silent.local_addr().expect("it has one").into());
    endpoint.run_for(millis(1));
    let mut packet = vec![0; 2_000];
    let len = silent.recv(&mut packet).expect("the client says hello");
    packet.truncate(len);
    packet
}

#[test]
fn noise_at_a_servers_port_disturbs_nobody() {
    within(secs(60), || {
        let server = serve();
        let address = server.local_addr();
        let noise = UdpSocket::bind(ANY_PORT).expect("a socket");
        let endpoint = client(EndpointConfig::new());
        let lab = LabClient::connect(&endpoint, address).expect("the server answers");
        let hello = a_real_hello();
        let mut random = Random::new(5);
        let mut made = 0u64;
        for round in 0..20_000u64 {
            let mut packet = match random.below(5) {
                // Whatever lengths there are, tiny ones often.
                0 => vec![0; random.below(40) as usize],
                1 => vec![0; random.below(3_000) as usize],
                2 if round % 50 == 0 => vec![0; 65_507],
                _ => hello.clone(),
            };
            if packet.len() != hello.len() {
                fill(round, &mut packet);
                // Something that begins like one of ours goes further in.
                let like = random.below(24) as usize;
                let like = like.min(packet.len());
                packet[..like].copy_from_slice(&hello[..like]);
            } else if random.below(3) == 0 {
                let len = random.below(packet.len() as u64) as usize;
                packet.truncate(len);
            }
            // Sizes, kinds and numbers that lie.
            for _ in 0..random.below(6) {
                let at = random.below(64) as usize;
                if let Some(byte) = packet.get_mut(at) {
                    *byte = random.word() as u8;
                }
            }
            // A full queue is no failure of the test.
            made += u64::from(noise.send_to(&packet, address).is_ok());
            if round % 20 == 0 {
                counts(&endpoint, &lab, round);
            }
        }
        assert!(made > 10_000, "{made} packets of noise");
        let new = LabClient::connect(&endpoint, address).expect("new sessions open");
        counts(&endpoint, &new, 1);
        let stats = server.stats();
        assert_eq!(stats.server_sessions, 2, "noise opens no session: {stats:?}");
        assert_eq!(stats.protocol.requests, 1_001, "noise makes no call");
        assert!(
            stats.protocol.dropped_in_all() > 1_000,
            "it was seen and dropped: {:?}",
            stats.protocol
        );
        eprintln!("{made} packets of noise: {:?}", stats.protocol);
        // What the noise was answered is not more than it was.
        noise.set_nonblocking(true).expect("a socket that does not block");
        let mut answer = [0; 2_000];
        while let Ok(len) = noise.recv(&mut answer) {
            assert!(len <= hello.len(), "an answer of {len} bytes, to a stranger");
        }
    });
}

#[test]
fn noise_at_a_clients_port_disturbs_nobody() {
    within(secs(60), || {
        let server = serve();
        let endpoint = client(EndpointConfig::new());
        let session = endpoint.connect(server.local_addr()).expect("the server answers");
        let lab = LabClient::new(session.clone());
        let address = endpoint.local_route().expect("outside of the loop").socket_addr();
        let noise = UdpSocket::bind(ANY_PORT).expect("a socket");
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
fn a_server_at_all_addresses_is_reached_at_one_that_it_does_not_answer_from() {
    within(secs(30), || {
        let server = Server::builder()
            .add_service(LabService::default())
            .spawn("0.0.0.0:0")
            .expect("it starts");
        let port = server.local_addr().port();
        let endpoint = client(EndpointConfig::new());
        // The kernel answers from 127.0.0.1.
        let lab = LabClient::connect(&endpoint, SocketAddr::from(([127, 0, 0, 2], port)))
            .expect("it answers");
        counts(&endpoint, &lab, 7);
    });
}
