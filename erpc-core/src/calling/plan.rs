//! Calls that a channel looks after: those that wait for a session, and those that may be tried again.
//!
//! ```text
//!   start --> on a session --> ended
//!     |         ^       |
//!     v         |       v            both also end when the deadline passes
//!   in line ----+--- backing off
//! ```

use std::rc::Rc;

use crate::buf::MsgBuf;
use crate::calling::link::Link;
use crate::calling::options::Prepared;
use crate::calling::retry::RetryPolicy;
use crate::calling::table::{Entry, Outcome};
use crate::client::channel::{Place, Unpicked};
use crate::endpoint::state::{Shared, Submission};
use crate::executor::timers::Alarm;
use crate::protocol::{CallError, Cause, RejectReason};
use crate::time::Instant;
use crate::transport::Transport;

/// What is kept of such a call besides who waits for its outcome. All others do without.
pub(crate) struct Plan<T: Transport> {
    place: Place<T>,
    method: u32,
    extended: bool,
    deadline: Instant,
    /// Stands in line also while no server can be reached.
    waits: bool,
    idempotent: bool,
    policy: Option<RetryPolicy>,
    /// Attempts, the present one included.
    attempts: u32,
    stage: Stage,
    /// The request, while no session has it.
    request: Option<MsgBuf>,
    /// Where the last attempt was made.
    avoid: Option<Rc<Link<T::Route>>>,
    /// How an earlier attempt failed that may have been executed.
    earlier: Option<CallError>,
}

/// Where such a call is.
#[derive(Clone, Copy)]
enum Stage {
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

/// What a channel asks for with a call.
pub(crate) struct Wishes {
    pub(crate) waits: bool,
    pub(crate) idempotent: bool,
    pub(crate) policy: Option<RetryPolicy>,
}

impl<T: Transport> Plan<T> {
    /// Takes the call out of whatever it waits in; returns its request.
    fn leave(&mut self, shared: &Shared<T>) -> Option<MsgBuf> {
        match std::mem::replace(&mut self.stage, Stage::OnSession) {
            Stage::OnSession => {}
            Stage::InLine { ticket, timer } => {
                self.place.leave_line(ticket);
                // What such a timer does is not dropped with it.
                let _alarm = timer.and_then(|timer| shared.timers().remove(timer));
            }
            Stage::BackingOff { timer } => drop(shared.timers().remove(timer)),
        }
        self.request.take()
    }

    /// The error to be told if the last attempt ended with `error`: what may have been executed in an earlier
    /// one is never told to be not executed.
    fn truth(&mut self, error: CallError) -> CallError {
        match (self.earlier.take(), error) {
            (Some(_), CallError::NotExecuted(cause)) => CallError::MaybeExecuted(cause),
            (Some(earlier), CallError::Rejected(_)) => earlier,
            (_, error) => error,
        }
    }
}

impl<T: Transport> Shared<T> {
    /// Makes a call that `place` finds a session for, and looks after; returns its key.
    pub(crate) fn start_planned(
        &self,
        place: &Place<T>,
        prepared: Prepared,
        wishes: Wishes,
        outcome: Outcome,
    ) -> usize {
        let Prepared { method, request, extended, deadline } = prepared;
        let Wishes { waits, idempotent, policy } = wishes;
        if let Some(policy) = &policy {
            place.budget().earn(policy);
        }
        let plan = Plan {
            place: place.clone(),
            method,
            extended,
            deadline,
            waits,
            idempotent,
            policy,
            attempts: 1,
            stage: Stage::OnSession,
            request: None,
            avoid: None,
            earlier: None,
        };
        let key = self.calls().insert(|| outcome, None, Some(Box::new(plan)), None);
        self.seat(key, request);
        key
    }

    /// The plan of the call, to be looked at or changed.
    fn with_plan<O>(&self, key: usize, look: impl FnOnce(&mut Plan<T>) -> O) -> Option<O> {
        self.calls().get(key).and_then(|entry| entry.plan.as_deref_mut()).map(look)
    }

    /// Finds a session for a planned call that is nowhere.
    fn seat(&self, key: usize, request: MsgBuf) {
        let found =
            self.with_plan(key, |plan| (plan.place.clone(), plan.avoid.clone(), plan.waits));
        let Some((place, avoid, waits)) = found else { return };
        if self.is_closed() {
            return self.failed(key, CallError::NotExecuted(Cause::Shutdown), Some(request));
        }
        match place.pick(avoid.as_ref()) {
            Ok(link) => self.submit_planned(key, link, request),
            Err(Unpicked::Down(cause)) if !waits => {
                self.failed(key, CallError::NotExecuted(cause), Some(request));
            }
            Err(_) => self.line_up(key, request, place.join_line(key)),
        }
    }

