//! Interceptors, which run around every handler of a server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

use super::CallContext;
use super::panics::panicked_status;
use crate::status::Status;

/// Runs before and after the handler of every call of a server, for all methods and modes: for
/// authentication, quotas, metrics and logs.
///
/// Several interceptors are nested: `before` runs in the order in which they were added, `after` in
/// the opposite order. Both run where the handler runs, in the event loop or on a worker, so their
/// run time delays the caller. A panic in an interceptor is handled like a panic of the handler. In
/// `after` of a call that was already answered or has ended early, a panic changes nothing.
///
/// ```
/// use erpc_core::service::{CallContext, Interceptor};
/// use erpc_core::status::Status;
///
/// struct Token(&'static [u8]);
///
/// impl Interceptor for Token {
///     fn before(&self, call: &CallContext<'_>) -> Result<(), Status> {
///         match call.metadata().get("token") {
///             Some(token) if token == self.0 => Ok(()),
///             _ => Err(Status::permission_denied("the token is missing or wrong")),
///         }
///     }
/// }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Runs before the handler.
    ///
    /// # Errors
    /// A status ends the call with that status. Neither the handler nor later interceptors run.
    fn before(&self, call: &CallContext<'_>) -> Result<(), Status> {
        let _ = call;
        Ok(())
    }

    /// Runs after the handler, if `before` of this interceptor succeeded. For a deferred call, runs
    /// after the answer, on the thread that answered. For a call that was ended before its handler
    /// had answered, the outcome is
    /// [`Code::DeadlineExceeded`](crate::status::Code::DeadlineExceeded) if its deadline has
    /// passed, else [`Code::Cancelled`](crate::status::Code::Cancelled).
    ///
    /// [`CallContext::session_stats`] is `None` for a deferred call. It is also `None` for a
    /// cancelled call of an asynchronous handler, whose task is dropped during the endpoint's turn.
    fn after(&self, call: &CallContext<'_>, outcome: Result<(), &Status>) {
        let _ = (call, outcome);
    }
}

/// The progress of a call through the interceptors. If it is dropped early, it passes the reason to
/// the interceptors that were entered: a panic, or the end of the call's task.
pub(super) struct Passage<'a> {
    call: &'a CallContext<'a>,
    /// Number of interceptors whose `before` succeeded and whose `after` has not run.
    passed: usize,
}

impl<'a> Passage<'a> {
    /// Runs `before` of the interceptors until one refuses.
    pub(super) fn enter(call: &'a CallContext<'a>) -> Result<Self, Status> {
        let mut passage = Self { call, passed: 0 };
        for interceptor in passage.interceptors() {
            match interceptor.before(call) {
                Ok(()) => passage.passed += 1,
                Err(status) => {
                    passage.leave(Err(&status));
                    return Err(status);
                }
            }
        }
        Ok(passage)
    }

    /// A call that has passed `before` of all interceptors.
    pub(super) fn inside(call: &'a CallContext<'a>) -> Self {
        let mut passage = Self { call, passed: 0 };
        passage.passed = passage.interceptors().len();
        passage
    }

    /// Runs `after` of the entered interceptors. Not for a deferred call, which has not ended: its
    /// responder runs them.
    pub(super) fn leave(&mut self, outcome: Result<(), &Status>) {
        let passed = std::mem::take(&mut self.passed);
        if !self.call.is_deferred() {
            for interceptor in self.interceptors()[..passed].iter().rev() {
                interceptor.after(self.call, outcome);
            }
        }
    }

    fn interceptors(&self) -> &'a [Arc<dyn Interceptor>] {
        self.call.info().interceptors()
    }
}

impl Drop for Passage<'_> {
    fn drop(&mut self) {
        if self.passed > 0 {
            let status = if panicking() {
                panicked_status(self.call.info().full_name())
            } else if self.call.time_left() == Some(Duration::ZERO) {
                late()
            } else {
                Status::cancelled("the caller has cancelled the call")
            };
            // A second panic during an unwind would abort the process.
            drop(catch_unwind(AssertUnwindSafe(|| self.leave(Err(&status)))));
        }
    }
}

/// The status of a call whose handler was dropped at its deadline.
#[cold]
pub(crate) fn late() -> Status {
    Status::deadline_exceeded("the deadline passed before the handler had ended")
}
