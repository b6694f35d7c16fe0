//! A server of the lab that ends gracefully with SIGTERM or SIGINT: `signal_server ADDRESS MILLIS`.
//! Calls that run when the signal arrives may take `MILLIS` milliseconds more.
//!
//! Prints `PROCESS id` before it serves, and `ENDED` at the end.

use std::io::Write;

use erpc::Server;
use erpc_test_tools::limit::millis;
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::{LabService, loopback};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, drain] = &arguments[..] else { panic!("usage: signal_server ADDRESS MILLIS") };
    let drain = millis(drain.parse().expect("a number of milliseconds"));
    end_with_input();
    say(&format!("PROCESS {}", std::process::id()));
    Server::builder()
        .add_service(LabService::default())
        .udp(loopback())
        .serve_until_signal(address, drain)
        .expect("the server does not fail");
    say("ENDED");
}

/// Prints a line with one system call.
fn say(line: &str) {
    let written = std::io::stdout().lock().write_all(format!("{line}\n").as_bytes());
    written.expect("the test reads the line");
}
