//! The end of serving: requests that run go on until a deadline.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Context as TaskContext, Poll};

use super::requests::Requests;
use crate::event_loop::Context;
use crate::mutants::mutant;
use crate::status::Status;
use crate::transport::Transport;

impl<T: Transport> Requests<T> {
    /// Begins to drain: from now on, calls of a stream are refused if the stream is not open. The
    /// protocol itself refuses requests that begin to arrive.
    pub(crate) fn drain(&self, cx: &mut Context<'_, T>) {
        self.draining.set(true);
        self.refuse_early(cx);
    }

    /// Wakes the task of `cx` when the session of a client has ended.
    pub(crate) fn watch_clients(&self, cx: &TaskContext<'_>) {
        self.watchers.borrow_mut().add(self.scheduler().executor(), cx);
    }

    /// Waits until no handler runs in the runtime of the server. Handlers of calls that have ended
    /// early may still run there.
    pub(crate) fn poll_handlers_gone(&self, cx: &TaskContext<'_>) -> Poll<()> {
        let runtime = self.methods.get().and_then(|methods| methods.runtime.as_ref());
        runtime.map_or(Poll::Ready(()), |runtime| runtime.poll_idle(cx))
    }

    /// Answers all requests that are not answered yet, and drops their handlers' tasks. Requests
    /// that wait for a worker are refused. Returns the number of these requests, plus the number of
    /// streams whose handlers were running.
    pub(crate) fn cut_off(&self, cx: &mut Context<'_, T>) -> usize {
        self.take_answers(cx);
        let workers = self.methods.get().and_then(|methods| methods.workers.as_ref());
        let waiting = workers.map_or(Vec::new(), |workers| workers.take_waiting(self.mailbox()));
        for &call in &waiting {
            self.running.ended(call);
            if !mutant!(DrainForgetsQueue) {
                cx.refuse(call);
            }
        }
        let status = Status::unavailable(
            "the server shut down before the handler had answered; the call may have been executed in part",
        );
        let running = self.running.take_all();
        let count = running.len();
        for (call, task) in running {
            if let Some(task) = task {
                // Dropping a handler's values may panic; the panic hook has reported it.
                let abort = || self.scheduler().executor().abort(task);
                drop(catch_unwind(AssertUnwindSafe(abort)));
            }
            cx.respond_status(call, &status);
        }
        waiting.len() + count + self.cut_off_streams(cx, &status)
    }
}
