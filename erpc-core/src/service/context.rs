//! The properties of a call while its handler runs.

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

/// The runtime's side of a call. It provides properties of the call when the handler asks for them.
pub trait CallHost {
    /// An empty buffer with a capacity of at least `len` bytes, for the response.
    ///
    /// # Errors
    /// The status for the caller: there is no memory, or the session allows no response of that
    /// size.
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status>;

    /// The client's address, `None` on transports without IP addresses.
    fn peer(&self) -> Option<SocketAddr>;

    /// State of the client's session; `None` if this host cannot access the session.
    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats>;

    /// Whether the client has cancelled the call.
    fn is_cancelled(&self) -> bool;

    /// The note that the method's [burst hook](super::Burst) has left for the call; `None` by
    /// default.
    fn note(&self) -> Option<u64> {
        None
    }

    /// The current time.
    fn now(&self) -> Instant {
        clock::now()
    }

    /// Whether [`CallHost::now`] is a virtual time, not that of the process-wide clock.
    fn has_virtual_time(&self) -> bool {
        false
    }

    /// The receiver of deferred answers.
    fn sink(&self) -> Arc<dyn ReplySink>;

    /// The flag that is set when the client cancels a call whose answer the handler defers. The
    /// default implementation returns a flag that is never set.
    fn cancel_flag(&self, _call: RequestHandle) -> Arc<AtomicBool> {
        Arc::new(AtomicBool::new(false))
    }
}

/// Tells when a deferred answer is no longer wanted.
pub(super) struct CallEnd {
    cancelled: Arc<AtomicBool>,
    deadline: Instant,
}

impl CallEnd {
    /// Whether the call was cancelled or its deadline has passed. Reads the clock if there is a
    /// deadline.
    pub(super) fn has_come(&self) -> bool {
        // The flag is only a hint, so relaxed ordering suffices.
        self.cancelled.load(Ordering::Relaxed)
            || self.deadline != Instant::NEVER && clock::now() >= self.deadline
    }
}

/// A call as its handler and [interceptors](super::Interceptor) see it. Created on the stack for
/// each call; properties that are not asked for cost nothing.
pub struct CallContext<'a> {
    method: &'a Arc<MethodInfo>,
    call: RequestHandle,
    host: &'a dyn CallHost,
    deadline: Instant,
    metadata: MetadataRef<'a>,
    /// Set once the handler has taken a [`Responder`](super::Responder), which then answers instead
    /// of the handler's return value.
    deferred: Cell<bool>,
    /// The encoded response, if the handler has answered with a view.
    answer: Cell<Option<MsgBuf>>,
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
            answer: Cell::new(None),
        }
    }

    /// Sets the deadline and the metadata of the request.
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

    /// Whether executing a request twice is harmless, as the `.proto` file declares or the server
    /// overrides it. The caller may retry such calls, so an interceptor that has to refuse some
    /// calls may refuse these first.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        self.method.is_idempotent()
    }

    /// The address that the request came from; `None` on transports without IP addresses.
    #[must_use]
    pub fn peer(&self) -> Option<SocketAddr> {
        self.host.peer()
    }

    /// When the caller stops waiting or the server's own [limit](super::Method::served_within) ends
    /// the call, on this machine's clock; `None` means never.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        (self.deadline != Instant::NEVER).then_some(self.deadline)
    }

    /// Time until [`CallContext::deadline`], zero if it has passed; `None` without a deadline.
    /// Reads the clock.
    #[must_use]
    pub fn time_left(&self) -> Option<Duration> {
        self.deadline().map(|deadline| deadline - self.host.now())
    }

    /// The metadata that the caller sent with the request.
    #[must_use]
    pub fn metadata(&self) -> MetadataRef<'a> {
        self.metadata
    }

    /// Current state of the client's session. `None` on worker threads and in tokio, where it is out
    /// of reach.
    #[must_use]
    pub fn session_stats(&self) -> Option<ClientStats> {
        self.host.session_stats(&self.call)
    }

    /// The note that the method's burst hook has left for this call; see
    /// [`Request::note`](super::Request::note).
    #[must_use]
    pub fn note(&self) -> Option<u64> {
        self.host.note()
    }

    /// Whether the answer is no longer wanted: the caller has cancelled the call or is gone, or the
    /// [deadline](Self::deadline) has passed. Meant for handlers on workers, which cannot be
    /// stopped and should check it now and then. Costs one load, and one clock read if there is a
    /// deadline.
    ///
    /// In the event loop the result is true only after the deadline: nothing is received while a
    /// synchronous handler runs, and the task of a cancelled call is dropped.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.host.is_cancelled() || self.time_left().is_some_and(|left| left.is_zero())
    }

    #[inline]
    pub(super) fn info(&self) -> &'a Arc<MethodInfo> {
        self.method
    }

    pub(super) fn handle(&self) -> RequestHandle {
        self.call
    }

    /// A buffer for a response of `len` bytes.
    #[inline]
    pub(super) fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        self.host.buffer(len)
    }

    /// Stores the response, encoded.
    #[inline]
    pub(super) fn set_answer(&self, response: MsgBuf) {
        self.answer.set(Some(response));
    }

    /// Takes the encoded response, if there is one.
    #[inline]
    pub(super) fn take_answer(&self) -> Option<MsgBuf> {
        self.answer.take()
    }

    /// Whether the handler has taken a [`Responder`](super::Responder).
    #[inline]
    pub(super) fn is_deferred(&self) -> bool {
        self.deferred.get()
    }

    /// Marks the call as deferred. Returns its handle and the sink that takes its answer.
    pub(super) fn defer(&self) -> (RequestHandle, Arc<dyn ReplySink>, CallEnd) {
        self.deferred.set(true);
        let deadline = match self.deadline() {
            // Converted to the process-wide clock, which any thread can read.
            Some(deadline) if self.host.has_virtual_time() => {
                clock::now() + (deadline - self.host.now())
            }
            deadline => deadline.unwrap_or(Instant::NEVER),
        };
        let end = CallEnd { cancelled: self.host.cancel_flag(self.call), deadline };
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
