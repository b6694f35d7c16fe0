//! What an endpoint holds, for tests that look for leaks.

use super::open::Endpoint;
use crate::transport::Transport;

/// Number of the things that an endpoint holds for its calls and handlers. When all calls and tasks
/// have ended and all sessions are closed, all numbers are 0.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Census {
    /// Calls that have not ended, or whose outcome was not taken.
    pub calls: usize,
    /// Sessions that this endpoint has opened and that have not ended.
    pub links: usize,
    /// Tasks, internal ones included.
    pub tasks: usize,
    /// Timers of tasks and calls.
    pub timers: usize,
    /// Timers of calls: at most one per call.
    pub call_timers: usize,
    /// Requests that a task, a worker or a responder has not answered.
    pub requests: usize,
    /// Requests that run as tasks, as the limit of tasks counts them.
    pub counted_tasks: usize,
}

impl Census {
    /// The census of `endpoint`.
    #[must_use]
    pub fn of<T: Transport>(endpoint: &Endpoint<T>) -> Self {
        let parts = endpoint.parts();
        let (requests, counted_tasks) = parts.requests().numbers();
        let (timers, call_timers) = parts.scheduler().timers().numbers();
        Self {
            calls: parts.calls().table().len(),
            links: parts.calls().open_links(),
            tasks: parts.scheduler().executor().tasks(),
            timers,
            call_timers,
            requests,
            counted_tasks,
        }
    }
}

/// Checks the invariants of the endpoint's protocol, as
/// [`Core::check_invariants`](crate::protocol::Core::check_invariants) does.
///
/// # Panics
/// If an invariant is broken, and within a handler or callback.
pub fn check_invariants<T: Transport>(endpoint: &Endpoint<T>) {
    let rpc = endpoint.parts().rpc();
    rpc.expect("no handler or callback checks invariants").check_invariants();
}
