//! What is known of a call while its handler runs.

use std::cell::Cell;
use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use super::info::MethodInfo;
use super::{MetadataRef, ReplySink};
use crate::buf::MsgBuf;
use crate::clock;
use crate::protocol::{ClientStats, RequestHandle};
use crate::status::Status;
use crate::sync::atomic::{AtomicBool, Ordering};
use crate::time::Instant;

/// Where a handler runs, seen from the call: what only the runtime knows, asked when it is needed.
pub trait CallHost {
    /// An empty buffer for a response of at least `len` bytes.
    ///
    /// # Errors
    /// The status that the caller shall get: there is no memory, or the session takes no response of
    /// that size.
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status>;

    /// The client's address, `None` on transports without IP addresses.
    fn peer(&self) -> Option<SocketAddr>;

    /// How the client's session is, `None` where it is out of reach.
    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats>;

    /// Whether the client has given the call up.
    fn is_cancelled(&self) -> bool;

    /// What time it is.
    fn now(&self) -> Instant {
        clock::now()
    }

    /// Where an answer goes that the handler defers.
    fn sink(&self) -> Arc<dyn ReplySink>;

    /// What is set when the client has given up a call whose answer the handler defers. By default nothing sets it.
    fn cancel_flag(&self, _call: RequestHandle) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(false))
    }
}

/// When a deferred answer is not wanted any more.
pub(super) struct CallEnd {
    cancelled: Arc<AtomicBool>,
    deadline: Instant,
}

impl CallEnd {
    /// Whether that is so now. Reads the clock if there is a deadline.
    pub(super) fn has_come(&self) -> bool {
        // Only a hint, so the order does not matter.
        self.cancelled.load(Ordering::Relaxed)
            || self.deadline != Instant::NEVER && clock::now() >= self.deadline
    }
}

/// A call as its handler and [interceptors](super::Interceptor) see it. Made per call on the stack;
/// what is not asked for costs nothing.
pub struct CallContext<'a> {
    method: &'a Arc<MethodInfo>,
    call: RequestHandle,
    host: &'a dyn CallHost,
    deadline: Instant,
    metadata: MetadataRef<'a>,
    /// Set once a [`Responder`](super::Responder) was made: the answer is no longer what the handler
    /// returns.
    deferred: Cell<bool>,
}

impl<'a> CallContext<'a> {
    /// A call of `method` without deadline and metadata.
    #[inline]
    pub(super) fn new(
        method: &'a Arc<MethodInfo>,
        call: RequestHandle,
        host: &'a dyn CallHost,
    ) -> Self {
        Self {
            method,
            call,
            host,
            deadline: Instant::NEVER,
            metadata: MetadataRef::default(),
            deferred: Cell::new(false),
        }
    }

    /// The same with what the request's extension says.
    #[must_use]
    pub(crate) fn with_extension(mut self, deadline: Instant, metadata: MetadataRef<'a>) -> Self {
        (self.deadline, self.metadata) = (deadline, metadata);
        self
    }

    /// The method's full name.
    #[must_use]
    pub fn method(&self) -> &'static str {
        self.method.full_name()
    }

    /// Whether handling a request of the method twice is no worse than handling it once, as the `.proto`
    /// file declares or the server says in its place. The caller may try again then, so an interceptor that
    /// has to refuse some calls may take these first.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }

    /// The address that the request came from, `None` on transports that have other addresses.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.host.peer()
    }

    /// When the caller stops waiting, or the server [gives the call up](super::Method::served_within), on this
    /// machine's clock; `None` for never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.deadline != Instant::NEVER).then_some(self.deadline)
    }

    /// How long until [`CallContext::deadline`], zero if it has passed; `None` for ever. Reads the clock.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline - self.host.now())
    }

    /// What the caller sent beside the request.
    #[must_use]
    pub fn metadata(&self) -> MetadataRef<'a> {
        self.metadata
    }

    /// How the client's session is now. `None` on worker threads, where it is out of reach.
    #[must_use]
    pub fn session_stats(&self) -> Option<ClientStats> {
        self.host.session_stats(&self.call)
    }

    /// Whether the caller has given the call up or is gone, or the [deadline](Self::deadline) has passed: no caller reads the
    /// answer. For handlers on workers, which cannot be stopped, to look at now and then; one load, and a look at the clock
    /// if there is a deadline. Nothing is received while a handler runs in the event loop, and tasks of calls that are given
    /// up are dropped, so there only the deadline can make it true.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.host.is_cancelled() || self.time_left().is_some_and(|left| left.is_zero())
    }

    #[inline]
    pub(super) fn info(&self) -> &'a Arc<MethodInfo> {
        self.method
    }

    /// A buffer for the response.
    #[inline]
    pub(super) fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        self.host.buffer(len)
    }

    /// Whether the handler took a [`Responder`](super::Responder).
    #[inline]
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred.get()
    }

    /// Notes that the answer will come from elsewhere: to the sink that is returned, under that handle.
    pub(super) fn defer(&self) -> (RequestHandle, Arc<dyn ReplySink>, CallEnd) {
        self.deferred.set(true);
        let end = CallEnd {
            cancelled: self.host.cancel_flag(self.call),
            // On the clock that any thread can read.
            deadline: self.time_left().map_or(Instant::NEVER, |left| clock::now() + left),
        };
        (self.call, self.host.sink(), end)
    }
}

impl fmt::Debug for CallContext<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CallContext")
            .field("method", &self.method())
            .field("peer", &self.peer())
            .field("deadline", &self.deadline())
            .field("metadata", &self.metadata)
            .finish_non_exhaustive()
    }
}
