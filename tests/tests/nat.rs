//! A client behind a network address translator (NAT). The client, the NAT and the server are in
//! different network namespaces or threads, so the kernel's UDP sees the packets and ICMP messages
//! that the NAT has rewritten.
//!
//! The tests need root, iproute2 and TUN devices. Without them, they print the reason and are
//! skipped; if `CI_FULL` is 1, they fail instead.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::{Duration, Instant};

use erpc::{
    CallError, Cause, Channel, ConnectFailed, Endpoint, EndpointConfig, IdlePolicy, NetworkError,
    Server, ServerHandle,
};
use erpc_test_tools::data::bytes_of;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::nat::Nat;
use erpc_test_tools::netns::{Namespace, skip_unsupported};
use erpc_test_tools::process::Process;
use erpc_test_tools::tun;
use erpc_tests::lab::{LabService, loopback};
use erpc_tests::proto::*;

/// Reserved addresses: TEST-NET-2 inside, TEST-NET-1 outside.
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
const NAT: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
const SERVER: &str = "192.0.2.2:7000";

/// Delay from the NAT to the server, and back. Longer than most pauses of a thread on a machine with
/// other load.
const DELAY: Duration = millis(20);
const ROUND_TRIP: Duration = millis(40);

/// Time in which a client notices that a server was killed: a packet is refused, then a ping, and the
/// ping's timeout passes. The timeout is several round trips. Without the ICMP messages, a client
/// needs 10 s for a session and 2 s to connect.
const NOTICED: Duration = millis(400);

/// Other load of the machine may delay an attempt. It does not delay the best of several.
const ATTEMPTS: usize = 5;

/// A client's namespace and a server's, and a NAT between them.
struct Net {
    nat: Nat,
    client: Namespace,
    server: Namespace,
}

impl Net {
    fn new() -> Result<Self, String> {
        let (client, server) = (Namespace::new("inside")?, Namespace::new("outside")?);
        let inside = tun::attach(&client, "erpc0", CLIENT, 1_500)?;
        let address = SERVER.parse::<SocketAddr>().expect("an address");
        let SocketAddr::V4(address) = address else { unreachable!("it is an IPv4 address") };
        let outside = tun::attach(&server, "erpc0", *address.ip(), 1_500)?;
        // Per address, the kernel sends one message per second after a burst of six. The attempts of a
        // test need more. On a loopback interface there is no limit.
        let unlimited = || fs::write("/proc/sys/net/ipv4/icmp_ratelimit", "0");
        server.within(unlimited).map_err(|error| format!("ICMP stays limited: {error}"))?;
        Ok(Self { nat: Nat::start(inside, outside, NAT, DELAY), client, server })
    }

    /// Serves in this process.
    fn serve(&self) -> ServerHandle {
        self.server.within(|| {
            let server =
                Server::builder().add_service(LabService::default()).udp(loopback()).threads(2);
            server.spawn(SERVER).expect("the server starts")
        })
    }

    /// Serves in another process, which can be killed.
    fn start(&self) -> Process {
        let server = env!("CARGO_BIN_EXE_lab_server");
        let arguments = ["netns", "exec", self.server.name(), server, SERVER, "2"];
        let process = Process::start("server", "ip", &arguments);
        let _address = process.expect_address("LISTENING");
        process
    }

    /// A client endpoint. The calling thread must be in the client's namespace.
    fn endpoint(config: EndpointConfig) -> Endpoint {
        let udp = loopback().address("0.0.0.0:0".parse().expect("an address"));
        let endpoint = Endpoint::udp_with(&udp, config).expect("the client endpoint opens");
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        endpoint
    }
}

/// Runs `body` on a thread in the client's namespace.
fn behind_a_nat(test: &str, body: impl FnOnce(&Net) + Send + 'static) {
    match Net::new() {
        Ok(net) => within(secs(20), move || net.client.within(|| body(&net))),
        Err(reason) => skip_unsupported(test, &reason),
    }
}

fn connect(endpoint: &Endpoint) -> Result<LocalLabClient, ConnectFailed> {
    LocalLabClient::connect(endpoint, SERVER)
}

fn count(endpoint: &Endpoint, lab: &LocalLabClient, number: u64) -> Result<(), CallError> {
    let reply = endpoint.block_on(lab.count(CountRequest { number }))?;
    assert_eq!(reply, CountReply { number });
    Ok(())
}

/// Asserts that the best attempt took less than `limit`.
#[track_caller]
fn quick(times: &[Duration], limit: Duration) {
    let best = times.iter().min().expect("there were attempts");
    assert!(*best < limit, "the best attempt took {best:?}: {times:?}");
    assert!(times.iter().all(|time| *time < secs(1)), "{times:?}");
}

