//! What a handler answers, now or later.

use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;

use super::codec::encode_sized;
use super::{Codec, Prost, ReplySink, Status};
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;

/// A handler's answer: a message, or word that a [`Responder`] will answer.
#[derive(Clone, PartialEq, Eq, Debug)]
#[must_use]
pub struct Response<M> {
    /// `None` if a responder has the answer.
    message: Option<M>,
}

impl<M> Response<M> {
    /// The answer `message`.
    #[inline]
    pub fn new(message: M) -> Self {
        Self { message: Some(message) }
    }

    /// Made by [`Request::defer`](super::Request::defer) only, so that nobody promises an answer
    /// without holding a responder.
    pub(super) fn deferred() -> Self {
        Self { message: None }
    }

    /// Whether a responder answers.
    #[must_use]
    pub fn is_deferred(&self) -> bool {
        self.message.is_none()
    }

    /// The message; `None` if a responder answers.
    #[must_use]
    #[inline]
    pub fn into_message(self) -> Option<M> {
        self.message
    }
}

impl<M> From<M> for Response<M> {
    #[inline]
    fn from(message: M) -> Self {
        Self::new(message)
    }
}

/// Answers one call, once, from any thread.
///
/// Answering takes the responder, so there is no second answer. If it is dropped instead, the caller
/// gets [`Code::Internal`](super::Code::Internal): no call is left without an end. A call that is never
/// answered because the responder is kept for ever is kept alive at both ends, too.
#[must_use = "a responder that is dropped fails the call"]
pub struct Responder<M, C = Prost> {
    /// `None` once answered, and from the start for a request that came from no network.
    reply: Option<(Arc<dyn ReplySink>, RequestHandle)>,
    types: PhantomData<fn(M) -> C>,
}

impl<M, C: Codec<M>> Responder<M, C> {
    /// Answers with a message. Encoded on this thread into a buffer of its own.
    ///
    /// The answer is silently dropped if the client is gone.
    pub fn send(mut self, message: &M) {
        let len = C::encoded_len(message);
        let result = match MsgBuf::detached(len) {
            Some(mut msgbuf) => {
                encode_sized::<C, M>(message, len, &mut msgbuf);
                Ok(msgbuf)
            }
            None => Err(Status::resource_exhausted("no memory for the response")),
        };
        self.answer(result);
    }
}

impl<M, C> Responder<M, C> {
    pub(super) fn new(reply: Option<(Arc<dyn ReplySink>, RequestHandle)>) -> Self {
        Self { reply, types: PhantomData }
    }

    /// Answers that the call failed.
    pub fn fail(mut self, status: Status) {
        self.answer(Err(status));
    }

    fn answer(&mut self, result: Result<MsgBuf, Status>) {
        if let Some((sink, call)) = self.reply.take() {
            sink.reply(call, result);
        }
    }
}

impl<M, C> Drop for Responder<M, C> {
    fn drop(&mut self) {
        if self.reply.is_some() {
            self.answer(Err(Status::internal("the handler gave the call up without an answer")));
        }
    }
}

impl<M, C> fmt::Debug for Responder<M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("call", &self.reply.as_ref().map(|(_, call)| call))
            .finish_non_exhaustive()
    }
}
