//! Which losses of a call were repaired, so that each is repaired once.

use crate::protocol::stats::ResendCause;
use crate::time::Instant;
use crate::wire::Stamp;

/// What was sent again of a call, and when.
#[derive(Clone, Copy, Debug)]
pub(super) struct Recovery {
    /// A packet went out twice: no RTT samples.
    retransmitted: bool,
    /// Why the packets go out again that follow the last return.
    cause: ResendCause,
    /// Probes of which no answer has told whether they were needed.
    undecided: u8,
    /// The last roll-back for a gap.
    rolled_back: Option<RollBack>,
    /// When the last timeout sent a packet again.
    probed_at: Instant,
}

/// A return to the first packet that was lost.
#[derive(Clone, Copy, Debug)]
struct RollBack {
    /// That packet, of the request or of the response.
    to: u32,
    /// What is stamped earlier was on its way before.
    since: Instant,
    /// How often, one after the other.
    times: u8,
}

/// Roll-backs to the same packet before only a timeout sends it again: by then it is not chance that loses it, but
/// a path that swallows packets of its size.
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

    /// Why the packets go out again that follow the last return.
    pub(super) fn cause(&self) -> ResendCause {
        self.cause
    }

    /// A packet was sent again.
    pub(super) fn retransmitted(&mut self) {
        self.retransmitted = true;
    }

    /// Packets are numbered anew: those of the response follow.
    pub(super) fn forget_roll_back(&mut self) {
        self.rolled_back = None;
    }

    /// The stamp of what is sent now.
    #[inline]
    pub(super) fn stamp_at(&self, now: Instant) -> Stamp {
        Stamp::at(self.rolled_back.map_or(now, |back| back.since.max(now)))
    }

    /// Whether packet `lost` has to be sent from, or asked for from, once more, since a packet behind it has
    /// come whose stamp is `echo`: once, unless that packet has followed the last time. Then `lost` was lost
    /// again, and no timeout is needed to see it. Of another packet, too, what was on its way before the last return
    /// says nothing.
    pub(super) fn is_news(&self, lost: u32, echo: Stamp, now: Instant) -> bool {
        /// Stamps are compared with times that are not longer ago, in nanoseconds.
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

    /// Goes back to packet `lost`, for this `cause`. A stamp of the next tick tells what is sent from now on from what was sent
    /// earlier in this turn.
    pub(super) fn roll_back(&mut self, lost: u32, now: Instant, cause: ResendCause) {
        let before = self.rolled_back.filter(|back| back.to == lost).map_or(0, |back| back.times);
        self.rolled_back =
            Some(RollBack { to: lost, since: now.plus_nanos(2), times: before.saturating_add(1) });
        self.cause = cause;
        self.retransmitted = true;
    }

    /// A timeout sends a packet again, to find out whether peer and call are there.
    pub(super) fn probe(&mut self, now: Instant) {
        self.inquire(now);
        self.undecided = self.undecided.saturating_add(1);
    }

    /// A packet goes out again of a call that the server is known to execute, or whose packet is known to be lost.
    pub(super) fn inquire(&mut self, now: Instant) {
        self.rolled_back = None;
        self.probed_at = now;
        self.retransmitted = true;
    }

    /// Whether what has come after a timeout is an answer to the packet that the timeout has sent, as far as the
    /// stamp tells. If it answers an earlier packet, the timeout was too early, and nothing is lost.
    pub(super) fn answers_probe(&self, echo: Stamp) -> bool {
        echo == Stamp::NONE || echo.is_since(self.probed_at)
    }

    /// Whether the server has had for `served` nanoseconds the request that it answers now: since before a timeout sent
    /// it again (Eifel, RFC 3522, by the server's clock).
    pub(super) fn was_there_before(&self, served: u64, now: Instant) -> bool {
        served > now.nanos_since(self.probed_at)
    }

    /// Whether an answer has yet to tell if probes were needed.
    pub(super) fn is_undecided(&self) -> bool {
        self.undecided > 0
    }

    /// An answer tells whether the probes since the last such answer were needed. Returns how many they are.
    pub(super) fn decide(&mut self) -> u8 {
        std::mem::take(&mut self.undecided)
    }
}
