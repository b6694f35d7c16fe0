//! The end of a run: faults stop, calls end, sessions close. Then no buffer may be in use.

use erpc_core::protocol::{DropReason, KEPT_CAPACITY};
use erpc_core::time::Instant;

use super::{Event, Phase, World};
use crate::net::LinkId;
use crate::plan::path::{LOSSY, SERVER};
use crate::{Feature, Scenario};

/// Time for sessions to close, in ns, beyond the plan's bound. An endpoint that has lost its peer
/// notices this only after a timeout.
const LEAVING: u64 = 60_000_000_000;

/// The most bytes that a server keeps for a slot of an idle session: a small response, and half of
/// that again for headers and bookkeeping.
const MOST_KEPT: usize = KEPT_CAPACITY * 3 / 2;

/// The most packets that a session retransmits before congestion control limits it: all of its
/// credits in several successive round trips.
const MOST_LOST: u64 = 200;

impl World<'_> {
    /// Ends the faults. No new calls are made.
    pub(super) fn heal(&mut self) {
        self.tell(|| "all faults end, no new calls are made");
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

    /// Enters the next phase if the current phase is over. Returns false after the last phase.
    pub(super) fn next_phase(&mut self) -> bool {
        match self.phase {
            Phase::Faults => true,
            Phase::Draining { since, until } => {
                let (calls, streams) = (self.oracle.under_way(), self.oracle.streams_under_way());
                let now = self.driver.now();
                let everybody_is_there = self.nodes.iter().all(|node| node.rpc.is_some());
                if calls + streams == 0 && everybody_is_there {
                    self.tell(|| "all calls and streams have ended");
                    let (used, given) = (now.nanos_since(since), until.nanos_since(since));
                    self.bound_used = used.saturating_mul(1_000) / given.max(1);
                    // The phase `Resting` is long enough for clients to acknowledge their
                    // responses, even if an acknowledgement is lost once, and for servers to
                    // reclaim the shares of quiet clients. It is longer than the liveness timeout,
                    // so only pings keep the idle sessions alive.
                    let rest = self.plan.probes_every_nanos() * 32 * 4 + 2_000_000_000;
                    let until_rested = self.driver.now().plus_nanos(rest);
                    self.driver.schedule(until_rested, Event::Rested);
                    self.phase =
                        Phase::Resting { until: until_rested, leave_by: until.plus_nanos(rest) };
                } else if now > until {
                    let given = until.nanos_since(since);
                    self.oracle.blame_late(format!(
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
                    // For a server, replayed and late packets count as activity of their client. So
                    // the shares of quiet clients are checked only in runs without such packets.
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
                    let mut sessions =
                        self.nodes.iter().map(|node| node.rpc.as_ref().map(|rpc| rpc.sessions()));
                    let has_some = |sessions| !matches!(sessions, None | Some((0, 0)));
                    match sessions.position(has_some) {
                        Some(index) => self.oracle.blame_endpoint(index, "still has sessions"),
                        None => self.oracle.blame("a user still knows sessions that are gone"),
                    }
                    return false;
                }
                true
            }
        }
    }

    fn leave(&mut self, until: Instant) {
        self.tell(|| "all users close their sessions");
        self.phase = Phase::Leaving { until: until.plus_nanos(LEAVING) };
        for index in 0..self.nodes.len() {
            self.act(index, |party, cx, _, _| party.leave(cx));
        }
    }

    /// Checks that servers keep no large response that clients have received, and other rules of
    /// idle endpoints.
    fn check_idle(&mut self) {
        self.check_windows();
        self.check_quarantines();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(rpc) = &mut node.rpc else { continue };
            node.port.set_now(Instant::NEVER);
            rpc.ring_doorbell();
            let (_, accepted) = rpc.sessions();
            let slots = usize::from(self.plan.endpoints[index].slots);
            let (kept, most) = (rpc.stats().pool.in_use_bytes, accepted * slots * MOST_KEPT);
            if kept > most {
                self.oracle.blame_endpoint(
                    index,
                    format!(
                        "is idle with {accepted} sessions and keeps {kept} bytes, more than {most}"
                    ),
                );
            }
        }
    }

    /// Checks that congestion control has reacted to losses in many successive round trips.
    fn check_losses(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let now = node.clock.at(self.driver.now());
            let Some(rpc) = &mut node.rpc else { continue };
            let lost = node.party.lost_without_limit(&rpc.context_at(now));
            if lost.is_some_and(|lost| lost > MOST_LOST) {
                self.oracle.blame_endpoint(index, format!(
                    "has retransmitted {lost:?} packets, and congestion control does not limit it"
                ));
            }
        }
    }

    /// Checks that all streams have ended at both ends of every session. Only for runs in which
    /// sessions stay alive.
    fn check_streams(&mut self) {
        for (index, node) in self.nodes.iter().enumerate() {
            if let Some(rest) = node.party.stream_rest() {
                self.oracle.blame_endpoint(index, format!("is idle and has streams left: {rest}"));
            }
        }
    }

    /// Checks that every call that ended early in flight is answered by now, and its slot is free.
    fn check_quarantines(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let now = node.clock.at(self.driver.now());
            let Some(rpc) = &mut node.rpc else { continue };
            let left = node.party.quarantined(&rpc.context_at(now));
            if left > 0 {
                self.oracle
                    .blame_endpoint(index, format!("is idle and has {left} slots in quarantine"));
            }
            let stats = rpc.stats().protocol;
            let answered = stats.cancelled + stats.late_responses;
            let early = self.oracle.ended_early(index);
            // If handlers panic, a call may end early while its client pulls the failure. The call
            // is in `early`. But its slot is free without another answer, so it is not in
            // `answered`.
            let fails = self.plan.features.has(Feature::Panics);
            let (sent, perhaps) = node.party.streams_ended_early();
            if answered > early + sent + perhaps || answered < early + sent && !fails {
                self.oracle.blame_endpoint(
                    index,
                    format!("has ended {early} calls in flight, {answered} were answered"),
                );
            }
        }
    }

    /// Checks that clients know the windows that their servers grant them.
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
                    self.oracle.blame_endpoint(index, format!(
                        "is idle and knows a window of {known}, but servers at {} grant {granted:?}",
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

    /// Checks that nothing remains: no buffer is in use, and every packet is counted.
    fn check_rest(&mut self) {
        if let Some(what) = self.paths.as_ref().and_then(|paths| paths.check_queue()) {
            self.oracle.blame(what);
        }
        self.driver.network().check();
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(rpc) = &mut node.rpc else { continue };
            // The device has read all packets long ago. The doorbell releases their msgbufs.
            node.port.set_now(Instant::NEVER);
            rpc.ring_doorbell();
            self.oracle.set_acting(Some(index));
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
            // On a long path, a handshake or control message may arrive when the state of its
            // session has changed, for example because the session was closed. The endpoint drops
            // and counts the message, which is no fault.
            let late = protocol.dropped(DropReason::Handshake);
            let host = self.plan.endpoints[index].route.host;
            let is_smooth = match self.plan.scenario {
                Scenario::Calm => true,
                Scenario::Path => ![SERVER, LOSSY].contains(&host) && trouble > late,
                _ => false,
            };
            if is_smooth && self.plan.is_calm() && trouble > 0 {
                self.oracle.blame_endpoint(
                    index,
                    format!("the run has no faults, but the endpoint counts {protocol:?}"),
                );
            }
            // When hundreds of clients connect at the same time, their handshakes may overflow the
            // queue, because no credits limit the packets of handshakes.
            let is_crowded = !matches!(self.plan.scenario, Scenario::Calm | Scenario::Path);
            if stats.transport.rx_overflow > 0 && self.plan.is_calm() && !is_crowded {
                let what = "the receive queue overflows, although its clients have credits for it";
                self.oracle.blame_endpoint(index, what);
            }
            if stats.pool.in_use != 0 {
                let (count, bytes) = (stats.pool.in_use, stats.pool.in_use_bytes);
                self.oracle.blame_endpoint(
                    index,
                    format!("is at rest, but {count} msgbufs of {bytes} bytes are in use"),
                );
            }
            let streams = node.party.stream_memory();
            if streams.in_use != 0 || !node.party.has_no_streams() {
                self.oracle.blame_endpoint(
                    index,
                    format!(
                        "is at rest, but has streams, or {} msgbufs of streams",
                        streams.in_use
                    ),
                );
            }
            if stats.protocol.rx_packets != stats.transport.rx_packets {
                self.oracle.blame_endpoint(index, "lost count of the packets it received");
            }
        }
    }
}
