//! When an answer is overdue, and when a call has made no progress for too long.

use std::time::Duration;

use crate::mutants::mutant;
use crate::time::Instant;

/// After this many timeouts of a call without progress, the client also pings the server: a server
/// that has restarted answers immediately that it does not know the session.
pub(super) const PING_AFTER_RETRIES: u8 = 2;

/// The path is given up only after this many timeouts of a call without progress, however long they
/// took: this endpoint itself may have been stopped.
const LEAST_RETRIES: u8 = 4;

/// How long a request has waited for an answer, and how often it timed out.
#[derive(Clone, Copy, Debug)]
pub(super) struct RetryTimer {
    /// When a packet was last sent or progress was made.
    active_at: Instant,
    /// Timeouts since the last progress.
    retries: u8,
    /// When the first of these timeouts occurred. Meaningless while `retries` is 0.
    stalled_at: Instant,
    /// The server has said that it executes the request. It will announce the response unasked.
    accepted: bool,
}

/// Random extra time, in ns: up to a quarter of the timeout, different for each session and each
/// retry, and 0 for the first retransmission. Without it, clients that lost packets to the same
/// full queue would retransmit at the same times, again and again.
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

    /// When the first timeout since the last progress occurred. Meaningless if there was no timeout
    /// since.
    pub(super) fn stalled_at(&self) -> Instant {
        self.stalled_at
    }

    /// A packet was sent.
    #[inline]
    pub(super) fn restart(&mut self, now: Instant) {
        self.active_at = now;
    }

    /// The server has made progress with the request.
    pub(super) fn progress(&mut self, now: Instant) {
        self.active_at = now;
        self.retries = 0;
    }

    /// The server is executing the request.
    pub(super) fn accept(&mut self) {
        self.accepted = true;
    }

    /// This endpoint was stopped until now and could not receive. So the call's time without
    /// progress counts from `since` at the earliest, which is an earlier time than now.
    pub(super) fn back(&mut self, since: Instant) {
        self.stalled_at = self.stalled_at.max(since);
    }

    /// When the next retransmission is due: after the timeout `rto`, in ns, and a [`jitter`]. For
    /// requests that the server has not accepted.
    #[inline]
    pub(super) fn due(&self, rto: u64, generation: u32) -> Instant {
        self.active_at.plus_nanos(rto + jitter(rto, generation, self.retries))
    }

    /// Counts a timeout, after which a packet is sent. False if the path is to be given up: there
    /// were enough timeouts without progress, and from the first of them to `read_until` the
    /// `liveness_timeout` has passed.
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

    /// Whether several timeouts in a row brought no answer.
    pub(super) fn is_stalled(&self) -> bool {
        self.retries >= PING_AFTER_RETRIES
    }

    /// Whether to ping the server, to learn if it still knows the session.
    pub(super) fn is_suspicious(&self) -> bool {
        self.is_stalled() && !self.accepted
    }

    /// Whether a planted bug skips the probe of an executing request.
    pub(super) fn is_forgotten(&self) -> bool {
        mutant!(ProbeForgotten) && self.accepted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_delayed_by_up_to_a_quarter_different_for_each_session() {
        let rto = 1_024_000;
        for retries in 1..12 {
            let mut parts: Vec<_> =
                (0..64u32).map(|at| jitter(rto, at.wrapping_mul(0x9E37_79B9), retries)).collect();
            assert!(parts.iter().all(|part| *part <= rto / 4), "{parts:?}");
            parts.sort_unstable();
            assert!(parts[8] < rto / 16 && parts[56] > rto * 3 / 16, "spread out: {parts:?}");
        }
        assert_eq!(jitter(rto, u32::MAX, 0), 0, "the first retransmission is on time");
        assert_ne!(jitter(rto, 0x0102_0408, 1), jitter(rto, 0x0102_0408, 2));
    }
}
