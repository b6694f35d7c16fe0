//! How a run ends: the faults are over, calls end, sessions close, and nothing remains.

use erpc_core::time::Instant;

use super::{Phase, World};
use crate::net::LinkId;

/// How long sessions may take to close, in nanoseconds, beyond what the plan's bound says: an end that
/// has died is missed by the other one.
const LEAVING: u64 = 60_000_000_000;

impl World<'_> {
    /// The faults are over, and no new calls are made.
    pub(super) fn heal(&mut self) {
        for node in &mut self.nodes {
            self.faults += node.heal();
            node.party.retire();
            node.party.drop_hoard();
        }
        for link in 0..self.network.links() {
            self.network.resume_link(self.now, LinkId(link));
        }
        let queued = self.oracle.under_way();
        let bound = self.plan.bound_nanos(self.oracle.backlog_bytes(), queued);
        let until = self.now.plus_nanos(bound);
        self.phase = Phase::Draining { since: self.now, until };
    }

    /// Goes on to the next phase if this one is over; false when all are.
    pub(super) fn next_phase(&mut self) -> bool {
        match self.phase {
            Phase::Faults => true,
            Phase::Draining { since, until } => {
                let (left, now) = (self.oracle.under_way(), self.now);
                let everybody_is_there = self.nodes.iter().all(|node| node.rpc.is_some());
                if left == 0 && everybody_is_there {
                    let (used, given) = (now.nanos_since(since), until.nanos_since(since));
                    self.bound_used = used.saturating_mul(1_000) / given.max(1);
                    self.leave(until);
                } else if now > until {
                    let given = until.nanos_since(since);
                    self.oracle.blame(format!(
                        "{left} calls have not ended {given} ns after the last fault"
                    ));
                    return false;
                }
                true
            }
            Phase::Leaving { until } => {
                if self.is_empty() {
                    self.check_rest();
                    return false;
                }
                if self.now > until {
                    let sessions: Vec<_> = self
                        .nodes
                        .iter()
                        .filter_map(|node| Some(node.rpc.as_ref()?.sessions()))
                        .collect();
                    self.oracle.blame(format!("sessions remain (opened, accepted): {sessions:?}"));
                    return false;
                }
                true
            }
        }
    }

    fn leave(&mut self, until: Instant) {
        self.phase = Phase::Leaving { until: until.plus_nanos(LEAVING) };
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let now = node.clock.at(self.now);
            if let Some(rpc) = &mut node.rpc {
                node.party.leave(&mut rpc.context_at(now));
                self.between_turns(index);
            }
        }
    }

    /// Whether no endpoint has a session.
    fn is_empty(&self) -> bool {
        let rests = |rpc: &erpc_core::runtime::Rpc<_>| rpc.sessions() == (0, 0);
        self.nodes.iter().all(|node| node.rpc.as_ref().is_some_and(rests) && node.party.is_alone())
    }

    /// Nothing is left behind: no buffer in use, every packet accounted for.
    fn check_rest(&mut self) {
        self.network.check();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(rpc) = &mut node.rpc else { continue };
            // The device has long read what it was given; the next doorbell lets go of it.
            node.port.set_now(Instant::NEVER);
            rpc.ring_doorbell();
            rpc.check_invariants();
            let stats = rpc.stats();
            if stats.pool.in_use != 0 {
                let (count, bytes) = (stats.pool.in_use, stats.pool.in_use_bytes);
                self.oracle.blame(format!(
                    "endpoint {index} is at rest and {count} msgbufs of {bytes} bytes are in use"
                ));
            }
            if stats.protocol.rx_packets != stats.transport.rx_packets {
                self.oracle
                    .blame(format!("endpoint {index} lost count of the packets it received"));
            }
        }
    }
}
