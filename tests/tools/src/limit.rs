//! A test that hangs fails, and says that it hung.

use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// Runs `body` on a thread of its own, and panics if it takes longer than `limit`. The thread is then
/// left behind, and ends with the process.
///
/// # Panics
/// As `body` does; and if it takes too long.
#[track_caller]
pub fn within<R: Send + 'static>(limit: Duration, body: impl FnOnce() -> R + Send + 'static) -> R {
    let (send, done) = channel::<()>();
    // Panics are reported under the test's name.
    let name = thread::current().name().unwrap_or("test").to_owned();
    let body = thread::Builder::new().name(name).spawn(move || {
        // Dropped at the end, also by a panic.
        let _send = send;
        body()
    });
    let body = body.expect("the system has a thread for the test");
    if let Err(RecvTimeoutError::Timeout) = done.recv_timeout(limit) {
        panic!("the test has not ended after {limit:?}");
    }
    body.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Seconds, for short.
#[must_use]
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Milliseconds, for short.
#[must_use]
pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
