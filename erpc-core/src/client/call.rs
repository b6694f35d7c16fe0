//! Calls as futures.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use crate::calling::response::{KeptReply, decode_in, named, undecoded};
use crate::endpoint::parts::EndpointParts;
use crate::protocol::CallError;
use crate::service::{Codec, Metadata, Method};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// A call in flight: the future of its response.
///
/// The endpoint sends the request in this turn or the next, or once the channel has a session,
/// whether or not the future is polled. Dropping the future cancels the call: an unsent request is
/// not sent, and a server that works on the call receives a cancel, possibly too late.
///
/// Code that is not async waits for the call with
/// [`Endpoint::block_on`](crate::endpoint::Endpoint::block_on).
#[must_use = "dropping the call cancels it; to send without waiting, use a callback"]
pub struct Call<M, T: Transport = UdpTransport> {
    endpoint: Rc<EndpointParts<T>>,
    /// [`TAKEN`] once the output is taken. The key and the limit share a word: a call is moved when
    /// it is awaited, soon after its fields were written.
    key: u32,
    /// Longest response, in bytes.
    limit: u32,
    /// The method's full name.
    method: &'static str,
    /// Decodes the reply and returns its buffer to the pool.
    finish: fn(&Self, KeptReply) -> Poll<Result<M, CallError>>,
    message: PhantomData<fn() -> M>,
}

/// No key of a call: a table holds at most 2^32 - 1 calls.
const TAKEN: u32 = u32::MAX;

impl<M, T: Transport> Call<M, T> {
    #[inline(always)]
    pub(crate) fn new<Req, C, D: Codec<M>>(
        endpoint: &Rc<EndpointParts<T>>,
        method: &Method<Req, M, C, D>,
        key: usize,
    ) -> Self {
        Self {
            endpoint: Rc::clone(endpoint),
            key: key as u32,
            limit: method.response_limit(),
            method: method.full_name(),
            finish: Self::finish::<D>,
            message: PhantomData,
        }
    }

    /// Whether the output has arrived, so that awaiting the call returns immediately.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.key().is_some_and(|key| self.endpoint.calls().table().is_done(key))
    }

    /// The call's key in the table of calls; `None` once the output is taken.
    #[inline]
    fn key(&self) -> Option<usize> {
        (self.key != TAKEN).then_some(self.key as usize)
    }

    /// Turns the call into a future that also returns the response's metadata.
    pub fn with_metadata(self) -> WithMetadata<M, T> {
        WithMetadata { call: self }
    }

    /// Polls for the reply. The caller recycles the reply's buffer.
    #[inline(always)]
    fn poll_reply(&mut self, cx: &Context<'_>) -> Poll<Result<KeptReply, CallError>> {
        let key = self.key().expect("a call is not polled after it has ended");
        let mut calls = self.endpoint.calls().table();
        if let Some(kept) = calls.take_reply(key) {
            self.key = TAKEN;
            return Poll::Ready(Ok(kept));
        }
        // The common case of a wait: the first poll, by a task of the endpoint.
        if let Some(task) = self.endpoint.scheduler().executor().own_task(cx)
            && calls.wait_as(key, task)
        {
            return Poll::Pending;
        }
        drop(calls);
        self.wait(key, cx).map(Err)
    }

    /// See the field `finish`. Returns the future's output, although it is never pending: it is
    /// then written where the caller of `poll` needs it. A message that was just decoded is slow to
    /// move, because the move waits for the writes of its fields.
    fn finish<D: Codec<M>>(&self, reply: KeptReply) -> Poll<Result<M, CallError>> {
        let mut output = Poll::Ready(undecoded::<M, D>());
        if let Poll::Ready(result) = &mut output {
            match reply.message() {
                Ok(bytes) => decode_in::<M, D>(result, bytes, self.limit),
                Err(error) => *result = Err(error),
            }
        }
        self.endpoint.pool().recycle(reply.bytes);
        output
    }

    #[cold]
    fn wait(&mut self, key: usize, cx: &Context<'_>) -> Poll<CallError> {
        let waiter = self.endpoint.scheduler().executor().wake_slot(cx);
        let waits = self.endpoint.calls().table().wait(key, waiter);
        // Dropping the previous waiter may run arbitrary code; the table is no longer borrowed.
        waits.map_or(Poll::Pending, |error| {
            self.key = TAKEN;
            Poll::Ready(named(error, self.method))
        })
    }
}

impl<M, T: Transport> Future for Call<M, T> {
    type Output = Result<M, CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match self.poll_reply(cx) {
            Poll::Ready(Ok(reply)) => (self.finish)(&self, reply),
            Poll::Ready(Err(error)) => Poll::Ready(Err(error)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<M, T: Transport> Drop for Call<M, T> {
    fn drop(&mut self) {
        if let Some(key) = self.key() {
            self.endpoint.cancel(key);
        }
    }
}

impl<M, T: Transport> fmt::Debug for Call<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key()).finish_non_exhaustive()
    }
}

/// A call in flight: the future of its response and metadata; see [`Call::with_metadata`].
#[must_use = "dropping the call cancels it"]
#[derive(Debug)]
pub struct WithMetadata<M, T: Transport = UdpTransport> {
    call: Call<M, T>,
}

impl<M, T: Transport> Future for WithMetadata<M, T> {
    type Output = Result<(M, Metadata), CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call } = &mut *self;
        let reply = ready!(call.poll_reply(cx))?;
        let metadata = reply.metadata();
        let message = ready!((call.finish)(call, reply));
        Poll::Ready(message.and_then(|message| Ok((message, metadata?))))
    }
}
