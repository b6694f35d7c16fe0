//! Calls that streams make to move messages.

use std::cell::RefCell;
use std::rc::Rc;

use slab::Slab;

use super::calls::Calls;
use super::retry::is_repeatable;
use crate::buf::MsgBuf;
use crate::event_loop::Context;
use crate::event_loop::flush::Flush;
use crate::protocol::{Body, CallError, Cause, NewCall, Rejected, Reply, SessionId};
use crate::stream::StreamOp;
use crate::transport::Transport;

/// Set in the tokens of stream calls. The other bits are the index in [`StreamCalls`].
const STREAM: u64 = 1 << 63;

/// The client's end of a stream, which makes calls to move messages.
pub(crate) trait StreamCaller<T: Transport>: Flush<T> {
    /// A call has ended. `Ok(None)` if the response is not a stream message.
    fn replied(&self, ask: StreamOp, result: Result<Option<MsgBuf>, CallError>);

    /// A call has ended with `error` without being executed, and another server may take it. `Err`
    /// returns the request if the stream cannot begin elsewhere; then [`StreamCaller::replied`]
    /// follows.
    fn keep(&self, ask: StreamOp, error: &CallError, request: MsgBuf) -> Result<(), MsgBuf>;
}

/// The stream calls in flight, by token.
pub(crate) struct StreamCalls<T: Transport> {
    calls: RefCell<Slab<StreamCall<T>>>,
}

struct StreamCall<T: Transport> {
    stream: Rc<dyn StreamCaller<T>>,
    ask: StreamOp,
}

impl<T: Transport> Default for StreamCalls<T> {
    fn default() -> Self {
        Self { calls: RefCell::default() }
    }
}

impl<T: Transport> StreamCalls<T> {
    /// Whether the token belongs to a stream's call.
    #[inline]
    pub(crate) fn is_token(token: u64) -> bool {
        token & STREAM != 0
    }

    /// Makes a call of `stream`. Sets the token of `call`.
    ///
    /// # Errors
    /// [`Rejected`], as [`Context::call`].
    pub(crate) fn call(
        &self,
        cx: &mut Context<'_, T>,
        session: SessionId,
        stream: Rc<dyn StreamCaller<T>>,
        ask: StreamOp,
        call: NewCall,
    ) -> Result<(), Rejected> {
        let key = self.calls.borrow_mut().insert(StreamCall { stream, ask });
        let call = NewCall { token: STREAM | key as u64, ..call };
        cx.call(session, call).inspect_err(|_| {
            let call = self.calls.borrow_mut().remove(key);
            drop(call);
        })
    }

    /// Cancels all calls of a stream on its session.
    #[cold]
    pub(crate) fn cancel(
        &self,
        cx: &mut Context<'_, T>,
        session: SessionId,
        stream: &dyn StreamCaller<T>,
        cause: Cause,
    ) {
        let calls = self.calls.borrow();
        let own =
            calls.iter().filter(|(_, call)| std::ptr::addr_eq(&raw const *call.stream, stream));
        let keys: Vec<usize> = own.map(|(key, _)| key).collect();
        drop(calls);
        for key in keys {
            cx.cancel(session, STREAM | key as u64, cause);
        }
    }

    /// Ends all stream calls, as the endpoint has ended.
    pub(crate) fn end_all(&self) {
        let calls = std::mem::take(&mut *self.calls.borrow_mut());
        for (_, StreamCall { stream, ask }) in calls {
            stream.replied(ask, Err(CallError::MaybeExecuted(Cause::Shutdown)));
        }
    }
}

impl<T: Transport> Calls<T> {
    /// Passes the outcome of a stream call to its stream.
    pub(crate) fn stream_replied(
        &self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        let call = self.streams().calls.borrow_mut().try_remove((token & !STREAM) as usize);
        debug_assert!(call.is_some(), "a stream call ended twice");
        let Some(StreamCall { stream, ask }) = call else { return };
        let result = match reply {
            Ok(Reply { body: Body::Message(message), extended: true }) => {
                self.pool().recycle(request);
                Ok(Some(message))
            }
            Ok(Reply { body: Body::Packet(bytes), extended: true }) => {
                let message = self.pool().copy_into(request, bytes);
                message.map(Some).map_err(|_| CallError::ResponseLost(Cause::NoMemory))
            }
            Ok(Reply { extended: false, .. }) => Ok(None),
            Err(error) => {
                let kept = match is_repeatable(&error) {
                    true => stream.keep(ask, &error, request),
                    false => Err(request),
                };
                match kept {
                    Ok(()) => return stream.flush(cx),
                    Err(request) => self.pool().recycle(request),
                }
                Err(error)
            }
        };
        stream.replied(ask, result);
        stream.flush(cx);
    }
}
