//! Which losses of a call were repaired, so that each loss is repaired once.

use crate::mutants::mutant;
use crate::protocol::stats::ResendCause;
use crate::time::Instant;
use crate::wire::Stamp;

/// What was sent again for a call, when, and why.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// A packet was sent twice: answers without a stamp give no RTT sample.
    retransmitted: bool,
    /// Why packets are sent again since the last roll-back.
    cause: ResendCause,
    /// Probes for which no answer has shown yet whether they were needed.
    undecided: u8,
    /// The last roll-back. Reset to `None` when a timeout sends a packet again, and when the
    /// response begins.
    rolled_back: Option<RollBack>,
    /// When the last timeout sent a packet again.
    probed_at: Instant,
}

/// A return to the first lost packet.
#[derive(Clone, Copy, Debug)]
struct RollBack {
    /// The number of that packet, in the request or in the response.
    to: u32,
    /// Packets with an earlier stamp were in flight before the roll-back.
    since: Instant,
    /// Roll-backs in a row to this packet.
    times: u8,
}

/// Cap of the roll-backs to the same packet, after which only a timeout sends it again. That many
/// losses are not chance: the path drops packets of this size.
const MOST_ROLL_BACKS: u8 = 4;

impl Recovery {
    pub(super) const NONE: Self = Self {
        retransmitted: false,
        cause: ResendCause::Gap,
        undecided: 0,
        rolled_back: None,
        probed_at: Instant::ZERO,
    };

    #[inline(always)]
    pub(super) fn was_retransmitted(&self) -> bool {
        self.retransmitted
    }

    pub(super) fn cause(&self) -> ResendCause {
        self.cause
    }

    /// A packet was sent again.
    pub(super) fn retransmitted(&mut self) {
        self.retransmitted = true;
    }

    /// The response has begun: from now on, packet numbers count the response's packets.
    pub(super) fn forget_roll_back(&mut self) {
        self.rolled_back = None;
    }

    /// The stamp of packets sent now.
    #[inline]
    pub(super) fn stamp_at(&self, now: Instant) -> Stamp {
        Stamp::at(self.rolled_back.map_or(now, |back| back.since.max(now)))
    }

    /// Whether to roll back to packet `lost`, because a packet behind it arrived with the stamp
    /// `echo`. True once per loss. True again if the arrived packet was sent after the last
    /// roll-back: then `lost` was lost again, and no timeout is needed to notice. This ends after
    /// [`MOST_ROLL_BACKS`] roll-backs to `lost`. A packet that was in flight before the last
    /// roll-back proves nothing, whichever packet that roll-back returned to.
    pub(super) fn is_news(&self, lost: u32, echo: Stamp, now: Instant) -> bool {
        /// In ns. Stamps wrap, so they are compared only with roll-backs more recent than this.
        const LONG_AGO: u64 = 1_000_000_000;
        match self.rolled_back {
            Some(back) if back.to == lost => {
                echo.is_since(back.since) && back.times < MOST_ROLL_BACKS
            }
            Some(back) if now.nanos_since(back.since) < LONG_AGO => {
                echo == Stamp::NONE || echo.is_since(back.since)
            }
            _ => true,
        }
    }

    /// As [`Self::is_news`], for a packet without a stamp behind the first one of a response: it was
    /// asked for before the response began. So it was in flight before any roll-back of the response.
    pub(super) fn is_news_of_early(&self) -> bool {
        self.rolled_back.is_none() || mutant!(EarlyPacketAlwaysNews)
    }

    /// Rolls back to packet `lost`, for this `cause`. Packets sent from now on carry a stamp that
    /// is 2 ns later (one step), to distinguish them from packets sent earlier in this turn.
    pub(super) fn roll_back(&mut self, lost: u32, now: Instant, cause: ResendCause) {
        let before = self.rolled_back.filter(|back| back.to == lost).map_or(0, |back| back.times);
        self.rolled_back =
            Some(RollBack { to: lost, since: now.plus_nanos(2), times: before.saturating_add(1) });
        self.cause = cause;
        self.retransmitted = true;
    }

    /// A timeout sends a packet again, to learn whether the peer is alive and has the call.
    pub(super) fn probe(&mut self, now: Instant) {
        self.inquire(now);
        self.undecided = self.undecided.saturating_add(1);
    }

    /// A packet is sent again although no probe is needed: the server is known to execute the call,
    /// or the packet is known to be lost.
    pub(super) fn inquire(&mut self, now: Instant) {
        self.rolled_back = None;
        self.probed_at = now;
        self.retransmitted = true;
    }

    /// Whether an answer after a timeout belongs to the packet that the timeout has sent, according
    /// to the stamp. If the answer belongs to an earlier packet, the timeout was too early, and
    /// nothing is lost.
    pub(super) fn answers_probe(&self, echo: Stamp) -> bool {
        echo == Stamp::NONE || echo.is_since(self.probed_at)
    }

    /// Whether the server had the request before a timeout sent it again, according to an answer
    /// that arrives now. By the server's clock, the server had the request for `served` ns (Eifel,
    /// RFC 3522).
    pub(super) fn was_there_before(&self, served: u64, now: Instant) -> bool {
        served > now.nanos_since(self.probed_at)
    }

    /// Whether it is still unknown if the last probes were needed.
    pub(super) fn is_undecided(&self) -> bool {
        self.undecided > 0
    }

    /// An answer shows whether the probes were needed. Returns the number of probes since the last
    /// such answer.
    pub(super) fn decide(&mut self) -> u8 {
        std::mem::take(&mut self.undecided)
    }
}
