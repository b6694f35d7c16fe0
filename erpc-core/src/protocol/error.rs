//! Errors of calls and sessions.

use std::fmt;
use std::sync::Arc;

use crate::buf::{MsgBuf, NoMemory};
use crate::debug_text::debug_is_display;
use crate::status::Status;
use crate::transport::NetworkError;

/// Why a call has no response.
///
/// The variants say whether the handler ran, which decides whether a retry is safe. A call is
/// reported as `NotExecuted` only if its request cannot have been complete at the server.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// The server answered, and the answer is a failure.
    Status(Status),
    /// The server has no method of that full name, and has run nothing. It serves other services,
    /// or was built from another `.proto` file. Only typed calls fail with it, because they know
    /// the name.
    NoSuchMethod(&'static str),
    /// A channel reached no server, so the handler did not run; a retry is safe. The text names
    /// every server, with the reason.
    NoServer(NoServer),
    /// This endpoint did not accept the call; nothing was sent.
    Rejected(RejectReason),
    /// The handler did not run and will not run; a retry is safe.
    NotExecuted(Cause),
    /// The handler may have run once, or may be running.
    MaybeExecuted(Cause),
    /// The handler ran, but its response could not be received.
    ResponseLost(Cause),
}

// Every reply is moved as a `Result` with this error.
const _: () = assert!(size_of::<CallError>() <= 24);

/// Why a channel reached no server. Cheap to clone. `Display` names the servers' addresses, or the
/// name that could not be resolved, with the reasons.
#[derive(Clone, PartialEq, Eq)]
pub struct NoServer(Arc<NoServerInner>);

#[derive(PartialEq, Eq)]
struct NoServerInner {
    cause: Cause,
    text: String,
}

impl NoServer {
    /// `text` describes the failures of all servers.
    pub(crate) fn new(cause: Cause, text: String) -> Self {
        Self(Arc::new(NoServerInner { cause, text }))
    }

    /// Why the server that was tried last could not be reached; [`Cause::Unresolved`] if no address
    /// is known.
    #[must_use]
    pub fn cause(&self) -> Cause {
        self.0.cause
    }
}

impl From<NoServer> for CallError {
    fn from(why: NoServer) -> Self {
        match why.cause() {
            cause @ Cause::Shutdown => Self::NotExecuted(cause),
            _ => Self::NoServer(why),
        }
    }
}

/// Why a call failed for a reason other than the handler's answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Cause {
    /// The session could not be opened.
    Connect(ConnectError),
    /// The lookup of the servers' names failed or returned no address. Part of [`NoServer`], whose
    /// text has the system's reason.
    Unresolved,
    /// The servers can be reached and report that they do not serve the service. Part of
    /// [`NoServer`], for channels that [check health](crate::client::ChannelBuilder::health_check).
    NotServing,
    /// The peer was silent for the liveness timeout.
    PeerDead,
    /// Packets do not reach the peer: its host, a router or this host's system says so, and the
    /// peer has not answered since. For example, the server was killed, or the network has no
    /// route to it.
    Unreachable(NetworkError),
    /// The peer answers pings, but no packets of a call have got through for the liveness timeout,
    /// neither large nor small ones.
    NoProgress,
    /// The peer receives this endpoint's packets from another address than when the session opened:
    /// something on the path, such as a NAT or a Kubernetes service, has begun to rewrite the
    /// source address. A new session may be opened immediately.
    AddressChanged,
    /// The peer does not know the session: it has restarted, or has declared this endpoint dead,
    /// because this endpoint's loop did not run for the peer's liveness timeout.
    PeerReset,
    /// The peer closed the session.
    PeerClosed,
    /// The server shuts down: it finishes the calls that run, and takes no new ones. Other servers
    /// of the service may take them.
    PeerDraining,
    /// This endpoint disconnected the session.
    Disconnected,
    /// This endpoint was shut down.
    Shutdown,
    /// The request of this number of bytes is larger than the server accepts. The limit is known
    /// only after the session has opened.
    RequestTooLarge(u32),
    /// The response of this number of bytes is larger than this endpoint accepts, or than the
    /// method allows.
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
    /// No answer within the connect timeout, and no error: the path drops the packets, the host is
    /// down, or the server's event loop is busy.
    Timeout,
    /// Packets do not reach the peer: its host, a router or this host's system says so.
    Unreachable(NetworkError),
    /// The peer speaks other versions of the protocol, from the first number to the second.
    Version(u16, u16),
    /// The peer accepts no more sessions:
    /// [`EndpointConfig::max_sessions`](super::EndpointConfig::max_sessions) are open.
    Full,
    /// The peer accepts no more sessions from this host's address, because of one of its limits:
    /// [`max_sessions_per_host`](super::EndpointConfig::max_sessions_per_host),
    /// [`max_sockets_per_host`](super::EndpointConfig::max_sockets_per_host) or
    /// [`reserved_sessions`](super::EndpointConfig::reserved_sessions).
    HostFull,
    /// The peer does not accept sessions at all.
    NotListening,
    /// The server shuts down and accepts no more sessions.
    Draining,
    /// The two sides' parameters are incompatible: a datagram size below the minimum, or an unknown
    /// charge model of receive queues.
    Parameters,
    /// This endpoint has the maximum number of sessions.
    TooManySessions,
}

