//! Submissions: connects, calls, cancels and disconnects on their way to the protocol.
//!
//! A call waits in the endpoint's table, where its entry has to be anyway, and only its key is queued.

use std::rc::Rc;

use super::calls::Calls;
use super::link::{Link, LinkPhase};
use super::options::PreparedCall;
use super::table::{CallEntry, CallOutcome};
use crate::buf::MsgBuf;
use crate::event_loop::Context;
use crate::executor::scheduler::Lifecycle;
use crate::protocol::{CallError, Cause, NewCall, RejectReason};
use crate::transport::Transport;

/// Submissions that are gathered, outside of the loop, before they are handed to the protocol.
const GATHER: usize = 32;

/// What a user asked for and the raw endpoint is to do.
pub(crate) enum Submission<R> {
    Connect(Rc<Link<R>>),
    /// The call with that key is to be sent.
    Call(usize),
    Cancel(usize),
    Disconnect(Rc<Link<R>>),
}

impl<T: Transport> Calls<T> {
    /// Makes a call on `link`, to be sent with the next turn, and returns its key.
    #[inline(always)]
    pub(crate) fn start(
        &self,
        link: Rc<Link<T::Route>>,
        call: Result<PreparedCall, RejectReason>,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> usize {
        match call {
            Ok(call) if !self.scheduler().is_closed() => {
                link.call_made();
                let key = self.table().insert(outcome, Some(link), None, Some(call));
                self.queue(Submission::Call(key));
                key
            }
            Ok(_) => self.refuse(CallError::NotExecuted(Cause::Shutdown), outcome()),
            Err(reason) => self.refuse(CallError::Rejected(reason), outcome()),
        }
    }

    /// A call that fails before it is made; its key.
    #[cold]
    pub(crate) fn refuse(&self, error: CallError, outcome: CallOutcome) -> usize {
        let key = self.table().insert(|| outcome, None, None, None);
        self.fail(key, error);
        key
    }

    /// Cancels a call: its outcome is dropped.
    pub(crate) fn cancel(&self, key: usize) {
        let mut calls = self.table();
        let Some(entry) = calls.get(key) else { return };
        let waits = entry.plan.as_deref_mut().is_some_and(|plan| self.withdraw(plan));
        // Wakers, and what a plan holds, may run anything when they are dropped: the table is not borrowed then.
        if waits || entry.is_done() {
            let ended = calls.remove(key);
            drop(calls);
            drop(ended);
        } else {
            let outcome = std::mem::replace(&mut entry.outcome, CallOutcome::Cancelled);
            drop(calls);
            if !self.scheduler().is_closed() {
                self.submit(Submission::Cancel(key));
            }
            drop(outcome);
        }
    }

    /// Queues a submission.
    pub(crate) fn submit(&self, submission: Submission<T::Route>) {
        if self.scheduler().lifecycle() >= Lifecycle::Ended {
            return self.too_late(submission);
        }
        self.queue(submission);
    }

    /// The same while the endpoint has not ended.
    #[inline(always)]
    fn queue(&self, submission: Submission<T::Route>) {
        self.submissions.borrow_mut().push_back(submission);
        self.scheduler().wake_loop();
    }

    /// Whether so much is queued that it is to be handed to the protocol early.
    #[inline]
    pub(crate) fn has_gathered(&self) -> bool {
        self.submissions.borrow().len() >= GATHER
    }

    /// Hands what is queued to the protocol; what comes to the queue meanwhile stays there.
    pub(crate) fn drain(&self, cx: &mut Context<'_, T>) {
        let count = self.queued();
        for _ in 0..count {
            let submission = self.submissions.borrow_mut().pop_front();
            match submission {
                Some(Submission::Call(key)) => self.drain_call(cx, key),
                Some(other) => self.drain_other(cx, other),
                None => return,
            }
        }
    }

    #[inline(always)]
    fn drain_call(&self, cx: &mut Context<'_, T>, key: usize) {
        let mut calls = self.table();
        let Some(entry) = calls.get(key) else { return };
        let Some(PreparedCall { method, request, extended, deadline }) = entry.unsent.take() else {
            return;
        };
        let usable = match (&entry.outcome, &entry.link) {
            // Cancelled before it was sent: the server need not know.
            (CallOutcome::Cancelled, _) => Err(Cause::Cancelled),
            (_, Some(link)) => link.usable(),
            (_, None) => Err(Cause::Disconnected),
        };
        drop(calls);
        let (error, request) = match usable {
            Ok(id) => {
                let token = key as u64;
                match cx.call(id, NewCall { method, request, token, extended, deadline }) {
                    Ok(()) => return,
                    Err(rejected) => (CallError::Rejected(rejected.reason), rejected.request),
                }
            }
            Err(cause) => (CallError::NotExecuted(cause), request),
        };
        self.failed(key, error, Some(request));
    }

    #[inline(never)]
    fn drain_other(&self, cx: &mut Context<'_, T>, submission: Submission<T::Route>) {
        match submission {
            Submission::Call(key) => self.drain_call(cx, key),
            Submission::Cancel(key) => self.drain_cancel(cx, key),
            Submission::Connect(link) => match cx.connect(link.peer) {
                Ok(id) => {
                    link.started(id);
                    self.links.borrow_mut().insert(id, link);
                }
                Err(error) => link
                    .enter(LinkPhase::Closed(Cause::Connect(error)), self.scheduler().executor()),
            },
            Submission::Disconnect(link) => {
                if let Ok(id) = link.usable() {
                    cx.disconnect(id);
                }
            }
        }
    }

    fn drain_cancel(&self, cx: &mut Context<'_, T>, key: usize) {
        // If the call has ended, its key may be another's; that one then waits to be cancelled, too.
        let session = match self.table().get(key) {
            Some(CallEntry { outcome: CallOutcome::Cancelled, link: Some(link), .. }) => {
                link.usable()
            }
            _ => return,
        };
        if let Ok(session) = session {
            cx.cancel(session, key as u64, Cause::Cancelled);
        }
    }

    /// Takes the request of a call back that was not handed to the protocol.
    fn take_unsent(&self, key: usize) -> Option<MsgBuf> {
        self.table().get(key)?.unsent.take().map(|unsent| unsent.request)
    }

    /// Submissions that are queued.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.submissions.borrow().len()
    }

    /// The endpoint has ended: what is queued fails.
    pub(crate) fn fail_queued(&self) {
        let late = self.submissions.take();
        late.into_iter().for_each(|submission| self.too_late(submission));
    }

    /// The endpoint has ended: a submission fails.
    #[cold]
    fn too_late(&self, submission: Submission<T::Route>) {
        match submission {
            Submission::Connect(link) => {
                link.enter(LinkPhase::Closed(Cause::Shutdown), self.scheduler().executor());
            }
            Submission::Call(key) => {
                let request = self.take_unsent(key);
                if request.is_some() {
                    self.failed(key, CallError::NotExecuted(Cause::Shutdown), request);
                }
            }
            Submission::Cancel(_) | Submission::Disconnect(_) => {}
        }
    }
}
