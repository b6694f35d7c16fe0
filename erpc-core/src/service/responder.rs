//! Deferred answers: sent later, from any thread.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::context::CallEnd;
use super::detached::DetachedCall;
use super::interceptor::Passage;
use super::reply::{Encoded, ReplySink, detached, encode_reply, of_another_kind};
use super::{CallContext, Codec, MetadataRef, Viewable};
use crate::protocol::RequestHandle;
use crate::status::Status;

/// Answers one call, once, from any thread.
///
/// Answering consumes the responder, so there is only one answer. If the responder is dropped
/// instead, the caller gets [`Code::Internal`](crate::status::Code::Internal), so every call ends.
/// If a responder is kept forever, its call stays in progress at the client and at the server.
#[must_use = "a responder that is dropped fails the call"]
pub struct Responder<M: 'static> {
    /// `None` once answered, and always for a request that did not come from the network.
    call: Option<Deferred>,
    /// `None` if the method's responses have another type.
    encoder: Option<&'static Encoder<M>>,
}

impl<M> Responder<M> {
    pub(super) fn new(reply: Option<(Deferred, Option<&'static Encoder<M>>)>) -> Self {
        let (call, encoder) = reply.map_or((None, None), |(call, encoder)| (Some(call), encoder));
        Self { call, encoder }
    }

    /// Answers with a message. The message is encoded on this thread into a buffer outside of the
    /// endpoint's pool. If it exceeds the method's limit, or there is no memory, the caller gets
    /// that failure instead.
    ///
    /// The answer is dropped silently if the client is gone.
    pub fn send(self, message: &M) {
        self.send_with(message, MetadataRef::default());
    }

    /// Like [`Responder::send`], with metadata.
    pub fn send_with(mut self, message: &M, metadata: MetadataRef<'_>) {
        let Some(call) = self.call.take() else { return };
        let result = match self.encoder {
            Some(encoder) => encoder.encode(message, metadata, call.max_response),
            None => Err(Status::internal("the handler deferred a response of another type")),
        };
        call.answer(result);
    }

    /// Like [`Responder::send`], with a view. If the method's responses are not protocol buffers, the
    /// caller gets [`Code::Internal`](crate::status::Code::Internal).
    pub fn send_view(self, view: &M::View<'_>)
    where
        M: Viewable,
    {
        self.send_view_with(view, MetadataRef::default());
    }

    /// Like [`Responder::send_view`], with metadata.
    pub fn send_view_with(mut self, view: &M::View<'_>, metadata: MetadataRef<'_>)
    where
        M: Viewable,
    {
        let Some(call) = self.call.take() else { return };
        let result = match self.encoder {
            Some(encoder) if encoder.is_protobuf() => {
                let (len, limit) = (M::view_len(view), call.max_response);
                encode_reply(len, metadata, limit, detached, |out| M::encode_view(view, out))
            }
            _ => Err(of_another_kind()),
        };
        call.answer(result);
    }

    /// Whether the answer is no longer wanted: the caller has cancelled the call or is gone, or the
    /// [deadline](CallContext::deadline) has passed. Callable from any thread at any time. Costs
    /// one load, and one clock read if there is a deadline. Even if the result is true, answer the
    /// call, with any result: only the answer ends the call at the server.
    ///
    /// This is a hint: the caller may cancel right after the check, and its cancel has to cross the
    /// network first. False for a request that did not come from the network.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.end.has_come())
    }

    /// Answers with a failure.
    pub fn fail(mut self, status: Status) {
        if let Some(call) = self.call.take() {
            call.answer(Err(status));
        }
    }
}

impl<M> Drop for Responder<M> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call.answer(Err(Status::internal(
                "the handler dropped its responder without an answer",
            )));
        }
    }
}

impl<M> fmt::Debug for Responder<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Responder")
            .field("call", &self.call.as_ref().map(|deferred| deferred.call))
            .finish_non_exhaustive()
    }
}

/// Encodes responses of type `M` into a separate buffer. A [`Responder`] holds this instead of the
/// method's codec, so that handlers need not name the codec.
pub(super) struct Encoder<M> {
    encode: fn(&M, MetadataRef<'_>, u32) -> Result<Encoded, Status>,
    is_protobuf: bool,
}

impl<M: 'static> Encoder<M> {
    #[inline]
    pub(super) const fn of<D: Codec<M>>() -> &'static Self {
        const {
            &Self {
                encode: |message, metadata, limit| {
                    let len = D::encoded_len(message);
                    encode_reply(len, metadata, limit, detached, |out| D::encode(message, out))
                },
                is_protobuf: D::IS_PROTOBUF,
            }
        }
    }

    /// Whether the responses are protocol buffers.
    #[inline]
    pub(super) fn is_protobuf(&self) -> bool {
        self.is_protobuf
    }

    /// Encodes a response of at most `limit` bytes.
    pub(super) fn encode(
        &self,
        message: &M,
        metadata: MetadataRef<'_>,
        limit: u32,
    ) -> Result<Encoded, Status> {
        (self.encode)(message, metadata, limit)
    }
}

/// A call that is answered outside of its handler.
pub(super) struct Deferred {
    call: RequestHandle,
    sink: Arc<dyn ReplySink>,
    end: CallEnd,
    max_response: u32,
    /// `None` if there are no interceptors.
    observed: Option<Box<DetachedCall>>,
}

impl Deferred {
    /// Defers the answer to a call.
    pub(super) fn of(context: &CallContext<'_>) -> Self {
        let (call, sink, end) = context.defer();
        let method = context.info();
        let observe = || Box::new(DetachedCall::of(context));
        let observed = (!method.interceptors().is_empty()).then(observe);
        Self { call, max_response: method.max_response(), observed, end, sink }
    }

    fn answer(self, result: Result<Encoded, Status>) {
        let told = self.observed.map(|observed| {
            let outcome = result.as_ref().map(|_| ()).map_err(Status::clone);
            (observed, outcome)
        });
        // `end` refers to the call's cancel flag. The endpoint reuses the flag after the answer
        // only if no other reference to it is left.
        drop(self.end);
        self.sink.reply(self.call, result);
        if let Some((observed, outcome)) = told {
            let context = observed.context();
            // The answer is sent. A panic of an interceptor must not leave this function: an unwind
            // may be dropping the responder, and a second panic would abort the process.
            let leave = || Passage::inside(&context).leave(outcome.as_ref().copied());
            drop(catch_unwind(AssertUnwindSafe(leave)));
        }
    }
}
