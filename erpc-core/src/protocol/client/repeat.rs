//! Handshake messages and `Close` are sent again until they are answered.

use super::common::Common;
use crate::mutants::mutant;
use crate::protocol::turn::Turn;
use crate::time::Instant;

/// First pause between two copies of a message, doubled once. Nanoseconds. Forty copies within the
/// default time-out open a session on a path that loses every third packet in bursts of eight.
const FIRST_REPEAT: u64 = 25_000_000;

/// The copies of a message that waits for its answer.
#[derive(Debug)]
pub(super) struct Repeat {
    /// When the handshake or the closing began.
    since: Instant,
    /// When the next copy is due.
    at: Instant,
    /// Copies without an answer.
    count: u8,
}

impl Repeat {
    pub(super) fn new(now: Instant) -> Self {
        Self { since: now, at: now, count: 0 }
    }

    pub(super) fn count(&self) -> u8 {
        self.count
    }

    /// What tells the copies apart.
    pub(super) fn nonce(&self) -> u32 {
        self.count.into()
    }

    /// Another message waits for its answer, within the same time-out.
    pub(super) fn restart(&mut self) {
        self.count = 0;
    }

    /// A copy went out: arms the timer for the next one.
    pub(super) fn arm<R, X>(&mut self, turn: &mut Turn<'_, X>, common: &mut Common<R>) {
        // The time-out is kept exactly, not at the next copy; and a timer that was armed for a call or
        // an earlier message is moved, not left to fire too early.
        let pause = FIRST_REPEAT << self.count.min(1);
        let end = self.since + turn.endpoint.config.connect_timeout;
        self.at = turn.now.plus_nanos(pause).min(end);
        let deadline = self.at.min(common.queue.deadline());
        common.timer.rearm(&mut turn.endpoint.timers, deadline);
    }

    /// The timer has fired: whether for this message, rather than for a call in the queue.
    pub(super) fn is_due<R, X>(&self, turn: &mut Turn<'_, X>, common: &mut Common<R>) -> bool {
        let due = turn.endpoint.read_until >= self.at;
        if !due {
            let deadline = self.at.min(common.queue.deadline());
            common.timer.arm_again(&mut turn.endpoint.timers, deadline, turn.now);
        }
        due
    }

    /// Whether there was no answer for the time-out; else counts one more copy.
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
