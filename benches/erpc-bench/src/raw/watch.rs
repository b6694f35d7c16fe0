//! Ends loops that would otherwise spin forever.

use std::time::{Duration, Instant};

use rustix::process::{Pid, getppid};

use crate::failure::Failure;

/// Turns of a spinning link between two checks of the clock or of the parent process.
const TURNS: u32 = 1 << 14;
/// If no message arrives for this time, a message was lost, and the run fails.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// Checks whether the process that started this one is still alive.
pub(super) struct Alive {
    parent: Option<Pid>,
    turns: u32,
    /// Whether receive calls block. Then a turn may take 100 ms, so every turn checks the parent
    /// process.
    is_slow: bool,
}

impl Alive {
    pub(super) fn new(is_slow: bool) -> Self {
        Self { parent: getppid(), turns: 0, is_slow }
    }

    #[inline]
    pub(super) fn check(&mut self) -> bool {
        self.turns = self.turns.wrapping_add(1);
        !(self.is_slow || self.turns.is_multiple_of(TURNS)) || getppid() == self.parent
    }
}

/// Checks that messages still arrive.
pub(super) struct Progress {
    last: Instant,
    turns: u32,
}

impl Progress {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: now, turns: 0 }
    }

    #[inline]
    pub(super) fn note(&mut self, now: Instant) {
        self.last = now;
        self.turns = 0;
    }

    /// Called when no message has arrived.
    ///
    /// # Errors
    ///
    /// The last message arrived more than 2 s ago.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.turns = self.turns.wrapping_add(1);
        // Each of the first 63 turns after a message checks the clock, because on a blocking link
        // a turn may take 100 ms. Later, only one turn in 2^14 checks it: a spinning link has many
        // short turns.
        if (self.turns < 64 || self.turns.is_multiple_of(TURNS))
            && self.last.elapsed() > STALL_LIMIT
        {
            return Err(Failure::new(
                "no answer for 2 seconds: a datagram was lost, and bare sockets do not retransmit",
            ));
        }
        Ok(())
    }
}
