//! Three processes with two endpoints each. Each endpoint is a server, and a client of all
//! endpoints. The test checks that there are no errors and no leaks, and that all sessions end.

use erpc_test_tools::limit::{secs, within};
use erpc_test_tools::process::Process;

const PROCESSES: usize = 3;
const ENDPOINTS: usize = 2;
const SECONDS: usize = 10;

#[test]
fn every_endpoint_calls_every_endpoint() {
    within(secs(90), || {
        let start = |n| {
            let arguments = [ENDPOINTS.to_string(), SECONDS.to_string()];
            Process::start(
                &format!("process {n}"),
                env!("CARGO_BIN_EXE_mesh_node"),
                &[&arguments[0], &arguments[1]],
            )
        };
        let mut mesh: Vec<Process> = (0..PROCESSES).map(start).collect();
        let addresses: Vec<String> = mesh
            .iter()
            .flat_map(|process| (0..ENDPOINTS).map(|_| process.expect("ENDPOINT")))
            .collect();
        let addresses = addresses.join(" ");
        mesh.iter_mut().for_each(|process| process.say(&addresses));
        for process in &mut mesh {
            let calls: u64 = process.expect("DONE").parse().expect("a number of calls");
            eprintln!("{calls} calls");
            assert!(calls > 1_000, "a process made only {calls} calls");
        }
        // No endpoint makes calls any more.
        mesh.iter_mut().for_each(|process| process.say("DISCONNECT"));
        for process in &mesh {
            for _ in 0..ENDPOINTS {
                eprintln!("{}", process.expect("GONE"));
            }
        }
        mesh.into_iter().for_each(Process::finish);
    });
}
