//! Events, notices and handles: the interface between the protocol and its owner.

use crate::buf::MsgBuf;
use crate::time::Instant;
use crate::wire::RequestNumber;
use crate::wire::extension::continues;

use super::index::SessionIndex;
use super::{CallError, Cause};

/// Identifies a session that this endpoint opened. The id of a closed session stays invalid, even
/// after its place in the table was reused.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
}

/// Where the packets of a session go, and the connection ids in their headers, as in `WIRE.md`. For
/// logs and traces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SessionAddress<R> {
    /// Where the client's packets go.
    pub server: R,
    /// The id in the client's packets; `None` until the session is open.
    pub to_server: Option<u64>,
    /// The id in the server's packets.
    pub to_client: u64,
}

/// Identifies a request that waits for its response. The handle may be kept on any thread, for any
/// time. Once the session has ended, a response to the request is dropped.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHandle {
    pub(super) index: SessionIndex,
    pub(super) generation: u32,
    pub(super) number: RequestNumber,
}

impl RequestHandle {
    /// The session that the request belongs to.
    #[must_use]
    #[inline(always)]
    pub const fn client(&self) -> ClientId {
        ClientId { index: self.index, generation: self.generation }
    }
}

/// Identifies a session that a peer opened. The id stays invalid after the session has ended, even
/// after its place in the table was reused.
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

/// A call to be made. The session is given separately.
#[derive(Debug)]
pub struct NewCall {
    /// The method id.
    pub method: u32,
    /// The request. It comes back with the outcome.
    pub request: MsgBuf,
    /// A tag that the owner chooses. It comes back with the outcome.
    pub token: u64,
    /// The request begins with an [extension](crate::wire::extension). Its deadline field must be
    /// 0: the client fills it in each time it sends the request.
    pub extended: bool,
    /// At this time the call fails if it has no response yet, and the server may stop working on
    /// it. [`Instant::NEVER`] for no deadline. A call with a deadline must be `extended`, because
    /// the extension tells the server.
    pub deadline: Instant,
}

impl NewCall {
    /// A call without an extension, and so without a deadline.
    #[must_use]
    #[inline(always)]
    pub const fn new(method: u32, request: MsgBuf, token: u64) -> Self {
        Self { method, request, token, extended: false, deadline: Instant::NEVER }
    }

    /// Whether the call continues a stream. A server that shuts down still takes such calls.
    pub(super) fn continues(&self) -> bool {
        self.extended && continues(self.request.as_slice())
    }
}

/// A received message.
#[derive(Debug)]
pub enum Body<'p> {
    /// A message of one packet, borrowed from the receive queue (thesis section 6.3.2.3).
    Packet(&'p [u8]),
    /// A message that was assembled from several packets.
    Message(MsgBuf),
}

impl Body<'_> {
    /// The bytes of the message.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Packet(bytes) => bytes,
            Self::Message(msgbuf) => msgbuf.as_slice(),
        }
    }
}

/// A request for a handler. Each request is handed out once, whatever the network repeats.
#[derive(Debug)]
pub struct Request<'p, R> {
    /// Identifies the request in the answer.
    pub handle: RequestHandle,
    /// The method id.
    pub method: u32,
    /// The bytes of the request.
    pub body: Body<'p>,
    /// The client's address.
    pub peer: R,
    /// The body begins with an [extension](crate::wire::extension), which may be malformed.
    pub extended: bool,
    /// When the client stops waiting. The request's first packet carries the remaining time, which
    /// is added to the time when the endpoint received this packet. So `deadline` is never earlier
    /// than the client's own deadline. [`Instant::NEVER`] if the client waits without limit.
    pub deadline: Instant,
    /// The slot's last response buffer, which this response may reuse: see
    /// [`response_buffer`](super::Core::response_buffer). `None` if the slot kept none.
    pub buffer: Option<ResponseBuffer>,
}

/// A request that a packet will most likely bring when it is received: see
/// [`upcoming`](super::Core::upcoming).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct UpcomingRequest<'p> {
    /// The method id.
    pub method: u32,
    /// The bytes of the request. Its checksum, if it has one, is not verified.
    pub body: &'p [u8],
    /// The body begins with an [extension](crate::wire::extension), which may be malformed.
    pub extended: bool,
}

/// A slot's last response buffer. The transmit queue may still read it, so only
/// [`response_buffer`](super::Core::response_buffer) gives access to it (thesis section 6.3.2.2).
#[derive(Debug)]
pub struct ResponseBuffer(pub(super) MsgBuf);

/// A response.
#[derive(Debug)]
pub struct Reply<'p> {
    /// The bytes of the response.
    pub body: Body<'p>,
    /// The body begins with an [extension](crate::wire::extension), which may be malformed.
    pub extended: bool,
}

impl Reply<'_> {
    /// The bytes of the response, with the extension if there is one.
    #[must_use]
    #[inline]
    pub fn as_slice(&self) -> &[u8] {
        self.body.as_slice()
    }
}

/// The result of a received packet. A packet has at most one event, so events need no queue.
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
        /// The response, or why the call has none.
        result: Result<Reply<'p>, CallError>,
        /// The request, returned to the caller.
        request: MsgBuf,
    },
    /// The client has cancelled this request, which is not answered yet. Its handler may stop,
    /// but the request must still be answered, with anything.
    Cancelled(RequestHandle),
}

/// Something that the owner must know and that is not the event of a packet.
#[derive(Debug)]
pub enum Notice {
    /// A call has failed.
    CallFailed {
        /// The call's tag.
        token: u64,
        /// Why the call failed.
        error: CallError,
        /// The request, returned to the caller.
        request: MsgBuf,
    },
    /// A session has opened or closed.
    Session(SessionId, SessionEvent),
    /// As [`Event::Cancelled`], but the request's session has ended and its response will be
    /// dropped. Each request is reported as cancelled at most once, by an event or by a notice.
    Cancelled(RequestHandle),
    /// A peer has opened a session.
    ClientCame(ClientId),
    /// A session that a peer opened has ended, for this reason. [`Notice::Cancelled`] has come
    /// before for each of its executing requests that the client had not cancelled.
    ClientGone(ClientId, Cause),
}

/// A change of the state of a session that this endpoint opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum SessionEvent {
    /// The server has accepted the session.
    Opened,
    /// The server shuts down. It finishes the session's running requests and streams, and refuses
    /// further ones: calls that were not sent yet have failed. Disconnect the session when it is no
    /// longer needed: the server waits for the end of the session, up to the server's own time
    /// limit.
    Draining,
    /// The session has ended, and its id is invalid. All its calls have ended before.
    Closed(Cause),
}

#[cfg(test)]
impl RequestHandle {
    /// An invalid handle, for tests of code that only passes handles on.
    pub(crate) fn for_tests() -> Self {
        Self { index: SessionIndex::new(0), generation: 0, number: RequestNumber::default() }
    }
}
