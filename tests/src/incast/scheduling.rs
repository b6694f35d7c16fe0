//! Keeps other load of the machine out of the measurement, and notices what is left of it.

use std::time::{Duration, Instant};

use rustix::process::nice;

/// Scheduling priority of a thread; both are above that of other processes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Priority {
    /// Above endpoints, which spin: a probe must be woken at once.
    Probe,
    /// An endpoint that is kept from its core for milliseconds cannot tell that from a queue.
    Endpoint,
}

/// Raises the priority of the calling thread.
///
/// # Panics
/// Without the right to do so, which root has.
pub(super) fn raise_priority(priority: Priority) {
    let niceness = match priority {
        Priority::Probe => -20,
        Priority::Endpoint => -15,
    };
    nice(niceness).expect("root may raise priorities");
}

/// Measures how long a spinning loop was kept from its core.
#[derive(Debug)]
pub(super) struct LoopGaps {
    last: Instant,
    away: Duration,
}

impl LoopGaps {
    /// Turns take some ten microseconds; a longer gap is none.
    const LONG: Duration = Duration::from_micros(500);

    pub(super) fn new() -> Self {
        Self { last: Instant::now(), away: Duration::ZERO }
    }

    /// To be called once per turn. Returns the sum of all gaps so far.
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
