//! What can go wrong, split by whose fault it is.

use std::fmt;

use crate::buf::{MsgBuf, NoMemory};
use crate::status::Status;

/// Why a call did not bring a response.
///
/// The first question after a failure is whether the handler ran; the two `..Executed` variants answer
/// it. A call is reported as `NotExecuted` only if its request cannot have been complete at the server.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum CallError {
    /// The server answered, and the answer is a failure.
    Status(Status),
    /// The server has no method of that full name, and has run nothing: it serves other services, or was
    /// built from another `.proto` file. Said of typed calls, which know the name.
    NoSuchMethod(&'static str),
    /// The call was not accepted at this end; nothing was sent.
    Rejected(RejectReason),
    /// The handler did not run and will not; the call may be tried again.
    NotExecuted(Cause),
    /// The handler may have run, once, or be running.
    MaybeExecuted(Cause),
    /// The handler ran; its response could not be taken in.
    ResponseLost(Cause),
}

/// What ended a call from outside of the handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The session could not be opened.
    Connect(ConnectError),
    /// The names of the servers could not be looked up, or name none.
    Unresolved,
    /// Nothing was heard of the peer for the liveness time-out.
    PeerDead,
    /// The peer answers pings, but packets of a call have not got through for the liveness time-out, in whatever size.
    NoProgress,
    /// The peer gets this endpoint's packets from another address than when the session opened: something on the way, such as
    /// a NAT or the address of a Kubernetes service, has begun to rewrite it. A new session may be opened at once.
    AddressChanged,
    /// The peer said that it does not know the session: it restarted, or had given the session up.
    PeerReset,
    /// The peer closed the session.
    PeerClosed,
    /// The session was disconnected at this end.
    Disconnected,
    /// The endpoint was shut down.
    Shutdown,
    /// The request is larger than the server accepts, in bytes. Known only when the session had opened.
    RequestTooLarge(u32),
    /// The response is larger than this endpoint accepts, or than the method allows, in bytes.
    ResponseTooLarge(u32),
    /// There was no memory for the response within the endpoint's limit.
    NoMemory,
    /// The response did not decode as the method's response type.
    Malformed,
    /// The caller has cancelled the call.
    Cancelled,
    /// The call's deadline has passed.
    DeadlineExceeded,
}

/// Why a session did not open.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum ConnectError {
    /// No answer within the connect time-out: nothing listens there, or packets vanish on the way.
    Timeout,
    /// The peer speaks other versions of the protocol: its lowest and highest.
    Version(u16, u16),
    /// The peer takes no more sessions: it holds [`EndpointConfig::max_sessions`](super::EndpointConfig::max_sessions).
    Full,
    /// The peer takes no more sessions from this host's address, by one of
    /// [`EndpointConfig::max_sessions_per_host`](super::EndpointConfig::max_sessions_per_host),
    /// [`EndpointConfig::max_sockets_per_host`](super::EndpointConfig::max_sockets_per_host) and
    /// [`EndpointConfig::reserved_sessions`](super::EndpointConfig::reserved_sessions).
    HostFull,
    /// The peer does not accept sessions at all.
    NotListening,
    /// The two sides' parameters do not meet: a datagram size below the minimum, or an unknown
    /// measure of receive queues.
    Parameters,
    /// This endpoint's session table is full.
    TooManySessions,
}

/// A call that was not accepted, with the request handed back untouched.
#[derive(Debug)]
pub struct Rejected {
    /// Why.
    pub reason: RejectReason,
    /// The request.
    pub request: MsgBuf,
}

/// Why a call was not accepted. Nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RejectReason {
    /// The session's queue is full: as many calls wait as the limit allows. Wait for replies.
    QueueFull,
    /// There is no such session: it was closed or failed.
    NoSession,
    /// The session is being disconnected and takes no new calls.
    Disconnecting,
    /// The request is larger than the session accepts.
    TooLarge {
        /// Bytes of the request.
        size: usize,
        /// Most bytes the session accepts.
        limit: usize,
    },
    /// There was no memory for the request.
    NoMemory(NoMemory),
    /// The call's deadline had passed when it was made.
    DeadlineExceeded,
    /// The stream has ended, or its other side takes no more items.
    StreamEnded,
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::NoSuchMethod(name) => write!(
                f,
                "the server has no method {name}; is its service added to the server, and are both sides built from \
                 the same .proto file?"
            ),
            Self::Rejected(reason) => write!(f, "{reason}; nothing was sent"),
            Self::NotExecuted(cause) => {
                write!(f, "{cause}; the call was not executed and may be retried")
            }
            Self::MaybeExecuted(cause) => write!(f, "{cause}; the call may have been executed"),
            Self::ResponseLost(cause) => write!(f, "{cause}; the call was executed"),
        }
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Unresolved => f.write_str("no server's address is known"),
            Self::PeerDead => f.write_str("the peer does not answer"),
            Self::NoProgress => f.write_str(
                "the peer answers but the call's packets do not get through; does something on the path drop them?",
            ),
            Self::AddressChanged => f.write_str(
                "the peer gets this endpoint's packets from another address or port than before: a NAT or a service \
                 address on the way has begun to rewrite them; reconnect",
            ),
            Self::PeerReset => {
                f.write_str("the peer does not know the session, it may have restarted")
            }
            Self::PeerClosed => f.write_str("the peer closed the session"),
            Self::Disconnected => f.write_str("the session was disconnected"),
            Self::Shutdown => f.write_str("the endpoint was shut down"),
            Self::RequestTooLarge(size) => {
                write!(f, "the request has {size} bytes, more than the server accepts")
            }
            Self::ResponseTooLarge(size) => {
                write!(f, "the response has {size} bytes, more than the endpoint's message limit")
            }
            Self::NoMemory => {
                f.write_str("no memory for the response within the endpoint's memory limit")
            }
            Self::Malformed => f.write_str("the response is not of the method's type"),
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::DeadlineExceeded => f.write_str("the call's deadline has passed"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => {
                f.write_str("no answer; is a server listening there, and does a firewall pass UDP?")
            }
            Self::Version(low, high) => {
                write!(
                    f,
                    "the peer speaks protocol versions {low} to {high}, this side {}",
                    crate::wire::VERSION
                )
            }
            Self::Full => f.write_str("the server takes no more sessions: max_sessions are open"),
            Self::HostFull => f.write_str(
                "the server takes no more sessions from this host's address: see its max_sessions_per_host, \
                 max_sockets_per_host and reserved_sessions",
            ),
            Self::NotListening => f.write_str("the peer is no server"),
            Self::Parameters => {
                f.write_str("the peer's parameters do not fit: datagram size or receive queue")
            }
            Self::TooManySessions => f.write_str("this endpoint has no room for another session"),
        }
    }
}

impl fmt::Display for RejectReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueueFull => {
                f.write_str("the session's queue is full; wait for replies before calling again")
            }
            Self::NoSession => f.write_str("the session is closed"),
            Self::Disconnecting => f.write_str("the session is being disconnected"),
            Self::TooLarge { size, limit } => {
                write!(f, "the request has {size} bytes, the session takes at most {limit}")
            }
            Self::NoMemory(error) => error.fmt(f),
            Self::DeadlineExceeded => f.write_str("the call's deadline has passed"),
            Self::StreamEnded => f.write_str("the stream has ended, or is no longer read"),
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

impl std::error::Error for CallError {}
impl std::error::Error for Cause {}
impl std::error::Error for ConnectError {}
impl std::error::Error for RejectReason {}
impl std::error::Error for Rejected {}
