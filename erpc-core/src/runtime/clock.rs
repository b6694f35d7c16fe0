//! The one place where the runtime asks what time it is.

use std::sync::OnceLock;

use crate::time::Instant;

/// Nanoseconds since the first call in this process: all endpoints share the origin, so that cookies
/// issued by one are fresh for another.
#[must_use]
#[inline]
pub(crate) fn now() -> Instant {
    static ORIGIN: OnceLock<std::time::Instant> = OnceLock::new();
    let origin = ORIGIN.get_or_init(std::time::Instant::now);
    // Not at zero: "a second ago" has to be a time as well.
    Instant::from_nanos(1_000_000_000).plus_nanos(origin.elapsed().as_nanos() as u64)
}
