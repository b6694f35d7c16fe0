//! A request as its handler sees it.

use std::any::Any;
use std::fmt;
use std::net::SocketAddr;
use std::time::Duration;

use super::reply::{encode_reply, of_another_kind};
use super::responder::{Deferred, Encoder};
use super::{CallContext, Codec, MetadataRef, Responder, Response, Viewable};
use crate::protocol::ClientStats;
use crate::status::Status;
use crate::time::Instant;

/// A request: a message, decoded or read in place, and the properties of its call.
///
/// Handlers take it and return `Result<`[`Response`]`, `[`Status`](crate::status::Status)`>`:
///
/// ```
/// use erpc_core::service::{Request, Response};
/// use erpc_core::status::Status;
///
/// fn double(request: Request<'_, u32>) -> Result<Response<u32>, Status> {
///     let twice = request.message().checked_mul(2);
///     twice.map(Response::new).ok_or_else(|| Status::out_of_range("more than 32 bits"))
/// }
/// assert_eq!(double(Request::new(21)).unwrap().into_message(), Some(42));
/// ```
pub struct Request<'a, M> {
    message: M,
    /// `None` for a request that did not come from the network; see [`Request::new`].
    origin: Option<Origin<'a>>,
}

/// The call of a request, and the encoder of its response.
#[derive(Clone, Copy)]
struct Origin<'a> {
    context: &'a CallContext<'a>,
    /// The [`Encoder`] of the method's responses.
    encoder: &'static dyn Any,
}

impl<M> Request<'static, M> {
    /// A request without a call, for calling handlers directly, as tests do. It has no peer, no
    /// deadline and no metadata, and a deferred answer to it is dropped.
    #[must_use]
    pub fn new(message: M) -> Self {
        Self { message, origin: None }
    }
}

impl<'a, M> Request<'a, M> {
    /// A request whose response is encoded by `D`.
    #[inline]
    pub(super) fn received<D: Codec<R>, R: 'static>(
        message: M,
        context: &'a CallContext<'a>,
    ) -> Self {
        Self { message, origin: Some(Origin { context, encoder: Encoder::of::<D>() }) }
    }

    /// The message, decoded or as a view.
    #[must_use]
    #[inline]
    pub fn message(&self) -> &M {
        &self.message
    }

    /// Consumes the request and returns the message.
    #[must_use]
    #[inline]
    pub fn into_message(self) -> M {
        self.message
    }

    /// The properties of the call; `None` for a request made by [`Request::new`].
    #[must_use]
    #[inline]
    pub fn context(&self) -> Option<&'a CallContext<'a>> {
        self.origin.map(|origin| origin.context)
    }

    /// The address that the request came from; `None` on transports without IP addresses.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.context()?.peer()
    }

    /// The method's full name; `None` for a request made by [`Request::new`].
    #[must_use]
    pub fn method(&self) -> Option<&'static str> {
        self.context().map(CallContext::method)
    }

    /// When the caller stops waiting or the server's own [limit](super::Method::served_within) ends
    /// the call, on this machine's clock; `None` means never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.context()?.deadline()
    }

    /// Time until [`Request::deadline`], zero if it has passed; `None` without a deadline. Reads
    /// the clock.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.context()?.time_left()
    }

    /// The metadata that the caller sent with the request.
    #[must_use]
    pub fn metadata(&self) -> MetadataRef<'a> {
        self.context().map_or_else(MetadataRef::default, CallContext::metadata)
    }

    /// The note that the method's burst hook has left for this request
    /// ([`BurstRequest::set_note`](super::BurstRequest::set_note)). `None` if it has left none, if
    /// the method has no hook, and in handlers that do not run in the event loop or are
    /// asynchronous.
    #[must_use]
    pub fn note(&self) -> Option<u64> {
        self.context()?.note()
    }

    /// Current state of the client's session; see [`CallContext::session_stats`].
    #[must_use]
    pub fn session_stats(&self) -> Option<ClientStats> {
        self.context()?.session_stats()
    }

    /// Whether the answer is no longer wanted; see [`CallContext::is_cancelled`].
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.context().is_some_and(CallContext::is_cancelled)
    }

    /// Answers with a view, which may borrow from what the service stores. The message is encoded
    /// immediately, into the response's buffer. The handler has to return the response that `answer`
    /// returns, perhaps with metadata.
    ///
    /// If the handler calls `answer` several times, the last view counts. If the handler returns a message
    /// or an error instead, the view is forgotten. For a request made by [`Request::new`], the response has
    /// the message of the view.
    ///
    /// # Errors
    /// - [`Status::out_of_range`] if the message exceeds the method's limit.
    /// - [`Status::resource_exhausted`] if there is no memory.
    /// - [`Status::internal`] if `R` is not the type of the method's responses, if these are not protocol
    ///   buffers, and in the handler of a stream of requests.
    #[inline]
    pub fn answer<R: Viewable + 'static>(&self, view: &R::View<'_>) -> Result<Response<R>, Status> {
        let Some(Origin { context, encoder }) = self.origin else {
            return Ok(Response::new(R::from_view(view)));
        };
        match encoder.downcast_ref::<Encoder<R>>() {
            Some(encoder) if encoder.is_protobuf() => {}
            _ => return Err(of_another_kind()),
        }
        let (limit, buffer) = (context.info().max_response(), |len| context.buffer(len));
        let none = MetadataRef::default();
        let answer = encode_reply(R::view_len(view), none, limit, buffer, |out| {
            R::encode_view(view, out);
        })?;
        context.set_answer(answer.bytes);
        Ok(Response::encoded())
    }

    /// Answers later. `start` runs immediately and gets the message and a [`Responder`], which may
    /// be sent to any thread. The handler has to return the response that `defer` returns.
    ///
    /// From now on only the responder can answer the call, with a message or a failure. Anything
    /// else that the handler returns is ignored.
    ///
    /// ```
    /// use erpc_core::service::{Request, Response};
    /// use erpc_core::status::Status;
    ///
    /// fn slow(request: Request<'_, u64>) -> Result<Response<u64>, Status> {
    ///     Ok(request.defer(|number, responder| {
    ///         std::thread::spawn(move || match number.checked_add(1) {
    ///             Some(next) => responder.send(&next),
    ///             None => responder.fail(Status::out_of_range("no next number")),
    ///         });
    ///     }))
    /// }
    /// assert!(slow(Request::new(1)).unwrap().is_deferred());
    /// ```
    pub fn defer<R: 'static>(self, start: impl FnOnce(M, Responder<R>)) -> Response<R> {
        let reply = self
            .origin
            .map(|Origin { context, encoder }| (Deferred::of(context), encoder.downcast_ref()));
        start(self.message, Responder::new(reply));
        Response::deferred()
    }
}

impl<M: fmt::Debug> fmt::Debug for Request<'_, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer())
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}
