//! Delivers the outcome of a call to its future or callback.

use std::cell::RefMut;

use super::callback::Callback;
use super::calls::{Calls, FailedCall};
use super::posted::PostedOutcome;
use super::response::{KeptReply, message};
use super::table::{CallEntry, CallOutcome, CallTable};
use crate::buf::{MsgBuf, NoMemory};
use crate::event_loop::Context;
use crate::executor::scheduler::Lifecycle;
use crate::protocol::{Body, CallError, Cause, Reply};
use crate::transport::Transport;

/// The outcome of a cancelled call, which is dropped.
const UNWANTED: CallError = CallError::NotExecuted(Cause::Cancelled);

/// The outcome for a future on another thread.
fn posted_reply(bytes: Result<MsgBuf, NoMemory>, extended: bool) -> PostedOutcome {
    match bytes {
        Ok(bytes) => Ok(KeptReply { bytes, extended }),
        Err(_) => Err(CallError::ResponseLost(Cause::NoMemory)),
    }
}

/// The outcome that is stored until its future takes it.
#[inline(always)]
fn kept(bytes: Result<MsgBuf, NoMemory>, extended: bool) -> CallOutcome {
    match bytes {
        Ok(bytes) => CallOutcome::Done(Some(KeptReply { bytes, extended })),
        Err(_) => CallOutcome::Failed(Box::new(CallError::ResponseLost(Cause::NoMemory))),
    }
}

impl<T: Transport> Calls<T> {
    /// Handles a reply that is one packet without an extension: the common case.
    #[inline]
    pub(crate) fn plain_reply(&self, key: usize, bytes: &[u8], request: MsgBuf) {
        let mut calls = self.table();
        let Some(entry) = calls.get(key) else {
            return debug_assert!(false, "call {key} ended twice");
        };
        let _link = entry.leave_session();
        if let CallOutcome::Awaited(_) = entry.outcome {
            let copy = self.pool().copy_into(request, bytes);
            let ended = calls.finish(key, || kept(copy, false));
            drop(calls);
            return ended.wake(self.scheduler().executor());
        }
        let Some((callback, _plan)) = calls.take_callback(key) else {
            return self.plain_reply_elsewhere(calls, key, bytes, request);
        };
        drop(calls);
        self.pool().recycle(request);
        self.run_callback(callback, |callback| callback.reply(bytes));
    }

    /// Handles a plain reply to a call of another thread or to a cancelled call.
    #[inline(never)]
    fn plain_reply_elsewhere(
        &self,
        calls: RefMut<'_, CallTable<T::Route>>,
        key: usize,
        bytes: &[u8],
        request: MsgBuf,
    ) {
        self.end_elsewhere(calls, key, |posted| {
            if posted {
                let copy = self.pool().copy_into(request, bytes);
                return posted_reply(copy, false);
            }
            self.pool().recycle(request);
            Err(UNWANTED)
        });
    }

    /// Handles a reply, or the failure of a call that the protocol had accepted.
    #[inline(never)]
    pub(crate) fn replied(
        &self,
        cx: &mut Context<'_, T>,
        key: usize,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        let Reply { body, extended } = match reply {
            Ok(reply) => reply,
            Err(error) => return self.broken_off(key, error, request),
        };
        let mut calls = self.table();
        let Some(entry) = calls.get(key) else {
            return debug_assert!(false, "call {key} ended twice");
        };
        let _link = entry.leave_session();
        if let CallOutcome::Awaited(_) = entry.outcome {
            let bytes = match body {
                Body::Message(message) => {
                    self.pool().recycle(request);
                    Ok(message)
                }
                Body::Packet(bytes) => self.pool().copy_into(request, bytes),
            };
            let ended = calls.finish(key, || kept(bytes, extended));
            drop(calls);
            return ended.wake(self.scheduler().executor());
        }
        let Some((callback, _plan)) = calls.take_callback(key) else {
            return self.reply_elsewhere(cx, calls, key, Reply { body, extended }, request);
        };
        drop(calls);
        self.pool().recycle(request);
        match message(body.as_slice(), extended) {
            Ok(bytes) => self.run_callback(callback, |callback| callback.reply(bytes)),
            Err(error) => self.run_callback(callback, |callback| callback.fail(error)),
        }
        if let Body::Message(message) = body {
            cx.recycle(message);
        }
    }

