//! What the protocol tells its owner.

use crate::buf::MsgBuf;
use crate::time::Instant;
use crate::wire::RequestNumber;

use super::index::SessionIndex;
use super::{CallError, Cause};

/// Names a session that this endpoint opened. A closed session's id names nothing, also after its
/// place in the table has been taken again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
}

/// Names a request that waits for its response, on any thread, for as long as one likes. When the
/// session is gone, so is the response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHandle {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
    pub(super) number: RequestNumber,
}

impl RequestHandle {
    /// The session that the request came in.
    #[must_use]
    #[inline(always)]
    pub const fn client(&self) -> ClientId {
        ClientId { index: self.index, generation: self.generation }
    }
}

/// Names a session that a peer opened. When it is gone, its id names nothing, also after its place in the
/// table has been taken again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ClientId {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
}

impl ClientId {
    /// A request of the session.
    #[inline(always)]
    pub(super) const fn request(self, number: RequestNumber) -> RequestHandle {
        RequestHandle { index: self.index, generation: self.generation, number }
    }
}

/// A call to be made, besides the session that it is made on.
#[derive(Debug)]
pub struct NewCall {
    /// The method id.
    pub method: u32,
    /// The request. It comes back with the outcome.
    pub request: MsgBuf,
    /// A tag of one's own, which comes back with the outcome.
    pub token: u64,
    /// The request begins with an [extension](crate::wire::extension), whose deadline field is 0: it is
    /// filled in whenever the request is sent.
    pub extended: bool,
    /// When the call ends without a response, and the server may stop working on it;
    /// [`Instant::NEVER`] for no deadline. A call that has one is `extended`, as the server is told.
    pub deadline: Instant,
}

impl NewCall {
    /// A call without an extension, and so without a deadline.
    #[must_use]
    #[inline(always)]
    pub const fn new(method: u32, request: MsgBuf, token: u64) -> Self {
        Self { method, request, token, extended: false, deadline: Instant::NEVER }
    }
}

/// A message that came in.
#[derive(Debug)]
pub enum Body<'p> {
    /// A message of one packet, lent in place where it was received (thesis section 6.3.2.3).
    Packet(&'p [u8]),
    /// A message of several packets, put together.
    Message(MsgBuf),
}

impl Body<'_> {
    /// The bytes.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Packet(bytes) => bytes,
            Self::Message(msgbuf) => msgbuf.as_slice(),
        }
    }
}

/// A request to be handled. It is handed out once, whatever the network repeats.
#[derive(Debug)]
pub struct Request<'p, R> {
    /// To respond with.
    pub handle: RequestHandle,
    /// The method id.
    pub method: u32,
    /// The request.
    pub body: Body<'p>,
    /// Where the client is.
    pub peer: R,
    /// The body begins with an [extension](crate::wire::extension), which may be malformed.
    pub extended: bool,
    /// When the client stops waiting: the time left that its first packet told, from when that arrived;
    /// so never earlier than by the client's own count. [`Instant::NEVER`] if it waits for ever.
    pub deadline: Instant,
    /// The slot's last response buffer, to write this response into: see
    /// [`response_buffer`](super::Core::response_buffer). `None` if the slot kept none.
    pub buffer: Option<ResponseBuffer>,
}

/// A slot's last response buffer. The transmit queue may still refer to it, so only
/// [`response_buffer`](super::Core::response_buffer) opens it (thesis section 6.3.2.2).
#[derive(Debug)]
pub struct ResponseBuffer(pub(super) MsgBuf);

/// A response.
#[derive(Debug)]
pub struct Reply<'p> {
    /// The response.
    pub body: Body<'p>,
    /// The body begins with an [extension](crate::wire::extension), which may be malformed.
    pub extended: bool,
}

impl Reply<'_> {
    /// The bytes, with the extension if there is one.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.body.as_slice()
    }
}

/// What a received packet led to. At most one thing, so nothing is queued in between.
#[derive(Debug)]
pub enum Event<'p, R> {
    /// Nothing for the owner.
    None,
    /// Handle this, then [`respond`](super::Core::respond), now or later.
    Request(Request<'p, R>),
    /// A call has ended.
    Reply {
        /// The call's tag.
        token: u64,
        /// How it ended.
        result: Result<Reply<'p>, CallError>,
        /// The request, the caller's again.
        request: MsgBuf,
    },
    /// The client has cancelled this request, which has not been answered. Its handler may stop; it
    /// is to be answered all the same, with whatever there is.
    Cancelled(RequestHandle),
}

/// Something that did not come with a packet of its own.
#[derive(Debug)]
pub enum Notice {
    /// A call has failed.
    CallFailed {
        /// The call's tag.
        token: u64,
        /// Why.
        error: CallError,
        /// The request, the caller's again.
        request: MsgBuf,
    },
    /// A session has opened or is no more.
    Session(SessionId, SessionEvent),
    /// As [`Event::Cancelled`], once per request: the request's session is gone, and
    /// its response will be dropped.
    Cancelled(RequestHandle),
    /// A session that a peer opened is gone. All its requests that were not answered were named before.
    ClientGone(ClientId),
}

/// A turn in a session's life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// The server has accepted.
    Opened,
    /// The session is gone, its id names nothing, and all its calls have ended before this.
    Closed(Cause),
}

#[cfg(test)]
impl RequestHandle {
    /// Names nothing, for tests of code that only passes handles on.
    pub(crate) fn for_tests() -> Self {
        Self { index: SessionIndex::new(0), generation: 0, number: RequestNumber::default() }
    }
}
