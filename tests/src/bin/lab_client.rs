//! `lab_client ADDRESS SESSIONS`: a client that opens sessions, makes one call on each and then
//! keeps them open.
//!
//! Prints `CONNECTED`, and runs until its standard input ends.

use erpc::{EndpointConfig, IdlePolicy};
use erpc_test_tools::limit::millis;
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::client;
use erpc_tests::proto::{CountReply, CountRequest, LocalLabClient};

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, sessions] = &arguments[..] else { panic!("usage: lab_client ADDRESS SESSIONS") };
    let sessions: u64 = sessions.parse().expect("a number of sessions");
    let endpoint =
        client(EndpointConfig::new().ping_interval(millis(100)).liveness_timeout(millis(500)));
    endpoint.set_idle_policy(IdlePolicy::Sleep);
    let open = |number| {
        let lab = LocalLabClient::connect(&endpoint, address).expect("the server answers");
        assert_eq!(
            endpoint.block_on(lab.count(CountRequest { number })),
            Ok(CountReply { number })
        );
        lab
    };
    let labs: Vec<LocalLabClient> = (0..sessions).map(open).collect();
    end_with_input();
    println!("CONNECTED");
    endpoint.run_until(|| labs.is_empty());
}
