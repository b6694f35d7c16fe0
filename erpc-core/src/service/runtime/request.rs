//! A request as a handler on another runtime sees it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use crate::service::MetadataRef;
use crate::service::detached::DetachedCall;
use crate::time::Instant;

/// A request for a handler that runs in tokio: like [`Request`](crate::service::Request), but it
/// owns the properties of its call, so it is `Send` and has no lifetime.
///
/// ```
/// use erpc_core::service::{Response, SharedRequest};
/// use erpc_core::status::Status;
///
/// async fn double(request: SharedRequest<u32>) -> Result<Response<u32>, Status> {
///     let twice = request.message().checked_mul(2);
///     twice.map(Response::new).ok_or_else(|| Status::out_of_range("more than 32 bits"))
/// }
/// ```
pub struct SharedRequest<M> {
    message: M,
    /// `None` for a request that did not come from the network; see [`SharedRequest::new`].
    call: Option<Arc<DetachedCall>>,
}

impl<M> SharedRequest<M> {
    /// A request without a call, for calling handlers directly, as tests do. It has no peer, no
    /// deadline and no metadata.
    #[must_use]
    pub fn new(message: M) -> Self {
        Self { message, call: None }
    }

    pub(super) fn received(message: M, call: Arc<DetachedCall>) -> Self {
        Self { message, call: Some(call) }
    }

    /// The message, or the messages of a stream.
    #[must_use]
    pub fn message(&self) -> &M {
        &self.message
    }

    /// Consumes the request and returns the message.
    #[must_use]
    pub fn into_message(self) -> M {
        self.message
    }

    /// The address that the request came from; `None` on transports without IP addresses.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.call.as_ref()?.context().peer()
    }

    /// The method's full name; `None` for a request made by [`SharedRequest::new`].
    #[must_use]
    pub fn method(&self) -> Option<&'static str> {
        self.call.as_ref().map(|call| call.method().full_name())
    }

    /// When the caller stops waiting or the server's own
    /// [limit](crate::service::Method::served_within) ends the call, on this machine's clock; `None`
    /// means never. The handler is dropped then.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.call.as_ref()?.context().deadline()
    }

    /// Time until [`SharedRequest::deadline`], zero if it has passed; `None` without a deadline.
    /// Reads the clock.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.call.as_ref()?.context().time_left()
    }

    /// The metadata that the caller sent with the request.
    #[must_use]
    pub fn metadata(&self) -> MetadataRef<'_> {
        self.call.as_ref().map_or_else(MetadataRef::default, |call| call.metadata())
    }
}

impl<M: fmt::Debug> fmt::Debug for SharedRequest<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SharedRequest")
            .field("peer", &self.peer())
            .field("message", &self.message)
            .finish_non_exhaustive()
    }
}
