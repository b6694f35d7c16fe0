//! What runs around every handler of a server.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::thread::panicking;
use std::time::Duration;

use super::CallContext;
use crate::status::Status;

/// Sees every call of a server before its handler runs and after it has, whatever the method and
/// wherever it runs: for authentication, quotas, metrics and logs.
///
/// Several form an onion: `before` runs in the order in which they were added, `after` in the opposite
/// one. Both run where the handler does, in the event loop or on a worker, so what they take, callers
/// wait for. A panic counts as the handler's.
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
///             _ => Err(Status::permission_denied("who are you?")),
///         }
///     }
/// }
/// ```
pub trait Interceptor: Send + Sync + 'static {
    /// Before the handler.
    ///
    /// # Errors
    /// A status ends the call with it: neither the handler runs nor the interceptors behind this one.
    fn before(&self, call: &CallContext<'_>) -> Result<(), Status> {
        let _ = call;
        Ok(())
    }

    /// After the handler, if this interceptor let the call pass. Of a deferred call after its answer, on
    /// the thread that gave it; of a call that was given up meanwhile with
    /// [`Code::DeadlineExceeded`](crate::status::Code::DeadlineExceeded) if its time was over, else with
    /// [`Code::Cancelled`](crate::status::Code::Cancelled). In these cases the session is out of reach:
    /// [`CallContext::session_stats`] is `None`, also if the call was an asynchronous handler's, which is
    /// dropped in the middle of the endpoint's turn.
    fn after(&self, call: &CallContext<'_>, outcome: Result<(), &Status>) {
        let _ = (call, outcome);
    }
}

/// How far a call has come through the interceptors. Dropped on the way, it tells those that let the
/// call pass why: a panic, or the end of the call's task.
pub(super) struct Passage<'a> {
    call: &'a CallContext<'a>,
    /// Those that let the call pass and have not been told of its end.
    passed: usize,
}

impl<'a> Passage<'a> {
    /// Asks the interceptors, until one refuses.
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

    /// A call that all let pass before.
    pub(super) fn inside(call: &'a CallContext<'a>) -> Self {
        let mut passage = Self { call, passed: 0 };
        passage.passed = passage.interceptors().len();
        passage
    }

    /// Tells the interceptors that let the call pass how it ended. A deferred call has not ended yet; its responder
    /// tells them.
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
                Status::internal("the handler panicked")
            } else if self.call.time_left() == Some(Duration::ZERO) {
                late()
            } else {
                Status::cancelled("the caller has given the call up")
            };
            // Another panic on top would end the process.
            drop(catch_unwind(AssertUnwindSafe(|| self.leave(Err(&status)))));
        }
    }
}

/// What a call gets whose handler was dropped at its deadline.
#[cold]
pub(crate) fn late() -> Status {
    Status::deadline_exceeded("the deadline passed before the handler had ended")
}
