//! Rules that must hold for an endpoint after every turn.

use erpc_core::buf::PoolStats;
use erpc_core::protocol::{DropReason, MAX_EXPIRED};
use erpc_core::wire::{ANNOUNCEMENT, Header, Kind};

use super::World;
use crate::node::Answers;
use crate::plan::MOST_CREDITS;
use crate::{Feature, Scenario, SimRoute, trace};

/// An endpoint with fewer than twice this many sessions is checked in full after every turn. With
/// more sessions it is checked more rarely, in proportion to the cost.
const CHECKED_ALWAYS: u64 = 3;
/// Reasons for which a packet is dropped before it affects the calls of a session.
const STRANGERS: [DropReason; 10] = [
    DropReason::LyingSize,
    DropReason::Truncated,
    DropReason::Version,
    DropReason::Flags,
    DropReason::Checksum,
    DropReason::Trailer,
    DropReason::Control,
    DropReason::UnknownConnection,
    DropReason::WrongRoute,
    DropReason::WrongRole,
];

impl World<'_> {
    /// Checks the rules that must hold after every turn.
    pub(super) fn check(&mut self, index: usize, received: usize) {
        let node = &mut self.nodes[index];
        if let Some(what) = node.port.take_misuse() {
            self.oracle.blame(what);
        }
        let Some(rpc) = &mut node.rpc else { return };
        let sent = node.port.pushed() as u64;
        let sessions = rpc.sessions();
        let now = node.clock.at(self.driver.now());
        if let Some(what) = node.timeout_budget.check(
            now,
            received,
            sessions.0,
            self.plan.probes_every_nanos(),
            || {
                let stats = rpc.stats().protocol;
                stats.retransmissions.probes + stats.inquiries
            },
        ) {
            self.oracle.blame(what);
        }
        let stats = rpc.stats();
        let (min_rto, peers) = (node.port.nic().min_rto.as_nanos() as u64, self.peers[index]);
        let probes = stats.protocol.retransmissions.probes;
        if let Some(what) = node.probe_budget.check(now, received, peers, min_rto, probes) {
            self.oracle.blame(what);
        }
        let memory = stats.pool.in_use_bytes + stats.pool.idle_bytes;
        let limit = self.plan.endpoints[index].config.memory();
        if memory > limit {
            self.oracle.blame(format!("has {memory} bytes of msgbufs, its limit is {limit}"));
        }
        if self.plan.has_streams() {
            let PoolStats { in_use_bytes, idle_bytes, .. } = node.party.stream_memory();
            let memory = in_use_bytes + idle_bytes;
            if memory > limit {
                self.oracle
                    .blame(format!("has {memory} bytes of streams' msgbufs, its limit is {limit}"));
            }
        }
        if node.forged > 0 && node.port.waiting() == 0 {
            let dropped = |reason: &DropReason| stats.protocol.dropped(*reason);
            let strangers: u64 = STRANGERS.iter().map(dropped).sum();
            if strangers < node.forged {
                self.oracle.blame(format!(
                    "was handed {} forged packets and dropped {strangers}",
                    node.forged
                ));
            }
        }
        // The cost grows with the number of sessions. So with many sessions, these checks run only
        // in one of `share` turns.
        let share = (sessions.0 + sessions.1) as u64 / CHECKED_ALWAYS;
        if node.turns.is_multiple_of(share.max(1)) {
            rpc.check_invariants();
            node.party.check(&rpc.context_at(now), self.plan, &mut self.oracle);
        }
        if self.plan.scenario == Scenario::Path {
            node.party.note_limits(&rpc.context_at(now));
        }
        // A received packet, a call or an answer of a stream causes at most about `credits`
        // packets. An expired timer causes at most 10.
        let causes = received as u64 + u64::from(node.party.handed_over());
        // A growing window releases calls of all sessions. All clients learn of a shrinking window.
        let credits = MOST_CREDITS.max(self.plan.endpoints[index].most_credits);
        let credits = u64::from(credits);
        let released = sessions.0 as u64 * credits + sessions.1 as u64;
        if sent > causes * (credits + 8) + released + MAX_EXPIRED as u64 * 10 {
            self.oracle.blame(format!("sends {sent} packets in a turn with {received} received"));
        }
    }

    /// A client that received `Accepted` releases the room that it had reserved for the response,
    /// so that other calls can use it. So the server must announce the response before it sends it.
    pub(super) fn check_announced(&mut self, from: SimRoute, to: SimRoute, header: &Header) {
        if !self.plan.features.has_any(&[Feature::SlowHandlers, Feature::Streams]) {
            return;
        }
        let place = (from, to, header.connection.to_u64(), header.request.to_u32());
        match header.kind {
            Kind::Accepted => {
                self.accepted.insert(place);
            }
            // The client pulls the response after this announcement.
            Kind::Response | Kind::Failure if header.packet.get() == ANNOUNCEMENT => {
                self.accepted.remove(&place);
            }
            // Only the first packet carries the size. An empty response needs no announcement.
            Kind::Response | Kind::Failure
                if (header.packet.get() > 0 || header.size > 0)
                    && self.accepted.contains(&place) =>
            {
                self.oracle.blame_at(
                    Some(trace::session(from, to, header)),
                    format!(
                        "the response to request {} was not announced, but its request was accepted",
                        header.request.to_u32()
                    ),
                );
            }
            _ => {}
        }
    }

    /// An endpoint that only serves never sends more session packets in its life than it was asked
    /// for.
    pub(super) fn check_answers(&mut self, index: usize) {
        let Answers { sent, asked_for } = self.nodes[index].answers;
        if sent > asked_for && self.plan.endpoints[index].servers.is_empty() {
            self.oracle
                .blame(format!("only serves, was asked for {asked_for} packets and sends {sent}"));
        }
    }

    /// Checks the rules that must hold for every endpoint at any time.
    pub(super) fn check_all(&mut self) {
        for (index, node) in self.nodes.iter_mut().enumerate() {
            let Some(rpc) = &mut node.rpc else { continue };
            self.oracle.set_acting(Some(index));
            rpc.check_invariants();
            let now = node.clock.at(self.driver.now());
            node.party.check(&rpc.context_at(now), self.plan, &mut self.oracle);
        }
    }
}
