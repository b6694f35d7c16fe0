//! What the protocol tells its owner.

use crate::buf::MsgBuf;
use crate::wire::RequestNumber;

use super::{CallError, Cause};

/// Names a session that this endpoint opened. A closed session's id names nothing, also after its
/// place in the table has been taken again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct SessionId {
    pub(super) index: u32,
    pub(super) generation: u32,
}

/// Names a request that waits for its response, on any thread, for as long as one likes. When the
/// session is gone, so is the response.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct RequestHandle {
    pub(super) index: u32,
    pub(super) generation: u32,
    pub(super) number: RequestNumber,
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
        result: Result<Body<'p>, CallError>,
        /// The request, the caller's again.
        request: MsgBuf,
    },
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
        Self { index: 0, generation: 0, number: RequestNumber::default() }
    }
}
