//! The one place where this crate asks what time it is.

use rustix::time::{ClockId, clock_gettime};

use crate::time::Instant;

/// Nanoseconds of the system's monotonic clock. All endpoints of a process share it, so that cookies
/// issued by one are fresh for another.
#[must_use]
#[inline]
pub(crate) fn now() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