    fn submit_planned(&self, key: usize, link: Rc<Link<T::Route>>, request: MsgBuf) {
        link.call_made();
        let mut calls = self.calls();
        let Some(Entry { link: place, plan: Some(plan), unsent, .. }) = calls.get(key) else {
            return;
        };
        *place = Some(link);
        let Plan { method, extended, deadline, .. } = **plan;
        *unsent = Some(Prepared { method, request, extended, deadline });
        drop(calls);
        self.submit(Submission::Call(key));
    }

    fn line_up(&self, key: usize, request: MsgBuf, ticket: Option<u64>) {
        let Some(ticket) = ticket else {
            return self.failed(key, CallError::Rejected(RejectReason::QueueFull), Some(request));
        };
        self.with_plan(key, |plan| {
            let timed = plan.deadline != Instant::NEVER;
            let timer = timed.then(|| self.timers().arm(plan.deadline, Alarm::Call(key)));
            plan.stage = Stage::InLine { ticket, timer };
            plan.request = Some(request);
        });
    }

    /// The call's turn in the line has come.
    pub(crate) fn unline(&self, key: usize) {
        let request = self.with_plan(key, |plan| plan.leave(self)).flatten();
        if let Some(request) = request {
            self.seat(key, request);
        }
    }

    /// Whether a call in the line of its channel is there until its deadline.
    pub(crate) fn is_patient(&self, key: usize) -> bool {
        self.with_plan(key, |plan| plan.waits).unwrap_or(false)
    }

    /// A call in the line fails, as no server can be reached.
    pub(crate) fn fail_in_line(&self, key: usize, cause: Cause) {
        let request = self.with_plan(key, |plan| plan.leave(self)).flatten();
        self.failed(key, CallError::NotExecuted(cause), request);
    }

    /// A planned call's timer was due.
    pub(crate) fn call_is_due(&self, key: usize) {
        let due = self.with_plan(key, |plan| {
            let stage = plan.stage;
            match &mut plan.stage {
                Stage::InLine { timer, .. } => *timer = None,
                // The timer is gone; there is nothing to take the call out of.
                Stage::BackingOff { .. } => plan.stage = Stage::OnSession,
                Stage::OnSession => {}
            }
            plan.attempts += u32::from(matches!(stage, Stage::BackingOff { .. }));
            (stage, plan.leave(self))
        });
        match due {
            Some((Stage::BackingOff { .. }, Some(request))) => self.seat(key, request),
            Some((Stage::InLine { .. }, request)) => {
                self.failed(key, CallError::NotExecuted(Cause::DeadlineExceeded), request);
            }
            _ => {}
        }
    }

    /// The call was on `link`, or nowhere, and failed. Plans another attempt, or gives the request back with
    /// what is to be told.
    #[cold]
    pub(crate) fn again(
        &self,
        key: usize,
        link: Option<Rc<Link<T::Route>>>,
        error: CallError,
        request: MsgBuf,
    ) -> Result<(), (CallError, MsgBuf)> {
        let mut calls = self.calls();
        let Some(Entry { outcome, plan: Some(plan), .. }) = calls.get(key) else {
            return Err((error, request));
        };
        let Plan { policy, attempts, idempotent, deadline, .. } = &**plan;
        let allowed = policy.as_ref().filter(|policy| {
            !matches!(outcome, Outcome::Cancelled)
                && !self.is_closed()
                && policy.allows(*attempts, *idempotent, &error)
        });
        let Some(policy) = allowed else { return Err((plan.truth(error), request)) };
        let now = self.now();
        let due = now + policy.pause(*attempts, self.random());
        if due >= *deadline || !plan.place.budget().spend(policy, now) {
            return Err((plan.truth(error), request));
        }
        plan.stage = Stage::BackingOff { timer: self.timers().arm(due, Alarm::Call(key)) };
        plan.request = Some(request);
        let before = std::mem::replace(&mut plan.avoid, link);
        if !matches!(error, CallError::NotExecuted(_) | CallError::Rejected(_)) {
            plan.earlier = Some(error);
        }
        drop(calls);
        // A link's waiters may run anything when they are dropped.
        drop(before);
        Ok(())
    }

    /// Ends a call that the protocol does not know, as the endpoint ends.
    pub(crate) fn abandon(&self, key: usize) {
        let link = self.calls().leave_session(key);
        // What was handed on and has not come back may be anywhere.
        let error = match link {
            Some(_) => CallError::MaybeExecuted(Cause::Shutdown),
            None => CallError::NotExecuted(Cause::Shutdown),
        };
        let planned = self.with_plan(key, |plan| (plan.leave(self), plan.truth(error.clone())));
        let (request, error) = planned.unwrap_or((None, error));
        drop(request);
        self.end_with_error(key, error);
    }

    /// Takes a call that nobody waits for any more out of whatever it waits in; whether it was there.
    pub(crate) fn withdraw(&self, plan: &mut Plan<T>) -> bool {
        match plan.leave(self) {
            Some(request) => {
                self.pool().recycle(request);
                true
            }
            None => false,
        }
    }
}
