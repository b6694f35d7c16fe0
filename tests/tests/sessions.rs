//! Many sessions, slow handlers, silent peers.

use std::cell::Cell;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::{
    CallError, Cause, Endpoint, EndpointConfig, NetworkError, Server, ServerBuilder, ServerHandle,
};
use erpc_test_tools::counting::{Account, Counting};
use erpc_test_tools::data::bytes_of;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::process::Process;
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::proto::*;
use erpc_tests::suite::Loopback;
use erpc_tests::suite::sessions::sessions_open_and_end;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Slots of a session.
const WINDOW: usize = 8;

fn builder() -> ServerBuilder {
    Server::builder().add_service(LabService::default()).udp(loopback())
}

fn serve(builder: ServerBuilder) -> ServerHandle {
    builder.spawn("127.0.0.1:0").expect("the server starts")
}

fn connect<'a>(endpoint: &'a Endpoint, server: &ServerHandle) -> (&'a Endpoint, LocalLabClient) {
    let session = endpoint.connect(server.local_addr()).expect("the server answers");
    (endpoint, LocalLabClient::new(session))
}

fn counts(endpoint: &Endpoint, lab: &LocalLabClient, number: u64) {
    assert_eq!(endpoint.block_on(lab.count(CountRequest { number })), Ok(CountReply { number }));
}

/// Runs `endpoint` until `done`, and fails if that takes longer than `limit`. Returns the elapsed
/// time.
#[track_caller]
fn wait_until(
    endpoint: &Endpoint,
    limit: Duration,
    what: &str,
    mut done: impl FnMut() -> bool,
) -> Duration {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < limit, "{what}: not within {limit:?}");
        endpoint.run_for(millis(5));
    }
    begun.elapsed()
}

#[test]
fn a_thousand_sessions_take_at_most_8_kib_each_per_side() {
    const SESSIONS: usize = 1_000;
    within(secs(60), || {
        let endpoint = || {
            let config = EndpointConfig::new().connect_timeout(secs(30));
            Endpoint::udp_with(&loopback(), config).expect("the endpoint opens")
        };
        let (server, client) = (endpoint(), endpoint());
        server.listen();
        assert!(server.serve(LabService::default().routes(), None));
        let address = server.local_route().expect("called outside of the loop");
        let (at_client, at_server) = (Account::new(0), Account::new(1));
        let turn = || {
            at_client.charge(|| client.run_once());
            at_server.charge(|| server.run_once());
        };

        let done = Rc::new(Cell::new(0));
        let mut labs = at_client.charge(|| Vec::with_capacity(SESSIONS));
        for _ in 0..SESSIONS {
            let session = at_client.charge(|| client.open(address));
            while !session.is_open() {
                turn();
            }
            at_client.charge(|| labs.push(LocalLabClient::new(session)));
        }
        let opened = (at_client.live_bytes(), at_server.live_bytes());
        for lab in &labs {
            for _ in 0..WINDOW {
                let done = Rc::clone(&done);
                let body = bytes_of(1, 32);
                at_client.charge(|| {
                    lab.echo_with(EchoRequest { body }, move |reply| {
                        assert_eq!(reply.map(|reply| reply.body.len()), Ok(32));
                        done.set(done.get() + 1);
                    });
                });
            }
        }
        while done.get() < SESSIONS * WINDOW {
            turn();
        }
        let quiet = Instant::now();
        while quiet.elapsed() < secs(1) {
            turn();
        }
        let stats = server.stats().expect("called outside of the loop");
        assert_eq!(
            (stats.server_sessions, stats.protocol.requests),
            (SESSIONS, (SESSIONS * WINDOW) as u64)
        );
        for (side, opened, account) in
            [("client", opened.0, &at_client), ("server", opened.1, &at_server)]
        {
            let (opened, used) =
                (opened as usize / SESSIONS, account.live_bytes() as usize / SESSIONS);
            eprintln!(
                "memory per session at the {side}: {opened} bytes after opening, {used} after all slots were used"
            );
            assert!(used <= 8 << 10, "{used} bytes per session at the {side}");
            assert!(opened > 100, "the allocator does not count");
        }
    });
}

#[test]
fn one_endpoint_opens_five_thousand_sessions() {
    within(secs(100), || sessions_open_and_end(&Loopback(loopback()), 5_000));
}

