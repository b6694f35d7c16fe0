//! Reduces the effect of the machine's other load on the measurement, and measures the rest of it.

use std::time::{Duration, Instant};

use rustix::process::nice;

/// Scheduling priority of a thread. Both priorities are above those of other processes.
#[derive(Clone, Copy, Debug)]
pub(super) enum Priority {
    /// Above endpoints, which spin, because a probe must be woken immediately.
    Probe,
    /// High, because an endpoint cannot distinguish a queue from milliseconds without its core.
    Endpoint,
}

/// Raises the priority of the calling thread.
///
/// # Panics
/// If the process may not raise priorities, which needs root.
pub(super) fn raise_priority(priority: Priority) {
    let niceness = match priority {
        Priority::Probe => -20,
        Priority::Endpoint => -15,
    };
    nice(niceness).expect("root may raise priorities");
}

/// Measures for how long other work kept a spinning loop from its core.
#[derive(Debug)]
pub(super) struct LoopGaps {
    last: Instant,
    away: Duration,
}

impl LoopGaps {
    /// Shortest gap that counts. A turn of the loop takes about ten microseconds.
    const LONG: Duration = Duration::from_micros(500);

    pub(super) fn new() -> Self {
        Self { last: Instant::now(), away: Duration::ZERO }
    }

    /// Called once per turn. Returns the sum of all gaps so far.
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
