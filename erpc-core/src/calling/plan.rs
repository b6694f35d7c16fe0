//! Planned calls: calls that a channel queues until it has a session, or that it may retry.
//!
//! ```text
//!   start --> on a session --> ended
//!     |         ^       |
//!     v         |       v
//!   in line ----+--- backing off
//! ```
//!
//! A call in line also ends when its deadline passes or, unless it waits for a server, when no
//! server can be reached. A call backs off only if the pause ends before the deadline. After the
//! pause, it starts like a new call. A cancelled call leaves the line or the pause and ends.

use std::rc::Rc;

use super::link::Link;
use super::options::CallHead;
use super::retry::{RetryBudgets, RetryPolicy};
use crate::buf::MsgBuf;
use crate::executor::scheduler::Scheduler;
use crate::mutants::mutant;
use crate::protocol::{CallError, NoServer};

/// Source of sessions for planned calls: a channel, with one session or with sessions to many
/// servers.
pub(crate) trait SessionSource<R> {
    /// A session to call on. Avoids the server of the session `avoid` if that session is still open
    /// and another server has an open session.
    fn pick(&self, avoid: Option<&Rc<Link<R>>>) -> Result<Rc<Link<R>>, NoSession>;

    /// Queues a call until a session is available. Returns its ticket, or `None` if the queue is
    /// full.
    fn join_line(&self, key: usize) -> Option<u64>;

    /// Removes the call with this ticket from the queue.
    fn leave_line(&self, ticket: u64);

    /// The retry budgets that all calls of the channel share.
    fn budgets(&self) -> &RetryBudgets;
}

/// Why a call gets no session now.
pub(crate) enum NoSession {
    /// It is not known yet whether a server can be reached. Calls wait in the queue.
    Pending,
    /// No server can be reached. [`NoServer`] has the reasons; the only reason is
    /// [`Cause::Shutdown`](crate::protocol::Cause::Shutdown) if the endpoint has been shut down.
    Down(NoServer),
}

/// Retry and queueing state of a call on a channel. A call that gets a session immediately and has
/// no retry policy gets its plan only when its first attempt fails.
pub(crate) struct CallPlan<R> {
    pub(super) source: Rc<dyn SessionSource<R>>,
    pub(super) head: CallHead,
    pub(super) idempotent: bool,
    /// `None`: only unexecuted attempts are repeated.
    pub(super) policy: Option<RetryPolicy>,
    /// Attempts made, including the current one.
    pub(super) attempts: u32,
    pub(super) stage: PlanStage,
    /// The request, while the call is queued or backs off.
    pub(super) request: Option<MsgBuf>,
    /// The session of the last attempt, whose server the next attempt avoids.
    pub(super) avoid: Option<Rc<Link<R>>>,
    /// The error of an earlier attempt that the server may have executed.
    pub(super) earlier: Option<CallError>,
}

/// Stage of a planned call.
#[derive(Clone, Copy)]
pub(crate) enum PlanStage {
    OnSession,
    /// In the channel's queue. The timer ends the wait at the deadline, if the call has one.
    InLine {
        ticket: u64,
        timer: Option<usize>,
    },
    /// Waiting for the next attempt.
    BackingOff {
        timer: usize,
    },
}

/// A channel's settings for a planned call.
pub(crate) struct PlanTerms {
    pub(crate) idempotent: bool,
    pub(crate) policy: Option<RetryPolicy>,
}

impl<R> CallPlan<R> {
    /// The plan of a call whose first attempt is made now, or was made.
    pub(super) fn new(source: Rc<dyn SessionSource<R>>, head: CallHead, terms: PlanTerms) -> Self {
        let PlanTerms { idempotent, policy } = terms;
        Self {
            source,
            head,
            idempotent,
            policy,
            attempts: 1,
            stage: PlanStage::OnSession,
            request: None,
            avoid: None,
            earlier: None,
        }
    }

    /// Removes the call from the channel's queue, and removes the timer of the queue or of the
    /// backoff. Returns the request, if the plan holds it.
    pub(crate) fn leave(&mut self, scheduler: &Scheduler) -> Option<MsgBuf> {
        match std::mem::replace(&mut self.stage, PlanStage::OnSession) {
            PlanStage::OnSession => {}
            PlanStage::InLine { ticket, timer } => {
                self.source.leave_line(ticket);
                // The alarm is an `Alarm::Call`: dropping it runs no user code.
                let _alarm = timer.and_then(|timer| scheduler.timers().remove(timer));
            }
            PlanStage::BackingOff { .. } if mutant!(BackoffTimerKept) => {}
            PlanStage::BackingOff { timer } => drop(scheduler.timers().remove(timer)),
        }
        self.request.take()
    }

    /// The error to report if the last attempt ended with `error`. If a server may have executed an
    /// earlier attempt, the call is never reported as not executed or rejected.
    pub(crate) fn truth(&mut self, error: CallError) -> CallError {
        if mutant!(TruthForgotten) {
            return error;
        }
        match (self.earlier.take(), error) {
            (Some(_), CallError::NotExecuted(cause)) => CallError::MaybeExecuted(cause),
            (Some(earlier), CallError::Rejected(_) | CallError::NoServer(_)) => earlier,
            (_, error) => error,
        }
    }
}
