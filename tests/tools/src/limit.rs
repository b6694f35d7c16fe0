//! Time limits: a test that hangs fails with a message.

use std::env;
use std::panic::resume_unwind;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

/// How many times as long tests may take on this machine: `ERPC_TEST_PATIENCE`, 1 by default. An
/// emulated machine needs more.
fn patience() -> u32 {
    env::var("ERPC_TEST_PATIENCE").ok().and_then(|times| times.parse().ok()).unwrap_or(1)
}

/// Runs `body` on its own thread, and panics if it takes longer than `limit`, times
/// `ERPC_TEST_PATIENCE`. The thread then continues until the process ends.
///
/// # Panics
/// If `body` panics, or takes longer than `limit`.
#[track_caller]
pub fn within<R: Send + 'static>(limit: Duration, body: impl FnOnce() -> R + Send + 'static) -> R {
    let limit = limit * patience();
    let (send, done) = channel::<()>();
    // The thread has the test's name, which panic messages print.
    let name = thread::current().name().unwrap_or("test").to_owned();
    let body = thread::Builder::new().name(name).spawn(move || {
        // `_send` is dropped when `body` ends, also by a panic. This wakes the receiver.
        let _send = send;
        body()
    });
    let body = body.expect("the thread starts");
    if let Err(RecvTimeoutError::Timeout) = done.recv_timeout(limit) {
        panic!("the test has not ended after {limit:?}");
    }
    body.join().unwrap_or_else(|panic| resume_unwind(panic))
}

/// Short for [`Duration::from_secs`].
#[must_use]
pub const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// Short for [`Duration::from_millis`].
#[must_use]
pub const fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}
