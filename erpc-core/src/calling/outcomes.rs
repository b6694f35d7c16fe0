//! How calls end: from the protocol, or from what stopped them on their way there, to who waits.

use std::cell::RefMut;

use crate::buf::MsgBuf;
use crate::calling::callback::Waiting;
use crate::calling::table::{Calls, Kept, Outcome, lasting};
use crate::client::call::message;
use crate::endpoint::state::Shared;
use crate::event_loop::Context;
use crate::protocol::{Body, CallError, Reply};
use crate::transport::Transport;

/// What waits for its future.
#[inline(always)]
fn kept(bytes: Result<MsgBuf, CallError>, extended: bool) -> Outcome {
    match bytes {
        Ok(bytes) => Outcome::Done(Some(Kept { bytes, extended })),
        Err(error) => Outcome::Failed(Box::new(error)),
    }
}

impl<T: Transport> Shared<T> {
    /// A reply has come that is one packet and nothing but the message: the common case.
    #[inline]
    pub(crate) fn plain_reply(&self, key: usize, bytes: &[u8], request: MsgBuf) {
        let mut calls = self.calls();
        let Some(entry) = calls.get(key) else {
            return debug_assert!(false, "call {key} ends twice");
        };
        let _link = entry.leave_session();
        if let Outcome::Awaited(_) = entry.outcome {
            let lasting = lasting(bytes, request, &mut self.pool());
            let ended = calls.finish(key, || kept(lasting, false));
            drop(calls);
            return ended.wake(&self.executor);
        }
        let callback = calls.take_callback(key);
        if callback.is_none() {
            Self::forsaken(calls, key);
        } else {
            drop(calls);
        }
        self.pool().recycle(request);
        if let Some((callback, _plan)) = callback {
            self.tell(callback, |callback| callback.reply(bytes));
        }
    }

    /// A reply has come, or a call that was sent has failed.
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
        let mut calls = self.calls();
        let Some(entry) = calls.get(key) else {
            return debug_assert!(false, "call {key} ends twice");
        };
        let _link = entry.leave_session();
        if let Outcome::Awaited(_) = entry.outcome {
            let bytes = match body {
                Body::Message(message) => {
                    self.pool().recycle(request);
                    Ok(message)
                }
                Body::Packet(bytes) => lasting(bytes, request, &mut self.pool()),
            };
            let ended = calls.finish(key, || kept(bytes, extended));
            drop(calls);
            return ended.wake(&self.executor);
        }
        let callback = calls.take_callback(key);
        if callback.is_none() {
            Self::forsaken(calls, key);
        } else {
            drop(calls);
        }
        self.pool().recycle(request);
        if let Some((callback, _plan)) = callback {
            match message(body.as_slice(), extended) {
                Ok(bytes) => self.tell(callback, |callback| callback.reply(bytes)),
                Err(error) => self.tell(callback, |callback| callback.fail(error)),
            }
        }
        if let Body::Message(message) = body {
            cx.recycle(message);
        }
    }

    /// A call that was sent has failed.
    #[cold]
    fn broken_off(&self, key: usize, error: CallError, request: MsgBuf) {
        let link = self.calls().leave_session(key);
        if let Err((error, request)) = self.again(key, link, error, request) {
            self.pool().recycle(request);
            self.end_with_error(key, error);
        }
    }

    /// A call has failed, of which nothing was sent in this attempt.
    #[cold]
    pub(crate) fn failed(&self, key: usize, error: CallError, request: Option<MsgBuf>) {
        let link = self.calls().leave_session(key);
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

    /// Ends a call that is nowhere any more. A callback is not run here, as this may be within the call
    /// that it was given to.
    pub(crate) fn fail(&self, key: usize, error: CallError) {
        if self.calls().has_callback(key) {
            if self.is_orphaned() {
                return self.forget(key);
            }
            self.failures.borrow_mut().push_back((key, error));
            self.stir();
        } else {
            self.end_with_error(key, error);
        }
    }

    pub(crate) fn end_with_error(&self, key: usize, error: CallError) {
        let mut calls = self.calls();
        if calls.is_awaited(key) {
            let ended = calls.finish(key, || Outcome::Failed(Box::new(error)));
            drop(calls);
            return ended.wake(&self.executor);
        }
        match calls.take_callback(key) {
            Some((callback, _plan)) => {
                drop(calls);
                self.tell(callback, |callback| callback.fail(error));
            }
            None => Self::forsaken(calls, key),
        }
    }

    /// A call has ended whose outcome nobody wants.
    #[cold]
    fn forsaken(mut calls: RefMut<'_, Calls<T>>, key: usize) {
        let ended = calls.remove(key);
        drop(calls);
        debug_assert!(ended.is_some(), "call {key} ends twice");
    }

    /// Tells the callbacks whose calls failed before anything was sent; returns how many.
    pub(crate) fn run_failures(&self) -> usize {
        let count = self.failures.borrow().len();
        for _ in 0..count {
            let failure = self.failures.borrow_mut().pop_front();
            if let Some((key, error)) = failure {
                self.end_with_error(key, error);
            }
        }
        count
    }

    /// Runs a callback.
    #[inline(always)]
    fn tell(&self, mut callback: Box<dyn Waiting>, tell: impl FnOnce(&mut dyn Waiting)) {
        self.guard(|| tell(&mut *callback));
        self.callbacks.keep(callback);
    }
}