/// A call that was not accepted. It returns the request unchanged.
#[derive(Debug)]
pub struct Rejected {
    /// Why the call was not accepted.
    pub reason: RejectReason,
    /// The request.
    pub request: MsgBuf,
}

/// Why a call was not accepted. Nothing was sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RejectReason {
    /// The session's queue is full:
    /// [`EndpointConfig::queue_limit`](super::EndpointConfig::queue_limit) calls wait. Wait for
    /// replies.
    QueueFull,
    /// The session does not exist: it was closed or failed.
    NoSession,
    /// The session is being disconnected and takes no new calls.
    Disconnecting,
    /// The session's server shuts down and takes no new calls.
    PeerDraining,
    /// The request, or the message of a stream, is larger than the session or the method accepts.
    TooLarge {
        /// Bytes of the request or message.
        size: usize,
        /// Maximum number of bytes that the session or the method accepts.
        limit: usize,
    },
    /// There was no memory for the request.
    NoMemory(NoMemory),
    /// The call's deadline had passed when it was made.
    DeadlineExceeded,
    /// The stream has ended, or its other side accepts no more items.
    StreamEnded,
}

const DRAINING: &str = "the server is shutting down and takes no new calls";

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status) => status.fmt(f),
            Self::NoSuchMethod(name) => write!(
                f,
                "the server has no method {name}; is its service added to the server, and are both sides built from \
                 the same .proto file?"
            ),
            Self::NoServer(why) => {
                write!(f, "{why}; the call was not executed and may be retried")
            }
            Self::Rejected(reason) => write!(f, "{reason}; nothing was sent"),
            Self::NotExecuted(cause) => {
                write!(f, "{cause}; the call was not executed and may be retried")
            }
            Self::MaybeExecuted(cause) => write!(f, "{cause}; the call may have been executed"),
            Self::ResponseLost(cause) => write!(f, "{cause}; the call was executed"),
        }
    }
}

impl fmt::Display for NoServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.text)
    }
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connect(error) => error.fmt(f),
            Self::Unresolved => f.write_str("no server's address is known"),
            Self::NotServing => f.write_str("the servers report that they do not serve the service"),
            Self::PeerDead => f.write_str(
                "the peer has not answered for the liveness timeout: it has ended, the path is broken, or its event \
                 loop is blocked, for example by a handler",
            ),
            Self::Unreachable(error) => {
                write!(f, "the peer cannot be reached any more: {error}")
            }
            Self::NoProgress => f.write_str(
                "the peer answers but the call's packets do not get through; does something on the path drop them?",
            ),
            Self::AddressChanged => f.write_str(
                "the peer gets this endpoint's packets from another address or port than before: a NAT or a service \
                 address on the way has begun to rewrite them; reconnect",
            ),
            Self::PeerReset => f.write_str(
                "the peer does not know the session: it has restarted, or this endpoint's loop did not run for the \
                 liveness timeout",
            ),
            Self::PeerClosed => f.write_str("the peer closed the session"),
            Self::PeerDraining => f.write_str(DRAINING),
            Self::Disconnected => f.write_str("the session was disconnected"),
            Self::Shutdown => f.write_str("the endpoint was shut down"),
            Self::RequestTooLarge(size) => {
                write!(
                    f,
                    "the request has {size} bytes, more than the server accepts: see the server's \
                     `EndpointConfig::max_message`"
                )
            }
            Self::ResponseTooLarge(size) => {
                write!(f, "the response has {size} bytes, more than the endpoint or the method allows")
            }
            Self::NoMemory => {
                f.write_str("no memory for the response within the endpoint's memory limit")
            }
            Self::Malformed => f.write_str(
                "the response does not decode as the method's type (are both sides built from the same .proto file?)",
            ),
            Self::Cancelled => f.write_str("the call was cancelled"),
            Self::DeadlineExceeded => f.write_str("the call's deadline has passed"),
        }
    }
}

impl fmt::Display for ConnectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Timeout => f.write_str(
                "no answer within the connect timeout, and no error from the network: a firewall drops UDP, the host \
                 is down, or the server's event loop is busy, for example with a handler that blocks it",
            ),
            Self::Unreachable(error) => error.fmt(f),
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
            Self::NotListening => f.write_str("the peer does not accept sessions"),
            Self::Draining => f.write_str("the server is shutting down and takes no new sessions"),
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
            Self::PeerDraining => f.write_str(DRAINING),
            Self::TooLarge { size, limit } => {
                write!(f, "the request has {size} bytes, the session takes at most {limit}")
            }
            Self::NoMemory(error) => error.fmt(f),
            Self::DeadlineExceeded => f.write_str("the call's deadline has passed"),
            Self::StreamEnded => {
                f.write_str("the stream has ended, or its other side no longer reads it")
            }
        }
    }
}

impl fmt::Display for Rejected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.reason.fmt(f)
    }
}

debug_is_display!(CallError, NoServer);

impl std::error::Error for CallError {}
impl std::error::Error for NoServer {}
impl std::error::Error for Cause {}
impl std::error::Error for ConnectError {}
impl std::error::Error for RejectReason {}
impl std::error::Error for Rejected {}
