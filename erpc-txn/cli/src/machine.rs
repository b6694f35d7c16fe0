//! Cores and CPU time.

use std::time::Duration;

use rustix::thread::{CpuSet, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use crate::failure::Failure;

/// Binds the calling thread to a core.
pub(crate) fn pin(core: usize) -> Result<(), Failure> {
    if core >= CpuSet::MAX_CPU {
        return Err(Failure::new(format!("there is no core {core}")));
    }
    let mut set = CpuSet::new();
    set.set(core);
    sched_setaffinity(None, &set)
        .map_err(|error| Failure::new(format!("cannot run on core {core}: {error}")))
}

/// User and system time of the calling thread.
pub(crate) fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
