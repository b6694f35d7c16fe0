//! Submissions: connects, calls, cancels and disconnects that are queued for the protocol.
//!
//! The queue holds only the key of a call: the call itself is in the endpoint's table.

use std::rc::Rc;
use std::sync::Arc;

use super::calls::Calls;
use super::link::{Link, LinkPhase};
use super::options::{CallHead, PreparedCall};
use super::posted::PostedCall;
use super::table::{CallEntry, CallOutcome};
use crate::buf::MsgBuf;
use crate::event_loop::Context;
use crate::executor::scheduler::Lifecycle;
use crate::log;
use crate::protocol::{CallError, Cause, NewCall, RejectReason};
use crate::transport::Transport;

/// Queue length at which submissions made outside of a turn are drained without waiting for the
/// next turn.
const GATHER: usize = 32;

/// A user's operation that the raw endpoint has to perform.
pub(crate) enum Submission<R> {
    Connect(Rc<Link<R>>),
    /// Send the call with this key.
    Call(usize),
    Cancel(usize),
    Disconnect(Rc<Link<R>>),
}

impl<T: Transport> Calls<T> {
    /// Queues a call on `link` for the protocol. Fails the call instead if `call` is an error or if
    /// the endpoint is closed. Returns the call's key.
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

    /// Inserts a call that fails before it is sent. Returns its key.
    #[cold]
    pub(crate) fn refuse(&self, error: CallError, outcome: CallOutcome) -> usize {
        let key = self.table().insert(|| outcome, None, None, None);
        self.fail(key, error);
        key
    }

    /// Cancels a call and drops its outcome.
    pub(crate) fn cancel(&self, key: usize) {
        let mut calls = self.table();
        let Some(entry) = calls.get(key) else { return };
        let waits = entry.plan.as_deref_mut().is_some_and(|plan| self.withdraw(plan));
        // Dropping a waker or a plan may run arbitrary code, so the table must not be borrowed
        // then.
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

    /// Cancels a call of another thread, if it is still in progress.
    pub(crate) fn cancel_posted(&self, call: &Arc<PostedCall>) {
        if let Some(key) = call.key()
            && self.table().is_posted(key, call)
        {
            self.cancel(key);
        }
    }

    /// Queues a submission, or fails it if the endpoint has ended.
    pub(crate) fn submit(&self, submission: Submission<T::Route>) {
        if self.scheduler().lifecycle() >= Lifecycle::Ended {
            return self.too_late(submission);
        }
        self.queue(submission);
    }

    /// Queues a submission of an endpoint that has not ended.
    #[inline(always)]
    fn queue(&self, submission: Submission<T::Route>) {
        self.submissions.borrow_mut().push_back(submission);
        self.scheduler().wake_loop();
    }

    /// Whether the queue is long enough to be drained before the next turn.
    #[inline]
    pub(crate) fn has_gathered(&self) -> bool {
        self.submissions.borrow().len() >= GATHER
    }

    /// Hands the queued submissions to the protocol. Submissions that are queued during this call
    /// stay in the queue.
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
        let Some(request) = entry.unsent.take() else { return };
        let CallHead { method, flags, deadline } = entry.head;
        let usable = match (&entry.outcome, &entry.link) {
            // The call was cancelled before it was sent, so the server needs no cancel.
            (CallOutcome::Cancelled, _) => Err(Cause::Cancelled),
            (_, Some(link)) => link.usable(),
            (_, None) => Err(Cause::Disconnected),
        };
        drop(calls);
        let (error, request) = match usable {
            Ok(id) => {
                let (token, extended) = (key as u64, flags.is_extended());
                match cx.call(id, NewCall { method, request, token, extended, deadline }) {
                    Ok(()) => return,
                    Err(rejected) => (self.refusal(key, rejected.reason), rejected.request),
                }
            }
            Err(cause) => (CallError::NotExecuted(cause), request),
        };
        self.failed(key, error, Some(request));
    }

    /// The error of a call that the protocol has rejected.
    #[cold]
    fn refusal(&self, key: usize, reason: RejectReason) -> CallError {
        let mut calls = self.table();
        let link = calls.get(key).and_then(|entry| entry.link.as_ref());
        // The call was made before it was known that the server shuts down.
        match (reason, link.map(|link| link.phase())) {
            (RejectReason::PeerDraining, _) | (_, Some(LinkPhase::Draining)) => {
                CallError::NotExecuted(Cause::PeerDraining)
            }
            _ => CallError::Rejected(reason),
        }
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
                Err(error) => {
                    let cause = Cause::Connect(error);
                    log::session_ended(cx.now(), &link.peer, cause);
                    link.enter(LinkPhase::Closed(cause), self.scheduler().executor());
                }
            },
            Submission::Disconnect(link) => {
                if let Ok(id) = link.usable() {
                    cx.disconnect(id);
                }
            }
        }
    }

    fn drain_cancel(&self, cx: &mut Context<'_, T>, key: usize) {
        // The call may have ended and its key been reused. A cancelled entry then belongs to
        // another call whose own cancel is queued, so cancelling it here is right as well.
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

    /// Takes back the request of a call that was not handed to the protocol.
    fn take_unsent(&self, key: usize) -> Option<MsgBuf> {
        self.table().get(key)?.unsent.take()
    }

    /// The number of queued submissions.
    #[inline]
    pub(crate) fn queued(&self) -> usize {
        self.submissions.borrow().len()
    }

    /// Fails all queued submissions, as the endpoint has ended.
    pub(crate) fn fail_queued(&self) {
        let late = self.submissions.take();
        late.into_iter().for_each(|submission| self.too_late(submission));
    }

    /// Fails a submission, as the endpoint has ended.
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
