//! Timers and tasks of the endpoint whose loop runs on this thread, for code that has no endpoint
//! at hand.

use std::future::Future;
use std::rc::Rc;
use std::time::Duration;

use super::entered;
use crate::executor::join::JoinHandle;
use crate::executor::scheduler::Scheduler;
use crate::executor::sleep::{Elapsed, Sleep};

/// Waits for `duration`, which starts now, in the endpoint whose loop runs on this thread: for
/// handlers, tasks and callbacks. Works with every transport. Otherwise like
/// [`Endpoint::sleep`](super::Endpoint::sleep).
///
/// ```
/// use std::time::Duration;
/// use erpc_core::endpoint::{Endpoint, sleep};
///
/// let endpoint = Endpoint::udp()?;
/// endpoint.block_on(async { sleep(Duration::from_millis(2)).await });
/// # Ok::<(), erpc_core::endpoint::OpenError>(())
/// ```
///
/// # Panics
/// If this thread does not run an endpoint's loop. That includes the argument of
/// `block_on(sleep(..))`, which is evaluated before the loop begins.
#[track_caller]
pub fn sleep(duration: Duration) -> Sleep {
    let scheduler = running("sleep");
    Sleep::new(&scheduler, scheduler.now() + duration)
}

/// Waits for `future`, but at most for `within`, which starts now, in the endpoint whose loop runs
/// on this thread. Otherwise like [`Endpoint::timeout`](super::Endpoint::timeout).
///
/// # Errors
/// The future's output is [`Elapsed`] at the timeout.
///
/// # Panics
/// Like [`sleep`].
#[track_caller]
pub fn timeout<F: Future>(
    within: Duration,
    future: F,
) -> impl Future<Output = Result<F::Output, Elapsed>> + use<F> {
    let scheduler = running("timeout");
    Sleep::new(&scheduler, scheduler.now() + within).limit(future)
}

/// Starts a task in the endpoint whose loop runs on this thread, for example work that continues
/// after a handler's answer. Otherwise like [`Endpoint::spawn`](super::Endpoint::spawn).
///
/// # Panics
/// Like [`sleep`].
#[track_caller]
pub fn spawn<F: Future + 'static>(future: F) -> JoinHandle<F::Output> {
    running("spawn").spawn(future)
}

/// The scheduler of the endpoint whose loop runs on this thread.
#[track_caller]
fn running(function: &str) -> Rc<Scheduler> {
    match entered::current() {
        Some(endpoint) => Rc::clone(endpoint.scheduler()),
        None => panic!(
            "`erpc::{function}` was called on a thread that runs no endpoint's loop: call it in a \
            handler, task or callback of an endpoint, or inside of the future of `block_on`, as in \
            `endpoint.block_on(async {{ erpc::{function}(..).await }})`; elsewhere use \
            `Endpoint::{function}`, or the function of the runtime that runs this code"
        ),
    }
}
