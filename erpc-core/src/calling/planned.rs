//! Steps of a planned call: getting a session, queueing for one, and retrying.

use std::rc::Rc;

use super::calls::Calls;
use super::link::Link;
use super::options::PreparedCall;
use super::plan::{CallPlan, NoSession, PlanStage, PlanTerms, SessionSource};
use super::retry::{UNEXECUTED, is_repeatable};
use super::submissions::Submission;
use super::table::{CallEntry, CallOutcome};
use crate::buf::MsgBuf;
use crate::executor::timers::Alarm;
use crate::mutants::mutant;
use crate::protocol::{CallError, Cause, NoServer, RejectReason};
use crate::time::Instant;
use crate::transport::Transport;

impl<T: Transport> Calls<T> {
    /// Starts a call on a session of `source`, or queues it until there is one, or fails it; see
    /// [`Self::assign`]. Returns its key.
    pub(crate) fn start_planned(
        &self,
        source: Rc<dyn SessionSource<T::Route>>,
        prepared: PreparedCall,
        terms: PlanTerms,
        outcome: CallOutcome,
    ) -> usize {
        let PreparedCall { head, request } = prepared;
        if let Some(policy) = &terms.policy {
            source.budgets().of_policies.earn(policy);
        }
        let plan = CallPlan::new(source, head, terms);
        let key = self.table().insert(|| outcome, None, Some(Box::new(plan)), None);
        self.assign(key, request);
        key
    }

    /// Applies `look` to the call's plan, if it has one.
    fn with_plan<O>(
        &self,
        key: usize,
        look: impl FnOnce(&mut CallPlan<T::Route>) -> O,
    ) -> Option<O> {
        self.table().get(key).and_then(|entry| entry.plan.as_deref_mut()).map(look)
    }

    /// Submits a planned call on a session, or queues it. Its attempt fails if the endpoint is
    /// closed, if the queue is full, or if no server can be reached and the call does not wait.
    fn assign(&self, key: usize, request: MsgBuf) {
        let found = self.with_plan(key, |plan| {
            (Rc::clone(&plan.source), plan.avoid.clone(), plan.head.flags.waits())
        });
        let Some((source, avoid, waits)) = found else { return };
        if self.scheduler().is_closed() {
            return self.failed(key, CallError::NotExecuted(Cause::Shutdown), Some(request));
        }
        match source.pick(avoid.as_ref()) {
            Ok(link) => self.submit_planned(key, link, request),
            Err(NoSession::Down(why)) if !waits => {
                self.failed(key, why.into(), Some(request));
            }
            Err(_) => self.line_up(key, request, source.join_line(key)),
        }
    }

    fn submit_planned(&self, key: usize, link: Rc<Link<T::Route>>, request: MsgBuf) {
        link.call_made();
        let mut calls = self.table();
        let Some(CallEntry { link: place, plan: Some(plan), head, unsent, .. }) = calls.get(key)
        else {
            return;
        };
        *place = Some(link);
        (*head, *unsent) = (plan.head, Some(request));
        if mutant!(DeadlineLostOnRetry) {
            head.deadline = Instant::NEVER;
        }
        drop(calls);
        self.submit(Submission::Call(key));
    }

    fn line_up(&self, key: usize, request: MsgBuf, ticket: Option<u64>) {
        let Some(ticket) = ticket else {
            return self.failed(key, CallError::Rejected(RejectReason::QueueFull), Some(request));
        };
        self.with_plan(key, |plan| {
            let deadline = plan.head.deadline;
            let timed = deadline != Instant::NEVER;
            let timer = timed.then(|| self.scheduler().timers().arm(deadline, Alarm::Call(key)));
            plan.stage = PlanStage::InLine { ticket, timer };
            plan.request = Some(request);
        });
    }

    /// Removes a call from its channel's queue and [assigns](Self::assign) it again.
    pub(crate) fn unline(&self, key: usize) {
        let request = self.with_plan(key, |plan| plan.leave(self.scheduler())).flatten();
        if let Some(request) = request {
            self.assign(key, request);
        }
    }

    /// Whether a queued call waits until its deadline even while no server can be reached.
    pub(crate) fn waits_for_server(&self, key: usize) -> bool {
        self.with_plan(key, |plan| plan.head.flags.waits()).unwrap_or(false)
    }

    /// Fails the attempt of a queued call, because no server can be reached. The call ends or backs
    /// off for another attempt.
    pub(crate) fn fail_in_line(&self, key: usize, why: NoServer) {
        let request = self.with_plan(key, |plan| plan.leave(self.scheduler())).flatten();
        self.failed(key, why.into(), request);
    }

