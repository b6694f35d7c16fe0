//! A loopback loses nothing: what clients send again over it, they send because a loop was away.
//!
//! Other work on the machine may keep a loop from its core for as long as it likes, which these tests allow for: each time
//! that a loop of either side was away for longer than the floor of the timeout allows one probe of the one client.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;

use erpc::{Endpoint, IdlePolicy, Server};
use erpc_test_tools::limit::{secs, within};
use erpc_tests::lab::{LabService, work};
use erpc_tests::proto::*;

const CALLS: u64 = 60_000;
/// Two absences that are shorter than the floor may add up to more.
const UNEXPLAINED: u64 = 4;

/// Keeps `outstanding` calls under way until all are answered.
fn call_all(endpoint: &Endpoint, server: SocketAddr, outstanding: u64) {
    /// What the calls under way share.
    struct Loop {
        labs: Vec<LabClient>,
        made: Cell<u64>,
        answered: Cell<u64>,
    }

    fn call(shared: &Rc<Loop>) {
        let id = shared.made.replace(shared.made.get() + 1);
        let (request, expected) = work(id, 32, 32);
        let next = Rc::clone(shared);
        shared.labs[id as usize % shared.labs.len()].work_with(request, move |reply| {
            assert!(reply.is_ok_and(|reply| reply == expected), "call {id} brings other bytes");
            next.answered.set(next.answered.get() + 1);
            if next.made.get() < CALLS {
                call(&next);
            }
        });
    }

    let connect = |_| LabClient::new(endpoint.connect(server).expect("the server answers"));
    let labs = (0..outstanding.div_ceil(8)).map(connect).collect();
    let shared = Rc::new(Loop { labs, made: Cell::new(0), answered: Cell::new(0) });
    (0..outstanding).for_each(|_| call(&shared));
    endpoint.run_until(|| shared.answered.get() == CALLS);
}

#[test]
fn each_probe_has_a_loop_that_was_away_and_no_packet_is_taken_for_lost() {
    for outstanding in [64, 1_024] {
        within(secs(60), move || {
            let server = Server::builder()
                .add_service(LabService::default())
                .idle(IdlePolicy::Spin)
                .spawn("127.0.0.1:0")
                .expect("it starts");
            let endpoint = Endpoint::udp().expect("a client endpoint");
            endpoint.set_idle_policy(IdlePolicy::Spin);
            call_all(&endpoint, server.local_addr(), outstanding);
            let (stats, served) = (endpoint.stats().expect("outside of the loop"), server.stats());
            let overflows = stats.transport.rx_overflow + served.transport.rx_overflow;
            assert_eq!(overflows, 0, "what is lost is sent again, of course");
            let gaps = stats.loop_gaps.count + served.loop_gaps.count;
            let counts = stats.protocol.retransmissions;
            eprintln!("{outstanding} outstanding: {counts:?}, loops away {gaps} times");
            assert!(counts.shown_lost() <= UNEXPLAINED, "{counts:?}");
            assert!(counts.probes <= gaps + UNEXPLAINED, "{counts:?}, loops away {gaps} times");
        });
    }
}
