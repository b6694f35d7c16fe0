//! Repeats handshake messages and `Close` until they are answered.

use super::common::Common;
use crate::mutants::mutant;
use crate::protocol::turn::Turn;
use crate::time::Instant;

/// First pause between two copies of a message, in ns. All later pauses are twice as long. Forty
/// copies within the default timeout open a session on a path that loses every third packet in
/// bursts of eight.
const FIRST_REPEAT: u64 = 25_000_000;

/// The copies of a message that waits for its answer.
#[derive(Debug)]
pub(super) struct Repeat {
    /// When the handshake or the closing began.
    since: Instant,
    /// When the next copy is due.
    at: Instant,
    /// Copies sent again without an answer.
    count: u8,
}

impl Repeat {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, at: now, count: 0 }
    }

    /// When the handshake or the closing began.
    pub(super) fn since(&self) -> Instant {
        self.since
    }

    pub(super) fn count(&self) -> u8 {
        self.count
    }

    /// Distinguishes the copies of a message.
    pub(super) fn nonce(&self) -> u32 {
        self.count.into()
    }

    /// Starts to count copies of the next message. The timeout still runs from the first message.
    pub(super) fn restart(&mut self) {
        self.count = 0;
    }

    /// The next copy is sent before its time.
    pub(super) fn hurry(&mut self) {
        self.count = self.count.saturating_add(1);
    }

    /// Whether the count has reached its maximum, so that further copies have the same nonce.
    pub(super) fn is_counted_out(&self) -> bool {
        self.count == u8::MAX
    }

    /// A copy was sent: arms the timer for the next copy.
    pub(super) fn arm<R, X>(&mut self, turn: &mut Turn<'_, X>, common: &mut Common<R>) {
        // The timeout is exact, not rounded up to the next copy. A timer that was armed for a call
        // or an earlier message is moved; otherwise it would fire too early.
        let pause = FIRST_REPEAT << self.count.min(1);
        let end = self.since + turn.endpoint.config.connect_timeout;
        self.at = turn.now.plus_nanos(pause).min(end);
        let deadline = self.at.min(common.queue.deadline());
        common.timer.rearm(&mut turn.endpoint.timers, deadline);
    }

    /// Whether the next copy is due: the receive queue was read up to the time of that copy. If the
    /// copy is not due, arms the timer again, which may have fired for the deadline of a queued
    /// call.
    pub(super) fn is_due<R, X>(&self, turn: &mut Turn<'_, X>, common: &mut Common<R>) -> bool {
        let due = turn.endpoint.read_until >= self.at;
        if !due {
            let deadline = self.at.min(common.queue.deadline());
            common.timer.arm_again(&mut turn.endpoint.timers, deadline, turn.now);
        }
        due
    }

    /// Whether the timeout has expired without an answer. If not, counts one more copy.
    pub(super) fn is_over<X>(&mut self, turn: &Turn<'_, X>) -> bool {
        let halves = if mutant!(ConnectHalved) { 2 } else { 1 };
        let over =
            turn.endpoint.read_until - self.since >= turn.endpoint.config.connect_timeout / halves;
        if !over {
            self.count = self.count.saturating_add(1);
        }
        over
    }
}
