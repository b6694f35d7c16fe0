//! A server of the lab, until its standard input ends: `lab_server ADDRESS THREADS`.
//!
//! Prints `LISTENING address`, and `EXECUTED id` before it answers a piece of work. Each line is
//! written immediately, so that it is not lost when the process is killed.

use std::io::Write;

use erpc::{EndpointConfig, Server};
use erpc_test_tools::limit::millis;
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::{LabService, loopback};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, threads] = &arguments[..] else { panic!("usage: lab_server ADDRESS THREADS") };
    let witness = |id| say(&format!("EXECUTED {id}"));
    let server = Server::builder()
        .add_service(LabService::new(witness))
        .threads(threads.parse().expect("a number of threads"))
        .udp(loopback())
        .config(EndpointConfig::new().ping_interval(millis(100)).liveness_timeout(millis(500)))
        .spawn(address)
        .expect("the server starts");
    end_with_input();
    say(&format!("LISTENING {}", server.local_addr()));
    server.wait().expect("the server does not fail");
}

/// Prints a line with one system call.
fn say(line: &str) {
    let written = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
    written.expect("the test reads the line");
}
