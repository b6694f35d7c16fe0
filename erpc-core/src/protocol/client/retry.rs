//! When an answer is overdue.

use std::time::Duration;

use crate::mutants::mutant;
use crate::time::Instant;

/// Timeouts of a call without progress after which the peer is also asked whether it still knows the
/// session: if it restarted, it says so at once.
pub(super) const PING_AFTER_RETRIES: u8 = 2;

/// Timeouts of a call without progress before the path is given up, however long they took: this side
/// may have been away itself.
const LEAST_RETRIES: u8 = 4;

/// How long a request has waited for an answer.
#[derive(Debug)]
pub(super) struct RetryTimer {
    /// The last time that a packet went out or progress came in.
    active_at: Instant,
    /// Timeouts since the last progress.
    retries: u8,
    /// When the first of them was; means nothing while there is none.
    stalled_at: Instant,
    /// The server said that the request is executing: nothing is owed, the response is announced unasked.
    accepted: bool,
}

/// Up to a quarter more, another part for each session and each repeat: clients that lost packets to the same
/// full queue must not come back to it in step, for ever.
pub(super) fn jitter(rto: u64, generation: u32, retries: u8) -> u64 {
    let draw = generation.rotate_left(u32::from(retries) * 7) & 0xFF;
    if retries == 0 { 0 } else { rto / 1_024 * u64::from(draw) }
}

impl RetryTimer {
    #[inline]
    pub(super) fn new(now: Instant) -> Self {
        Self { active_at: now, retries: 0, stalled_at: now, accepted: false }
    }

    #[inline]
    pub(super) fn active_at(&self) -> Instant {
        self.active_at
    }

    #[inline]
    pub(super) fn retries(&self) -> u8 {
        self.retries
    }

    #[inline]
    pub(super) fn is_accepted(&self) -> bool {
        self.accepted
    }

    /// When the first timeout since the last progress was; means nothing without one.
    pub(super) fn stalled_at(&self) -> Instant {
        self.stalled_at
    }

    /// A packet went out.
    #[inline]
    pub(super) fn restart(&mut self, now: Instant) {
        self.active_at = now;
    }

    /// Something came that says that the server has got further.
    pub(super) fn progress(&mut self, now: Instant) {
        self.active_at = now;
        self.retries = 0;
    }

    /// The server is executing the request.
    pub(super) fn accept(&mut self) {
        self.accepted = true;
    }

    /// This endpoint was away until `since`.
    pub(super) fn back(&mut self, since: Instant) {
        self.stalled_at = self.stalled_at.max(since);
    }

    /// When the next packet goes out again if nothing comes: after the timeout `rto`, in nanoseconds, and a part of it that
    /// differs between sessions. For requests that the server has not accepted.
    #[inline]
    pub(super) fn due(&self, rto: u64, generation: u32) -> Instant {
        self.active_at.plus_nanos(rto + jitter(rto, generation, self.retries))
    }

    /// Counts a timeout, after which something is sent. False if there were enough timeouts, and nothing came for
    /// `liveness_timeout` up to `read_until`.
    pub(super) fn time_out(
        &mut self,
        now: Instant,
        read_until: Instant,
        liveness_timeout: Duration,
    ) -> bool {
        if self.retries == 0 {
            self.stalled_at = now;
        } else if self.retries >= LEAST_RETRIES && read_until - self.stalled_at >= liveness_timeout
        {
            return false;
        }
        self.retries = self.retries.saturating_add(1);
        self.active_at = now;
        true
    }

    /// Whether several packets in a row have brought no answer.
    pub(super) fn is_stalled(&self) -> bool {
        self.retries >= PING_AFTER_RETRIES
    }

    /// Whether the peer should be asked if it still knows the session.
    pub(super) fn is_suspicious(&self) -> bool {
        self.is_stalled() && !self.accepted
    }

    /// Whether the probe of an executing request is left out.
    pub(super) fn is_forgotten(&self) -> bool {
        mutant!(ProbeForgotten) && self.accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeats_are_up_to_a_quarter_later_each_session_by_its_own_part() {
        let rto = 1_024_000;
        for retries in 1..12 {
            let mut parts: Vec<_> =
                (0..64u32).map(|at| jitter(rto, at.wrapping_mul(0x9E37_79B9), retries)).collect();
            assert!(parts.iter().all(|part| *part <= rto / 4), "{parts:?}");
            parts.sort_unstable();
            assert!(parts[8] < rto / 16 && parts[56] > rto * 3 / 16, "spread out: {parts:?}");
        }
        assert_eq!(jitter(rto, u32::MAX, 0), 0, "the first one is on time");
        assert_ne!(jitter(rto, 0x0102_0408, 1), jitter(rto, 0x0102_0408, 2));
    }
}