    /// Handles a reply to a call of another thread or to a cancelled call.
    fn reply_elsewhere(
        &self,
        cx: &mut Context<'_, T>,
        calls: RefMut<'_, CallTable<T::Route>>,
        key: usize,
        Reply { body, extended }: Reply<'_>,
        request: MsgBuf,
    ) {
        self.end_elsewhere(calls, key, |posted| {
            let bytes = match body {
                Body::Packet(bytes) if posted => self.pool().copy_into(request, bytes),
                Body::Message(message) if posted => {
                    self.pool().recycle(request);
                    Ok(message)
                }
                body => {
                    self.pool().recycle(request);
                    if let Body::Message(message) = body {
                        cx.recycle(message);
                    }
                    return Err(UNWANTED);
                }
            };
            posted_reply(bytes, extended)
        });
    }

    /// Retries a call that failed after the protocol had accepted it, or ends it.
    #[cold]
    fn broken_off(&self, key: usize, error: CallError, request: MsgBuf) {
        let link = self.table().leave_session(key);
        if let Err((error, request)) = self.again(key, link, error, request) {
            self.pool().recycle(request);
            self.end_with_error(key, error);
        }
    }

    /// Retries a call whose current attempt failed before anything of it was sent, or ends it.
    #[cold]
    pub(crate) fn failed(&self, key: usize, error: CallError, request: Option<MsgBuf>) {
        let link = self.table().leave_session(key);
        let error = match request {
            None => error,
            Some(request) => match self.again(key, link, error, request) {
                Ok(()) => return,
                Err((error, request)) => {
                    self.pool().recycle(request);
                    error
                }
            },
        };
        self.fail(key, error);
    }

    /// Ends a call that neither the protocol nor a queue holds any more. A callback does not run
    /// here: the caller may be the function that the callback was passed to.
    pub(crate) fn fail(&self, key: usize, error: CallError) {
        if self.table().has_callback(key) {
            if self.scheduler().lifecycle() == Lifecycle::Orphaned {
                return self.drop_callback(key);
            }
            self.failures.borrow_mut().push_back(FailedCall { key, error });
            self.scheduler().wake_loop();
        } else {
            self.end_with_error(key, error);
        }
    }

    pub(super) fn end_with_error(&self, key: usize, error: CallError) {
        let mut calls = self.table();
        if calls.is_awaited(key) {
            let ended = calls.finish(key, || CallOutcome::Failed(Box::new(error)));
            drop(calls);
            return ended.wake(self.scheduler().executor());
        }
        match calls.take_callback(key) {
            Some((callback, _plan)) => {
                drop(calls);
                self.run_callback(callback, |callback| callback.fail(error));
            }
            None => self.end_elsewhere(calls, key, |_| Err(error)),
        }
    }

    /// Ends a call that neither a future nor a callback of this endpoint waits for: a call of
    /// another thread, which gets the outcome, or a cancelled call. `outcome` is called with true
    /// for a call of another thread.
    fn end_elsewhere(
        &self,
        mut calls: RefMut<'_, CallTable<T::Route>>,
        key: usize,
        outcome: impl FnOnce(bool) -> PostedOutcome,
    ) {
        let ended = calls.remove(key);
        drop(calls);
        debug_assert!(ended.is_some(), "call {key} ended twice");
        match ended {
            Some(CallEntry { outcome: CallOutcome::Posted(call), .. }) => {
                if let Some(waker) = call.end(outcome(true)) {
                    self.wakes().push(waker);
                }
            }
            _ => drop(outcome(false)),
        }
    }

    /// Runs the callbacks of the calls that are in `failures` now. Calls that the callbacks add
    /// stay there. Returns the number of callbacks run.
    pub(crate) fn run_failures(&self) -> usize {
        let count = self.failures.borrow().len();
        for _ in 0..count {
            let failure = self.failures.borrow_mut().pop_front();
            if let Some(FailedCall { key, error }) = failure {
                self.end_with_error(key, error);
            }
        }
        count
    }

    /// Runs a callback and stores its box for reuse.
    #[inline(always)]
    fn run_callback(&self, mut callback: Box<dyn Callback>, run: impl FnOnce(&mut dyn Callback)) {
        self.scheduler().run_callback(|| run(&mut *callback));
        self.callbacks().keep(callback);
    }
}
