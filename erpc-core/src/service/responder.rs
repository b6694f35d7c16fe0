//! What a handler answers later, from any thread.

use std::fmt;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::context::CallEnd;
use super::info::MethodInfo;
use super::interceptor::Passage;
use super::reply::{Encoded, ReplySink, encode_reply};
use super::{CallContext, CallHost, Codec, Metadata, MetadataRef};
use crate::buf::MsgBuf;
use crate::protocol::{ClientStats, RequestHandle};
use crate::status::Status;
use crate::time::Instant;

/// Answers one call, once, from any thread.
///
/// Answering takes the responder, so there is no second answer. If it is dropped instead, the caller
/// gets [`Code::Internal`](crate::status::Code::Internal): no call is left without an end. A call that is never
/// answered because the responder is kept for ever is kept alive at both ends, too.
#[must_use = "a responder that is dropped fails the call"]
pub struct Responder<M: 'static> {
    /// `None` once answered, and from the start for a request that came from no network.
    call: Option<Deferred>,
    /// `None` if the method's responses are of another type.
    encoder: Option<&'static Encoder<M>>,
}

impl<M> Responder<M> {
    pub(super) fn new(reply: Option<(Deferred, Option<&'static Encoder<M>>)>) -> Self {
        let (call, encoder) = reply.map_or((None, None), |(call, encoder)| (Some(call), encoder));
        Self { call, encoder }
    }

    /// Answers with a message. Encoded on this thread into a buffer of its own.
    ///
    /// The answer is silently dropped if the client is gone.
    pub fn send(self, message: &M) {
        self.send_with(message, MetadataRef::default());
    }

    /// As [`Responder::send`], with something beside the message.
    pub fn send_with(mut self, message: &M, metadata: MetadataRef<'_>) {
        let Some(call) = self.call.take() else { return };
        let result = match self.encoder {
            Some(Encoder(encode)) => encode(message, metadata, call.max_response),
            None => Err(Status::internal("the handler deferred an answer of another type")),
        };
        call.answer(result);
    }

    /// Whether the answer is not wanted any more: the caller has given the call up or is gone, or its
    /// [deadline](CallContext::deadline) has passed. From any thread, at any time; one load, and a look at the clock if there
    /// is a deadline. Answer all the same, with whatever there is: that ends the call here, too.
    ///
    /// It is a hint: the caller may give up right after, and its word takes as long as a packet. False for a request that
    /// came from no network.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.call.as_ref().is_some_and(|call| call.end.has_come())
    }

    /// Answers that the call failed.
    pub fn fail(mut self, status: Status) {
        if let Some(call) = self.call.take() {
            call.answer(Err(status));
        }
    }
}

impl<M> Drop for Responder<M> {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            call.answer(Err(Status::internal("the handler gave the call up without an answer")));
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

/// How responses of type `M` are encoded into memory of their own; what a [`Responder`] has in place of
/// the method's codec, so that handlers need not name it.
pub(super) struct Encoder<M>(fn(&M, MetadataRef<'_>, u32) -> Result<Encoded, Status>);

impl<M: 'static> Encoder<M> {
    #[inline]
    pub(super) const fn of<D: Codec<M>>() -> &'static Self {
        const {
            &Self(|message, metadata, limit| {
                encode_reply::<D, M>(message, metadata, limit, |len| {
                    MsgBuf::detached(len)
                        .ok_or_else(|| Status::resource_exhausted("no memory for the response"))
                })
            })
        }
    }
}

/// A call that is answered from outside of its handler.
pub(super) struct Deferred {
    call: RequestHandle,
    sink: Arc<dyn ReplySink>,
    end: CallEnd,
    max_response: u32,
    /// For interceptors, if there are any.
    observed: Option<Box<Observed>>,
}

/// What interceptors may ask when they are told of the end.
struct Observed {
    method: Arc<MethodInfo>,
    peer: Option<SocketAddr>,
    deadline: Instant,
    metadata: Metadata,
    sink: Arc<dyn ReplySink>,
}

impl Deferred {
    /// Takes the answer to a call out of its handler's hands.
    pub(super) fn of(context: &CallContext<'_>) -> Self {
        let (call, sink, end) = context.defer();
        let method = context.info();
        let observe = || {
            Box::new(Observed {
                method: Arc::clone(method),
                peer: context.peer(),
                deadline: context.deadline().unwrap_or(Instant::NEVER),
                metadata: context.metadata().to_owned(),
                sink: Arc::clone(&sink),
            })
        };
        let observed = (!method.interceptors().is_empty()).then(observe);
        Self { call, max_response: method.max_response(), observed, end, sink }
    }

    fn answer(self, result: Result<Encoded, Status>) {
        let told = self.observed.map(|observed| {
            let outcome = result.as_ref().map(|_| ()).map_err(Status::clone);
            (observed, outcome)
        });
        // The endpoint uses the flag again.
        drop(self.end);
        self.sink.reply(self.call, result);
        if let Some((observed, outcome)) = told {
            let context = CallContext::new(&observed.method, self.call, &*observed)
                .with_extension(observed.deadline, observed.metadata.as_ref());
            // The answer is out; dropped, a responder must not panic, as its thread may be panicking already.
            let leave = || Passage::inside(&context).leave(outcome.as_ref().copied());
            drop(catch_unwind(AssertUnwindSafe(leave)));
        }
    }
}

impl CallHost for Observed {
    fn buffer(&self, _: usize) -> Result<MsgBuf, Status> {
        Err(Status::internal("the call has been answered"))
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn session_stats(&self, _: &RequestHandle) -> Option<ClientStats> {
        None
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(&self.sink)
    }
}