    /// Handles the expiry of a planned call's timer: retries a call that backed off, fails a queued
    /// call.
    pub(crate) fn call_is_due(&self, key: usize) {
        let due = self.with_plan(key, |plan| {
            let stage = plan.stage;
            match &mut plan.stage {
                PlanStage::InLine { timer, .. } => *timer = None,
                // The timer has expired, so `plan.leave` must not remove it.
                PlanStage::BackingOff { .. } => plan.stage = PlanStage::OnSession,
                PlanStage::OnSession => {}
            }
            plan.attempts += u32::from(matches!(stage, PlanStage::BackingOff { .. }));
            (stage, plan.leave(self.scheduler()))
        });
        if mutant!(RetriesEarnBudget) {
            self.with_plan(key, |plan| {
                if let Some(policy) = &plan.policy {
                    plan.source.budgets().of_policies.earn(policy);
                }
            });
        }
        match due {
            Some((PlanStage::BackingOff { .. }, Some(request))) => self.assign(key, request),
            Some((PlanStage::InLine { .. }, request)) => {
                self.failed(key, CallError::NotExecuted(Cause::DeadlineExceeded), request);
            }
            _ => {}
        }
    }

    /// Schedules another attempt for a failed call, which was on `link` or on no session. `Err`
    /// returns the request with the error to report.
    ///
    /// A call that went directly to a channel's session has no plan yet. It gets one here: the link
    /// knows its channel, the table's entry keeps the head, and the request has come back.
    #[cold]
    pub(crate) fn again(
        &self,
        key: usize,
        link: Option<Rc<Link<T::Route>>>,
        error: CallError,
        request: MsgBuf,
    ) -> Result<(), (CallError, MsgBuf)> {
        let mut calls = self.table();
        let Some(CallEntry { outcome, plan, head, .. }) = calls.get(key) else {
            return Err((error, request));
        };
        // Whether a call without a retry policy is repeated. If it was on no session, it is not.
        let repeats = !head.flags.is_final() && link.is_some() && is_repeatable(&error);
        if repeats
            && plan.is_none()
            && let Some(source) = link.as_ref().and_then(|link| link.source())
        {
            let terms = PlanTerms { idempotent: false, policy: None };
            *plan = Some(Box::new(CallPlan::new(source, *head, terms)));
        }
        let Some(plan) = plan else { return Err((error, request)) };
        let CallPlan { policy, attempts, idempotent, head, .. } = &**plan;
        let is_allowed =
            policy.as_ref().map_or(repeats, |policy| policy.allows(*attempts, *idempotent, &error));
        let is_cancelled = matches!(outcome, CallOutcome::Cancelled) && !mutant!(CancelledRetried);
        if !is_allowed || is_cancelled || self.scheduler().is_closed() {
            return Err((plan.truth(error), request));
        }
        let budgets = plan.source.budgets();
        let (policy, budget) = match policy {
            Some(policy) => (policy, &budgets.of_policies),
            None => (&UNEXECUTED, &budgets.unexecuted),
        };
        let now = self.scheduler().now();
        let due = now + policy.pause(*attempts, self.scheduler().random());
        let is_late = due >= head.deadline && !mutant!(BacksOffTooLong);
        if is_late || !budget.grants(policy, &error, now) {
            return Err((plan.truth(error), request));
        }
        plan.stage =
            PlanStage::BackingOff { timer: self.scheduler().timers().arm(due, Alarm::Call(key)) };
        plan.request = Some(request);
        let link = link.filter(|_| !mutant!(AvoidForgotten));
        let before = std::mem::replace(&mut plan.avoid, link);
        if !matches!(
            error,
            CallError::NotExecuted(_) | CallError::NoServer(_) | CallError::Rejected(_)
        ) {
            plan.earlier = Some(error);
        }
        drop(calls);
        // Drop the link only after the borrow of the table has ended: dropping a link drops its
        // waiters, which may run arbitrary code.
        drop(before);
        Ok(())
    }

    /// Ends a call that the protocol does not report, because the endpoint ends.
    pub(crate) fn abandon(&self, key: usize) {
        let link = self.table().leave_session(key);
        // The protocol may have sent a call that is on a session, so the server may have executed
        // it.
        let error = match link {
            Some(_) => CallError::MaybeExecuted(Cause::Shutdown),
            None => CallError::NotExecuted(Cause::Shutdown),
        };
        let planned =
            self.with_plan(key, |plan| (plan.leave(self.scheduler()), plan.truth(error.clone())));
        let (request, error) = planned.unwrap_or((None, error));
        drop(request);
        self.end_with_error(key, error);
    }

    /// Removes a cancelled call from the queue or its backoff. False if it was in neither.
    pub(super) fn withdraw(&self, plan: &mut CallPlan<T::Route>) -> bool {
        match plan.leave(self.scheduler()) {
            Some(request) => {
                self.pool().recycle(request);
                true
            }
            None => false,
        }
    }
}
