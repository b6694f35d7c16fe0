//! How a run ends: the faults are over, calls end, sessions close, and nothing remains.

use erpc_core::protocol::{DropReason, KEPT_CAPACITY, WINDOW};
use erpc_core::time::Instant;

use super::{Event, Phase, World};
use crate::net::LinkId;
use crate::plan::path::{LOSSY, SERVER};
use crate::{Feature, Scenario};

/// How long sessions may take to close, in nanoseconds, beyond what the plan's bound says: an end that
/// has died is missed by the other one.
const LEAVING: u64 = 60_000_000_000;

/// What an idle session keeps at its server at most, in bytes: a small response per slot, and half of that
/// again for headers and bookkeeping.
const MOST_KEPT: usize = WINDOW * KEPT_CAPACITY * 3 / 2;

/// Packets that a session sends again before congestion control limits it, at most: all of its credits in some round trips one
/// after the other.
const MOST_LOST: u64 = 200;

impl World<'_> {
    /// The faults are over, and no new calls are made.
    pub(super) fn heal(&mut self) {
        self.check_all();
        for node in &mut self.nodes {
            self.faults += node.heal();
            node.party.retire();
            node.party.drop_hoard();
        }
        for link in 0..self.driver.network().links() {
            self.driver.resume_link(LinkId(link));
        }
        let (bytes, items, pauses) = self.oracle.stream_backlog();
        let bytes = self.oracle.backlog_bytes() + bytes;
        let bound = self.plan.bound_nanos(bytes, self.oracle.under_way() + items);
        let until = self.driver.now().plus_nanos(bound + pauses);
        self.phase = Phase::Draining { since: self.driver.now(), until };
    }

    /// Goes on to the next phase if this one is over; false when all are.
    pub(super) fn next_phase(&mut self) -> bool {
        match self.phase {
            Phase::Faults => true,
            Phase::Draining { since, until } => {
                let (calls, streams) = (self.oracle.under_way(), self.oracle.streams_under_way());
                let now = self.driver.now();
                let everybody_is_there = self.nodes.iter().all(|node| node.rpc.is_some());
                if calls + streams == 0 && everybody_is_there {
                    let (used, given) = (now.nanos_since(since), until.nanos_since(since));
                    self.bound_used = used.saturating_mul(1_000) / given.max(1);
                    // Long enough for what clients say of responses that they have, also if it is lost once,
                    // and longer than the liveness timeout: idle sessions live by their pings.
                    // Shares of who is quiet have been taken back by then, too.
                    let rest = self.plan.probes_every_nanos() * 32 * 4 + 2_000_000_000;
                    let until_rested = self.driver.now().plus_nanos(rest);
                    self.driver.schedule(until_rested, Event::Rested);
                    self.phase =
                        Phase::Resting { until: until_rested, leave_by: until.plus_nanos(rest) };
                } else if now > until {
                    let given = until.nanos_since(since);
                    self.oracle.blame(format!(
                        "{calls} calls and {streams} streams have not ended {given} ns after the last fault"
                    ));
                    return false;
                }
                true
            }
            Phase::Resting { until, leave_by } => {
                if self.driver.now() >= until {
                    if self.plan.spares_sessions() {
                        self.check_streams();
                    }
                    if self.plan.scenario == Scenario::Path {
                        self.check_losses();
                    } else if self.plan.spares_packets() {
                        self.check_idle();
                    }
                    // To a server, packets of the past that come now are use, too.
                    let late = [Feature::Replay, Feature::Spikes, Feature::Duplicates];
                    if !self.plan.features.has_any(&late) {
                        (0..self.nodes.len()).for_each(|index| self.check_quiet(index));
                    }
                    self.leave(leave_by);
                }
                true
            }
            Phase::Leaving { until } => {
                if self.is_empty() {
                    self.check_rest();
                    return false;
                }
                if self.driver.now() > until {
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
            self.act(index, |party, cx, _, _| party.leave(cx));
        }
    }

    /// Servers keep no large response once clients have it.
    fn check_idle(&mut self) {
        self.check_windows();
        self.check_quarantines();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(rpc) = &mut node.rpc else { continue };
            node.port.set_now(Instant::NEVER);
            rpc.ring_doorbell();
            let (_, accepted) = rpc.sessions();
            let (kept, most) = (rpc.stats().pool.in_use_bytes, accepted * MOST_KEPT);
            if kept > most {
                self.oracle.blame(format!(
                    "endpoint {index} is idle with {accepted} sessions and keeps {kept} bytes, more than {most}"
                ));
            }
        }
    }

    /// Congestion control has answered losses in many round trips one after the other.
    fn check_losses(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let now = node.clock.at(self.driver.now());
            let Some(rpc) = &mut node.rpc else { continue };
            let lost = node.party.lost_without_limit(&rpc.context_at(now));
            if lost.is_some_and(|lost| lost > MOST_LOST) {
                self.oracle.blame(format!(
                    "endpoint {index} has sent {lost:?} packets again, and nothing limits it"
                ));
            }
        }
    }

    /// What streams have begun, they have ended: at both ends of every session, all of which live.
    fn check_streams(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(rest) = node.party.stream_rest() {
                self.oracle.blame(format!("endpoint {index} is idle and has of streams {rest}"));
            }
        }
    }

    /// Every call that ended early on its way has been answered by now, and its slot is free.
    fn check_quarantines(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let now = node.clock.at(self.driver.now());
            let Some(rpc) = &mut node.rpc else { continue };
            let left = node.party.quarantined(&rpc.context_at(now));
            if left > 0 {
                self.oracle
                    .blame(format!("endpoint {index} is idle and has {left} slots in quarantine"));
            }
            let stats = rpc.stats().protocol;
            let answered = stats.cancelled + stats.late_responses;
            let early = self.oracle.ended_early(index);
            // A failure that is announced and not pulled yet ends a call early, and has been answered.
            let fails = self.plan.features.has(Feature::Panics);
            let (sent, perhaps) = node.party.streams_ended_early();
            if answered > early + sent + perhaps || answered < early + sent && !fails {
                self.oracle.blame(format!(
                    "endpoint {index} has ended {early} calls on their way, {answered} were answered"
                ));
            }
        }
    }

    /// Clients know what their servers grant them.
    fn check_windows(&mut self) {
        for index in 0..self.nodes.len() {
            let node = &mut self.nodes[index];
            let now = node.clock.at(self.driver.now());
            let client = self.plan.endpoints[index].route;
            let Some(rpc) = &mut node.rpc else { continue };
            for (server, known) in node.party.windows(&rpc.context_at(now)) {
                // Any endpoint of the host may have accepted the session.
                let granted: Vec<_> = (self.nodes.iter().zip(&self.plan.endpoints))
                    .filter(|(_, plan)| plan.route.host == server.host)
                    .filter_map(|(node, _)| node.rpc.as_ref()?.granted(&client))
                    .collect();
                if !granted.contains(&known) {
                    self.oracle.blame(format!(
                        "endpoint {index} is idle and believes in a window of {known}, servers at {} grant {granted:?}",
                        server.host
                    ));
                }
            }
        }
    }

    /// Whether no endpoint has a session.
    fn is_empty(&self) -> bool {
        let rests = |rpc: &erpc_core::event_loop::Rpc<_>| rpc.sessions() == (0, 0);
        self.nodes.iter().all(|node| node.rpc.as_ref().is_some_and(rests) && node.party.is_alone())
    }

    /// Nothing is left behind: no buffer in use, every packet accounted for.
    fn check_rest(&mut self) {
        if let Some(what) = self.paths.as_ref().and_then(|paths| paths.check_queue()) {
            self.oracle.blame(what);
        }
        self.driver.network().check();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(rpc) = &mut node.rpc else { continue };
            // The device has long read what it was given; the next doorbell lets go of it.
            node.port.set_now(Instant::NEVER);
            rpc.ring_doorbell();
            if let Some(what) = node.port.take_misuse() {
                self.oracle.blame(what);
            }
            rpc.check_invariants();
            let stats = rpc.stats();
            let protocol = &stats.protocol;
            let trouble = protocol.retransmissions.packets()
                + protocol.repeated_responses
                + protocol.inquiries
                + protocol.dropped_in_all()
                + stats.transport.rx_overflow;
            // On a long path, what is said of a session may come after its end.
            let late = protocol.dropped(DropReason::Handshake);
            let host = self.plan.endpoints[index].route.host;
            let is_smooth = match self.plan.scenario {
                Scenario::Calm => true,
                Scenario::Path => ![SERVER, LOSSY].contains(&host) && trouble > late,
                _ => false,
            };
            if is_smooth && self.plan.is_calm() && trouble > 0 {
                self.oracle
                    .blame(format!("nothing goes wrong, and endpoint {index} counts {protocol:?}"));
            }
            // Where hundreds of clients come at once, so do their first messages, which no credit covers.
            let is_crowded = !matches!(self.plan.scenario, Scenario::Calm | Scenario::Path);
            if stats.transport.rx_overflow > 0 && self.plan.is_calm() && !is_crowded {
                self.oracle.blame(format!(
                    "endpoint {index} was granted to clients, and its receive queue overflows"
                ));
            }
            if stats.pool.in_use != 0 {
                let (count, bytes) = (stats.pool.in_use, stats.pool.in_use_bytes);
                self.oracle.blame(format!(
                    "endpoint {index} is at rest and {count} msgbufs of {bytes} bytes are in use"
                ));
            }
            let streams = node.party.stream_memory();
            if streams.in_use != 0 || !node.party.has_no_streams() {
                self.oracle.blame(format!(
                    "endpoint {index} is at rest and has streams, or {} msgbufs of streams",
                    streams.in_use
                ));
            }
            if stats.protocol.rx_packets != stats.transport.rx_packets {
                self.oracle
                    .blame(format!("endpoint {index} lost count of the packets it received"));
            }
        }
    }
}
