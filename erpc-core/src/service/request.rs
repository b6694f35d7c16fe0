//! A request as its handler sees it.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::sync::Arc;

use super::{Codec, Prost, ReplySink, Responder, Response};
use crate::protocol::RequestHandle;

/// What the runtime knows of a call, for the time its handler runs. Made per call on the stack.
pub struct CallContext<'a> {
    peer: Option<SocketAddr>,
    call: RequestHandle,
    sink: &'a Arc<dyn ReplySink>,
    /// Set once a [`Responder`] was made: the answer is no longer what the handler returns.
    deferred: Cell<bool>,
}

impl<'a> CallContext<'a> {
    /// A call from `peer` (`None` on transports without IP addresses), whose answer, should the handler
    /// defer, is handed to `sink` under `call`.
    #[must_use]
    #[inline]
    pub fn new(
        peer: Option<SocketAddr>,
        call: RequestHandle,
        sink: &'a Arc<dyn ReplySink>,
    ) -> Self {
        Self { peer, call, sink, deferred: Cell::new(false) }
    }

    /// Whether the handler took a [`Responder`].
    #[inline]
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred.get()
    }
}

impl fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("peer", &self.peer)
            .field("call", &self.call)
            .finish_non_exhaustive()
    }
}

/// A request: a decoded message and who sent it.
///
/// Handlers take it and return `Result<`[`Response`]`, `[`Status`](super::Status)`>`:
///
/// ```
/// use erpc_core::service::{Request, Response, Status};
///
/// fn double(request: Request<'_, u32>) -> Result<Response<u32>, Status> {
///     let twice = request.message().checked_mul(2);
///     twice.map(Response::new).ok_or_else(|| Status::out_of_range("more than 32 bits"))
/// }
/// assert_eq!(double(Request::new(21)).unwrap().into_message(), Some(42));
/// ```
pub struct Request<'a, M, C = Prost> {
    message: M,
    /// `None` for a request that came from no network, see [`Request::new`].
    context: Option<&'a CallContext<'a>>,
    codec: PhantomData<fn() -> C>,
}

impl<M, C> Request<'static, M, C> {
    /// A request from nowhere, for calling handlers directly, as tests do. It has no peer, and what a
    /// deferred answer says is lost.
    #[must_use]
    pub fn new(message: M) -> Self {
        Self { message, context: None, codec: PhantomData }
    }
}

impl<'a, M, C> Request<'a, M, C> {
    #[inline]
    pub(super) fn received(message: M, context: &'a CallContext<'a>) -> Self {
        Self { message, context: Some(context), codec: PhantomData }
    }

    /// The message.
    #[must_use]
    #[inline]
    pub fn message(&self) -> &M {
        &self.message
    }

    /// The message, taken out.
    #[must_use]
    #[inline]
    pub fn into_message(self) -> M {
        self.message
    }

    /// The address that the request came from, `None` on transports that have other addresses.
    #[must_use]
    #[inline]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.context.and_then(|context| context.peer)
    }

    /// Answers later: `start` gets the message and a [`Responder`], which may go to any thread, and
    /// runs at once. What `defer` returns is what the handler returns.
    ///
    /// From here on the responder alone answers, failures too; whatever else the handler returns is
    /// ignored.
    ///
    /// ```
    /// use erpc_core::service::{Request, Response, Status};
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
    pub fn defer<R>(self, start: impl FnOnce(M, Responder<R, C>)) -> Response<R>
    where
        C: Codec<R>,
    {
        let reply = self.context.map(|context| {
            context.deferred.set(true);
            (Arc::clone(context.sink), context.call)
        });
        start(self.message, Responder::new(reply));
        Response::deferred()
    }
}

impl<M: fmt::Debug, C> fmt::Debug for Request<'_, M, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("peer", &self.peer())
            .field("message", &self.message)
            .finish()
    }
}
