//! The system's clock. Event loops and workers read it, unless a test has set a virtual time.
//!
//! Under loom the clock stands still. Loom replays the start of a schedule and then continues
//! differently, so the code must take the same steps each time; see [`sync`](crate::sync).

use rustix::time::{ClockId, clock_gettime};

use crate::time::Instant;

/// The time under loom. Not [`Instant::ZERO`], which in places means that nothing has happened.
const STANDING: Instant = Instant::from_nanos(3_600_000_000_000);

/// Current time of the system's monotonic clock, in ns. All endpoints of a process share this
/// clock, so a cookie issued by one endpoint is fresh at another.
#[must_use]
#[inline]
pub(crate) fn now() -> Instant {
    if cfg!(loom) {
        return STANDING;
    }
    let now = clock_gettime(ClockId::Monotonic);
    Instant::from_nanos(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}