#[test]
fn sessions_work_through_a_nat() {
    behind_a_nat("sessions_work_through_a_nat", |net| {
        let server = net.serve();
        let endpoints = [(); 3].map(|()| Net::endpoint(EndpointConfig::new()));
        let labs = endpoints.each_ref().map(|endpoint| connect(endpoint).expect("it listens"));
        for (round, len) in [0, 1, 1_400, 1_500, 20_000, 300_000].into_iter().enumerate() {
            for (endpoint, lab) in endpoints.iter().zip(&labs) {
                let body = bytes_of(round as u64, len);
                let reply = endpoint.block_on(lab.echo(EchoRequest { body: body.clone() }));
                assert!(reply.is_ok_and(|reply| reply.body == body), "{len} bytes");
            }
        }
        let counts = net.nat.counts();
        assert_eq!((counts.mapped, counts.unexpected), (3, 0), "{counts:?}");
        assert!(counts.translated > 1_000, "{counts:?}");
        assert_eq!(server.stats().server_sessions, 3);
    });
}

#[test]
fn a_session_whose_port_the_nat_changes_ends_within_two_round_trips_and_a_new_one_opens() {
    let test =
        "a_session_whose_port_the_nat_changes_ends_within_two_round_trips_and_a_new_one_opens";
    behind_a_nat(test, |net| {
        let server = net.serve();
        let endpoint = Net::endpoint(EndpointConfig::new());
        let address = SERVER.parse::<SocketAddr>().expect("an address");
        let channel = Channel::to(&endpoint, vec![address.into()]).build();
        let lab = LocalLabClient::new(channel);
        let (mut ends, mut reconnects) = (Vec::new(), Vec::new());
        for attempt in 0..ATTEMPTS as u64 {
            // Long enough that the channel reopens the session without a pause.
            endpoint.run_for(millis(60));
            count(&endpoint, &lab, 3 * attempt).expect("the session works");
            let requests = server.stats().protocol.requests;
            net.nat.forget();

            let begun = Instant::now();
            let error = count(&endpoint, &lab, 3 * attempt + 1).expect_err("the session ends");
            ends.push(begun.elapsed());
            assert_eq!(error, CallError::MaybeExecuted(Cause::AddressChanged));
            let text = error.to_string();
            assert!(text.contains("a NAT") && text.contains("reconnect"), "{text}");
            assert_eq!(server.stats().protocol.requests, requests, "the call was executed");

            let begun = Instant::now();
            count(&endpoint, &lab, 3 * attempt + 2).expect("the channel has reconnected");
            reconnects.push(begun.elapsed());
        }
        quick(&ends, 2 * ROUND_TRIP);
        // A handshake with a cookie, and the call.
        quick(&reconnects, 4 * ROUND_TRIP);
        assert_eq!(net.nat.counts().mapped, 1 + ATTEMPTS as u64);
    });
}

#[test]
fn an_idle_channel_notices_the_new_port_by_a_ping_and_its_next_call_succeeds() {
    let test = "an_idle_channel_notices_the_new_port_by_a_ping_and_its_next_call_succeeds";
    behind_a_nat(test, |net| {
        let server = net.serve();
        let endpoint = Net::endpoint(EndpointConfig::new().ping_interval(millis(100)));
        let address = SERVER.parse::<SocketAddr>().expect("an address");
        let channel = Channel::to(&endpoint, vec![address.into()]).build();
        let lab = LocalLabClient::new(channel);
        count(&endpoint, &lab, 1).expect("the session works");
        net.nat.forget();
        let begun = Instant::now();
        // The server sees a second session when the channel has reconnected.
        while server.stats().server_sessions < 2 {
            assert!(begun.elapsed() < secs(5), "the channel has not noticed the new port");
            endpoint.run_for(millis(1));
        }
        count(&endpoint, &lab, 2).expect("the new session works");
    });
}

#[test]
fn a_killed_server_is_noticed_by_the_icmp_message_that_the_nat_translates() {
    let test = "a_killed_server_is_noticed_by_the_icmp_message_that_the_nat_translates";
    behind_a_nat(test, |net| {
        let (mut ends, mut connects) = (Vec::new(), Vec::new());
        for _ in 0..ATTEMPTS {
            let mut server = net.start();
            let endpoint = Net::endpoint(EndpointConfig::new());
            let lab = connect(&endpoint).expect("it listens");
            count(&endpoint, &lab, 1).expect("the session works");
            server.kill();
            let begun = Instant::now();
            let error = count(&endpoint, &lab, 2).expect_err("the server is dead");
            ends.push(begun.elapsed());
            let reason = Cause::Unreachable(NetworkError::NothingListens);
            assert_eq!(error, CallError::MaybeExecuted(reason));

            let begun = Instant::now();
            let error = connect(&endpoint).expect_err("the server is dead");
            connects.push(begun.elapsed());
            assert!(error.to_string().contains("connection refused"), "{error}");
        }
        quick(&ends, NOTICED);
        quick(&connects, NOTICED);
        assert!(net.nat.counts().messages >= 2 * ATTEMPTS as u64, "{:?}", net.nat.counts());
    });
}
