//! Planned calls: calls that wait for a session of their channel, or may be tried again.
//!
//! ```text
//!   start --> on a session --> ended
//!     |         ^       |
//!     v         |       v            both also end when the deadline passes
//!   in line ----+--- backing off
//! ```

use std::rc::Rc;

use super::link::Link;
use super::retry::{RetryBudget, RetryPolicy};
use crate::buf::MsgBuf;
use crate::executor::scheduler::Scheduler;
use crate::protocol::{CallError, Cause};
use crate::time::Instant;

/// Where planned calls get their sessions from: a channel, which may have one session or sessions to many
/// servers.
pub(crate) trait SessionSource<R> {
    /// A session to call on; not that at `avoid` if there is another.
    fn pick(&self, avoid: Option<&Rc<Link<R>>>) -> Result<Rc<Link<R>>, NoSession>;

    /// Puts a call into the line for a session; returns its ticket, `None` if there is no more room.
    fn join_line(&self, key: usize) -> Option<u64>;

    /// Takes the call with this ticket out of the line.
    fn leave_line(&self, ticket: u64);

    /// What all calls together may spend on retries.
    fn budget(&self) -> &RetryBudget;
}

/// Why there is no session for a call.
pub(crate) enum NoSession {
    /// It is not known yet whether a server can be reached.
    Pending,
    /// No server can be reached. The last attempt failed for this cause.
    Down(Cause),
}

/// How a channel retries a call or has it wait. Other calls have none.
pub(crate) struct CallPlan<R> {
    pub(super) source: Rc<dyn SessionSource<R>>,
    pub(super) method: u32,
    pub(super) extended: bool,
    pub(super) deadline: Instant,
    /// Stands in line also while no server can be reached.
    pub(super) waits: bool,
    pub(super) idempotent: bool,
    pub(super) policy: Option<RetryPolicy>,
    /// Attempts, the present one included.
    pub(super) attempts: u32,
    pub(super) stage: PlanStage,
    /// The request, while no session has it.
    pub(super) request: Option<MsgBuf>,
    /// Where the last attempt was made.
    pub(super) avoid: Option<Rc<Link<R>>>,
    /// How an earlier attempt failed that may have been executed.
    pub(super) earlier: Option<CallError>,
}

/// Where a planned call is.
#[derive(Clone, Copy)]
pub(crate) enum PlanStage {
    OnSession,
    /// In the channel's line; until when at the latest, if there is a deadline.
    InLine {
        ticket: u64,
        timer: Option<usize>,
    },
    /// Waits for its next attempt.
    BackingOff {
        timer: usize,
    },
}

/// What a channel wants for a planned call.
pub(crate) struct PlanTerms {
    pub(crate) waits: bool,
    pub(crate) idempotent: bool,
    pub(crate) policy: Option<RetryPolicy>,
}

impl<R> CallPlan<R> {
    /// Takes the call out of whatever it waits in; returns its request.
    pub(crate) fn leave(&mut self, scheduler: &Scheduler) -> Option<MsgBuf> {
        match std::mem::replace(&mut self.stage, PlanStage::OnSession) {
            PlanStage::OnSession => {}
            PlanStage::InLine { ticket, timer } => {
                self.source.leave_line(ticket);
                // What such a timer does is not dropped with it.
                let _alarm = timer.and_then(|timer| scheduler.timers().remove(timer));
            }
            PlanStage::BackingOff { timer } => drop(scheduler.timers().remove(timer)),
        }
        self.request.take()
    }

    /// The error to report if the last attempt ended with `error`. A call that an earlier attempt may have
    /// executed is never reported as not executed.
    pub(crate) fn truth(&mut self, error: CallError) -> CallError {
        match (self.earlier.take(), error) {
            (Some(_), CallError::NotExecuted(cause)) => CallError::MaybeExecuted(cause),
            (Some(earlier), CallError::Rejected(_)) => earlier,
            (_, error) => error,
        }
    }
}
