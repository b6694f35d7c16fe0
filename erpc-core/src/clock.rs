//! The system's clock. Event loops and workers read it, unless a test has set a virtual time.

use rustix::time::{ClockId, clock_gettime};

use crate::time::Instant;

/// Current time of the system's monotonic clock, in ns. All endpoints of a process share this
/// clock, so a cookie issued by one endpoint is fresh at another.
#[must_use]
#[inline]
pub(crate) fn now() -> Instant {
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
