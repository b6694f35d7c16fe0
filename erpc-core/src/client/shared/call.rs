//! Calls of a shared channel, as futures.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};

use super::buffers::keep_buffer;
use super::lane::{Lane, Post};
use crate::calling::posted::PostedCall;
use crate::calling::response::{KeptReply, decoded, named};
use crate::endpoint::entered::runs_here;
use crate::protocol::{CallError, RejectReason};
use crate::service::{Codec, Metadata, Method};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// A call in flight, made on a [`SharedChannel`](super::SharedChannel): the future of its response,
/// for any thread and any runtime.
///
/// The request is sent whether or not the future is polled. Dropping the future cancels the call.
#[must_use = "dropping the call cancels it"]
pub struct SharedCall<M, T: Transport = UdpTransport> {
    state: CallState<T>,
    /// The method's full name.
    method: &'static str,
    /// Longest response, in bytes.
    limit: u32,
    decode: fn(&[u8], u32) -> Result<M, CallError>,
    message: PhantomData<fn() -> M>,
}

enum CallState<T: Transport> {
    Posted(Arc<PostedCall>, Arc<Lane<T>>),
    /// The request could not be encoded.
    Refused(RejectReason),
    /// The outcome was taken.
    Over,
}

impl<M, T: Transport> SharedCall<M, T> {
    /// The future of a posted call, or of one that could not be encoded.
    pub(super) fn new<Req, C, D: Codec<M>>(
        method: &Method<Req, M, C, D>,
        posted: Result<(Arc<PostedCall>, Arc<Lane<T>>), RejectReason>,
    ) -> Self {
        Self {
            state: match posted {
                Ok((call, lane)) => CallState::Posted(call, lane),
                Err(reason) => CallState::Refused(reason),
            },
            method: method.full_name(),
            limit: method.response_limit(),
            decode: decoded::<M, D>,
            message: PhantomData,
        }
    }

    /// Whether the output has arrived, so that awaiting the call returns immediately.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        match &self.state {
            CallState::Posted(call, _) => call.is_ended(),
            CallState::Refused(_) => true,
            CallState::Over => false,
        }
    }

    /// Turns the call into a future that also returns the response's metadata.
    pub fn with_metadata(self) -> SharedCallWithMetadata<M, T> {
        SharedCallWithMetadata { call: self }
    }

    /// Blocks this thread until the response arrives, for code that is not async.
    ///
    /// # Errors
    /// Those of the call.
    ///
    /// # Panics
    /// Within the loop of an endpoint: a handler, a callback or a task there would block the calls
    /// of its endpoint. Await the call instead.
    pub fn wait(self) -> Result<M, CallError> {
        assert!(
            !runs_here(),
            "`wait` would block the event loop that runs this code; await the call instead"
        );
        let waker = Waker::from(Arc::new(Parked(thread::current())));
        let (mut cx, mut call) = (Context::from_waker(&waker), pin!(self));
        loop {
            if let Poll::Ready(result) = call.as_mut().poll(&mut cx) {
                return result;
            }
            thread::park();
        }
    }

    fn poll_reply(&mut self, cx: &Context<'_>) -> Poll<Result<KeptReply, CallError>> {
        let outcome = match &self.state {
            CallState::Posted(call, lane) => {
                lane.release_tasks();
                std::task::ready!(call.poll(cx))
            }
            CallState::Refused(reason) => Err(CallError::Rejected(*reason)),
            CallState::Over => panic!("a call is not polled after it has ended"),
        };
        self.state = CallState::Over;
        Poll::Ready(outcome.map_err(|error| named(error, self.method)))
    }
}

/// Wakes a thread that waits for a call.
struct Parked(Thread);

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

impl<M, T: Transport> Future for SharedCall<M, T> {
    type Output = Result<M, CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let call = &mut *self;
        call.poll_reply(cx).map(|reply| {
            let reply = reply?;
            let message = reply.message().and_then(|bytes| (call.decode)(bytes, call.limit));
            keep_buffer(reply.bytes);
            message
        })
    }
}

impl<M, T: Transport> Drop for SharedCall<M, T> {
    fn drop(&mut self) {
        if let CallState::Posted(call, lane) = &self.state
            && call.abandon()
        {
            lane.post(Post::Cancel(Arc::clone(call)));
        }
    }
}

impl<M, T: Transport> fmt::Debug for SharedCall<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedCall").field("method", &self.method).finish_non_exhaustive()
    }
}

/// A call in flight: the future of its response and metadata; see [`SharedCall::with_metadata`].
#[must_use = "dropping the call cancels it"]
#[derive(Debug)]
pub struct SharedCallWithMetadata<M, T: Transport = UdpTransport> {
    call: SharedCall<M, T>,
}

impl<M, T: Transport> Future for SharedCallWithMetadata<M, T> {
    type Output = Result<(M, Metadata), CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call } = &mut *self;
        call.poll_reply(cx).map(|reply| {
            let reply = reply?;
            let metadata = reply.metadata();
            let message = reply.message().and_then(|bytes| (call.decode)(bytes, call.limit));
            keep_buffer(reply.bytes);
            Ok((message?, metadata?))
        })
    }
}
