//! Trying calls again.

use std::time::Duration;

/// When a failed call is tried again, and how often.
///
/// Tried again are calls of methods that are declared idempotent, if the server could not be reached, if
/// it is not known whether the handler ran, if the response was lost, and if the handler answered
/// [`Code::Unavailable`](crate::service::Code::Unavailable). Each attempt is made on another session, and
/// with what is left of the call's time.
#[derive(Clone, PartialEq, Debug)]
pub struct RetryPolicy {
    attempts: u32,
    backoff: Duration,
}

impl RetryPolicy {
    /// Makes up to `attempts` attempts, the first included.
    #[must_use]
    pub const fn new(attempts: u32) -> Self {
        Self { attempts, backoff: Duration::from_millis(1) }
    }

    /// How long to wait before the second attempt; doubled with each further one, and varied by up to a
    /// half. Default 1 ms.
    #[must_use]
    pub const fn backoff(mut self, base: Duration) -> Self {
        self.backoff = base;
        self
    }
}
