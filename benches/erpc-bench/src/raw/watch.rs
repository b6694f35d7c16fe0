//! Ends loops that would otherwise spin for ever.

use std::time::{Duration, Instant};

use rustix::process::{Pid, getppid};

use crate::failure::Failure;

/// Turns between two looks at the clock or at the parent.
const TURNS: u32 = 1 << 14;
/// A loop without a single message for this long has lost one.
const STALL_LIMIT: Duration = Duration::from_secs(2);

/// Whether the process that started this one still lives.
pub(super) struct Alive {
    parent: Option<Pid>,
    turns: u32,
    /// A turn takes a tenth of a second, so look every time.
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

/// Whether messages still come.
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

    /// To be called when nothing came.
    #[inline]
    pub(super) fn check(&mut self) -> Result<(), Failure> {
        self.turns = self.turns.wrapping_add(1);
        // Turns of a link that blocks are long; of one that spins, many.
        if (self.turns < 64 || self.turns.is_multiple_of(TURNS))
            && self.last.elapsed() > STALL_LIMIT
        {
            return Err(Failure::new(
                "no answer for 2 seconds: a datagram was lost, and bare sockets do not send twice",
            ));
        }
        Ok(())
    }
}