#[test]
fn a_call_of_three_seconds_costs_at_most_three_more_packets() {
    within(secs(30), || {
        let server = serve(builder().workers(1));
        let endpoint = client(EndpointConfig::new());
        let (endpoint, lab) = connect(&endpoint, &server);
        for number in 0..100 {
            counts(endpoint, &lab, number);
        }
        // Lets both sides send the last packets of the earlier calls.
        endpoint.run_for(millis(300));
        let packets = || {
            let stats = endpoint.stats().expect("called outside of the loop").transport;
            stats.tx_packets + stats.rx_packets
        };
        let (before, begun) = (packets(), Instant::now());
        assert_eq!(endpoint.block_on(lab.nap(NapRequest { millis: 3_000 })), Ok(NapReply {}));
        let took = begun.elapsed();
        let extra = packets() - before - 2;
        eprintln!("{extra} packets besides request and response, for a call of {took:?}");
        // The default ping interval is 3 s. A call that takes longer may be probed once, and the
        // server answers the probe.
        let allowed = if took > millis(3_004) { 5 } else { 3 };
        assert!(
            extra <= allowed,
            "{extra} packets besides request and response, for a call of {took:?}"
        );
    });
}

const SHORT: EndpointConfig =
    EndpointConfig::new().ping_interval(millis(100)).liveness_timeout(millis(500));

fn server_process() -> (Process, String) {
    let process = Process::start("server", env!("CARGO_BIN_EXE_lab_server"), &["127.0.0.1:0", "1"]);
    let address = process.expect("LISTENING");
    (process, address)
}

#[test]
fn sessions_to_a_silent_server_end() {
    within(secs(60), || {
        for (end, what) in [(Process::pause as fn(&Process), "paused"), (|_| {}, "killed")] {
            let (mut process, address) = server_process();
            let endpoint = client(SHORT);
            let connect = || endpoint.connect(&*address).expect("the server answers");
            let (busy, idle) = (connect(), connect());
            let busy_lab = LocalLabClient::new(busy.clone());
            let idle_lab = LocalLabClient::new(idle.clone());
            // Pings keep a quiet session alive for longer than the timeout.
            endpoint.run_for(millis(1_200));
            assert!(idle.is_open() && busy.is_open(), "a quiet session stays open");
            let waiting = busy_lab.r#await(AwaitRequest { key: 1 });
            endpoint.run_for(millis(1_200));
            assert!(!waiting.is_ready(), "a call waits for a slow handler");
            if what == "killed" {
                process.kill();
            } else {
                end(&process);
            }
            // The host of a killed server returns the next ping.
            let (cause, least) = match what {
                "killed" => (Cause::Unreachable(NetworkError::NothingListens), Duration::ZERO),
                _ => (Cause::PeerDead, millis(300)),
            };
            let begun = Instant::now();
            assert_eq!(endpoint.block_on(waiting), Err(CallError::MaybeExecuted(cause)), "{what}");
            let took = begun.elapsed();
            assert!(
                (least..secs(5)).contains(&took),
                "the call to the {what} server failed after {took:?}"
            );
            let what_idle = format!("the idle session to the {what} server ends");
            wait_until(&endpoint, secs(5), &what_idle, || !idle.is_open());
            let late = endpoint.block_on(idle_lab.count(CountRequest { number: 1 }));
            assert_eq!(late, Err(CallError::NotExecuted(cause)));
            if what == "paused" {
                // The resumed server still has the old sessions. New sessions work nevertheless.
                process.resume();
                let again = LocalLabClient::connect(&endpoint, &*address)
                    .expect("the server answers again");
                counts(&endpoint, &again, 2);
                drop((again, busy_lab, idle_lab, busy, idle, endpoint));
                process.finish();
            }
        }
    });
}

#[test]
fn a_server_forgets_silent_clients() {
    within(secs(60), || {
        let server = serve(builder().config(SHORT));
        let address = server.local_addr().to_string();
        let start = |name: &str| {
            let process = Process::start(name, env!("CARGO_BIN_EXE_lab_client"), &[&address, "5"]);
            assert_eq!(process.expect("CONNECTED"), "");
            process
        };
        let (mut killed, paused, alive) = (start("killed"), start("paused"), start("alive"));
        assert_eq!(server.stats().server_sessions, 15);
        let observer = client(EndpointConfig::new());
        observer.run_for(millis(1_500));
        assert_eq!(server.stats().server_sessions, 15, "the server keeps quiet clients");
        killed.kill();
        paused.pause();
        let took = wait_until(&observer, secs(10), "the server forgets silent clients", || {
            server.stats().server_sessions == 5
        });
        eprintln!("forgotten after {took:?}");
        observer.run_for(millis(500));
        assert_eq!(server.stats().server_sessions, 5, "the server keeps the live client");
        alive.finish();
    });
}
