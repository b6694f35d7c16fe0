//! What else the machine does is not the network's doing.

use std::time::{Duration, Instant};

use rustix::process::nice;

/// Who goes before whom, and both before everybody else.
#[derive(Clone, Copy, Debug)]
pub(super) enum Haste {
    /// Woken at once, though endpoints spin.
    Probe,
    /// An endpoint that is kept from its core for milliseconds cannot tell that from a queue.
    Endpoint,
}

/// For the calling thread.
///
/// # Panics
/// If it may not, which root may.
pub(super) fn go_first(haste: Haste) {
    let niceness = match haste {
        Haste::Probe => -20,
        Haste::Endpoint => -15,
    };
    nice(niceness).expect("root may go first");
}

/// How long a loop that spins was kept from its core.
#[derive(Debug)]
pub(super) struct Presence {
    last: Instant,
    away: Duration,
}

impl Presence {
    /// Turns take some ten microseconds; what is so long is none.
    const LONG: Duration = Duration::from_micros(500);

    pub(super) fn new() -> Self {
        Self { last: Instant::now(), away: Duration::ZERO }
    }

    /// To be called once per turn. Returns how long the loop was away in all.
    pub(super) fn turn(&mut self) -> Duration {
        let now = Instant::now();
        let gap = now - self.last;
        self.last = now;
        if gap >= Self::LONG {
            self.away += gap;
        }
        self.away
    }
}
