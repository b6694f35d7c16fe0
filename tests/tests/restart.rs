//! The server is killed while it works and restarts at the same address. Every call ends once, and
//! its outcome tells correctly whether it was executed.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::{Cause, ConnectFailure, Endpoint, EndpointConfig, NetworkError};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::process::Process;
use erpc_tests::lab::client;
use erpc_tests::load::{Ending, Lengths, Load, judge};
use erpc_tests::proto::LocalLabClient;

const LIVENESS: Duration = millis(500);

fn config() -> EndpointConfig {
    EndpointConfig::new()
        .ping_interval(millis(100))
        .liveness_timeout(LIVENESS)
        .connect_timeout(secs(2))
}

fn start(address: &str) -> (Process, SocketAddr) {
    let process = Process::start("server", env!("CARGO_BIN_EXE_lab_server"), &[address, "2"]);
    let address = process.expect_address("LISTENING");
    (process, address)
}

/// The pieces of work that a killed server has executed.
fn executed(server: &mut Process) -> Vec<u64> {
    let number = |line: String| {
        let id =
            line.strip_prefix("EXECUTED ").unwrap_or_else(|| panic!("the server printed: {line}"));
        id.parse().unwrap_or_else(|_| panic!("the server printed: {line}"))
    };
    // No line is cut, because writes of such short lines to a pipe are atomic.
    server.rest().into_iter().map(number).collect()
}

/// Some messages need several packets, so that kills hit all phases of a call.
const LENGTHS: Lengths = &[(16, 500), (3, 100_000), (1, 1 << 20)];

/// Opens sessions and starts calls on them.
fn begin(load: &Rc<Load>, endpoint: &Endpoint, server: SocketAddr) {
    Load::start(load, || LocalLabClient::connect(endpoint, server).expect("a new session opens"));
}

/// Compares the outcomes at the client with the executions at the servers.
fn check(load: &Load, executed: &[u64]) -> HashMap<Ending, usize> {
    let counts = judge(executed, &load.endings());
    eprintln!("{counts:?}");
    counts
}

#[test]
fn call_outcomes_are_true_when_a_server_restarts_immediately() {
    within(secs(100), || {
        let endpoint = client(config());
        let load = Load::new(LENGTHS);
        let (mut server, address) = start("127.0.0.1:0");
        let mut did = Vec::new();
        for round in 1..=5 {
            begin(&load, &endpoint, address);
            load.run(&endpoint, 300 + round * 37);
            server.kill();
            did.extend(executed(&mut server));
            // Until the server runs again, the client still sends to the address.
            server = start(&address.to_string()).0;
            let begun = Instant::now();
            load.drain(&endpoint, secs(10));
            eprintln!("round {round}: all calls ended {:?} after the restart", begun.elapsed());
        }
        begin(&load, &endpoint, address);
        load.run(&endpoint, 300);
        load.drain(&endpoint, secs(10));
        server.kill();
        did.extend(executed(&mut server));
        let counts = check(&load, &did);
        assert!(counts.contains_key(&Ending::MaybeExecuted), "kills hit calls in flight");
        assert!(counts.contains_key(&Ending::NotExecuted), "kills hit calls that waited");
    });
}

#[test]
fn call_outcomes_are_true_when_a_server_stays_down() {
    within(secs(60), || {
        let endpoint = client(config());
        let load = Load::new(LENGTHS);
        let (mut server, address) = start("127.0.0.1:0");
        begin(&load, &endpoint, address);
        load.run(&endpoint, 300);
        server.kill();
        let begun = Instant::now();
        load.drain(&endpoint, LIVENESS * 20);
        eprintln!("all calls ended {:?} after the kill", begun.elapsed());
        let dead = [None, Some(Cause::Unreachable(NetworkError::NothingListens))];
        assert!(load.outcomes().values().all(|outcome| dead.contains(&outcome.cause())));

        // No server listens. So `connect` fails, at the latest after its timeout.
        let quick = client(config().connect_timeout(millis(300)));
        let error = LocalLabClient::connect(&quick, address).expect_err("no server listens");
        assert!(matches!(error.reason(), ConnectFailure::Handshake(_)), "{error}");
        assert_eq!(error.address(), address.to_string());

        // A new server listens, and the old client continues with new sessions.
        let mut did = executed(&mut server);
        let (mut server, _) = start(&address.to_string());
        begin(&load, &endpoint, address);
        load.run(&endpoint, 300);
        load.drain(&endpoint, secs(10));
        server.kill();
        did.extend(executed(&mut server));
        check(&load, &did);
    });
}
