//! Pinning of the threads of endpoints.

use std::io;

use rustix::thread::{CpuSet, sched_setaffinity};

/// Pins this thread to a core.
///
/// # Errors
/// The system's error if the core does not exist or the process may not use it.
pub(crate) fn pin_thread(core: usize) -> io::Result<()> {
    if core >= CpuSet::MAX_CPU {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    let mut set = CpuSet::new();
    set.set(core);
    Ok(sched_setaffinity(None, &set)?)
}
