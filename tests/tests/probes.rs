//! Loopback loses no packets. Over loopback, a client retransmits only because a loop stalled.
//!
//! Other work on the machine may stall a loop for any time, and the test allows for that: each
//! stall of either loop that is longer than the floor of the timeout explains one probe of the only
//! client.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use erpc::{Endpoint, IdlePolicy, Server};
use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::{LabService, work};
use erpc_tests::proto::*;

const CALLS: u64 = 60_000;
/// Probes allowed without a counted stall: two stalls that are shorter than the floor may together
/// be longer than the floor.
const UNEXPLAINED: u64 = 4;

/// Makes [`CALLS`] calls with `outstanding` in flight, and waits until all are answered.
fn call_all(endpoint: &Endpoint, server: SocketAddr, outstanding: u64) {
    /// State that all calls share.
    struct Loop {
        labs: Vec<LocalLabClient>,
        made: Cell<u64>,
        answered: Cell<u64>,
    }

    fn call(shared: &Rc<Loop>) {
        let id = shared.made.replace(shared.made.get() + 1);
        let (request, expected) = work(id, 32, 32);
        let next = Rc::clone(shared);
        shared.labs[id as usize % shared.labs.len()].work_with(request, move |reply| {
            assert!(reply.is_ok_and(|reply| reply == expected), "call {id} has a wrong answer");
            next.answered.set(next.answered.get() + 1);
            if next.made.get() < CALLS {
                call(&next);
            }
        });
    }

    let connect = |_| LocalLabClient::new(endpoint.connect(server).expect("the server answers"));
    let labs = (0..outstanding.div_ceil(8)).map(connect).collect();
    let shared = Rc::new(Loop { labs, made: Cell::new(0), answered: Cell::new(0) });
    (0..outstanding).for_each(|_| call(&shared));
    endpoint.run_until(|| shared.answered.get() == CALLS);
}

#[test]
fn stalls_of_loops_explain_all_probes_and_no_packet_is_declared_lost() {
    for outstanding in [64, 1_024] {
        within(secs(60), move || {
            let server = Server::builder()
                .add_service(LabService::default())
                .idle(IdlePolicy::Spin)
                .spawn("127.0.0.1:0")
                .expect("the server starts");
            let endpoint = Endpoint::udp().expect("the client endpoint opens");
            endpoint.set_idle_policy(IdlePolicy::Spin);
            call_all(&endpoint, server.local_addr(), outstanding);
            let (stats, served) =
                (endpoint.stats().expect("called outside of the loop"), server.stats());
            let overflows = stats.transport.rx_overflow + served.transport.rx_overflow;
            assert_eq!(overflows, 0, "lost packets would be retransmitted");
            let gaps = stats.loop_gaps.count + served.loop_gaps.count;
            let counts = stats.protocol.retransmissions;
            eprintln!("{outstanding} outstanding: {counts:?}, loops stalled {gaps} times");
            assert!(counts.shown_lost() <= UNEXPLAINED, "{counts:?}");
            assert!(counts.probes <= gaps + UNEXPLAINED, "{counts:?}, loops stalled {gaps} times");
        });
    }
}
