//! Why a session could not be opened.

use std::fmt;
use std::io;

use super::shared::ClientThreadsError;
use crate::protocol::{Cause, ConnectError};
use crate::status::Status;

/// A session could not be opened. Holds the address and the reason.
#[derive(Debug)]
pub struct ConnectFailed {
    address: String,
    reason: ConnectFailure,
}

/// Why a session could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// The name could not be resolved.
    Resolve(io::Error),
    /// The name has no address.
    NoAddress,
    /// The handshake failed.
    Handshake(ConnectError),
    /// The threads that make the calls of a shared channel could not be started.
    Threads(ClientThreadsError),
    /// The session ended before it was open.
    Ended(Cause),
}

impl ConnectFailed {
    pub(crate) fn new(address: String, reason: ConnectFailure) -> Self {
        Self { address, reason }
    }

    /// The address that was tried last; empty if there was none to try.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Why the session could not be opened.
    #[must_use]
    pub fn reason(&self) -> &ConnectFailure {
        &self.reason
    }
}

/// Lets handlers that connect to other servers use `?`.
impl From<ConnectFailed> for Status {
    fn from(error: ConnectFailed) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<Cause> for ConnectFailure {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Connect(error) => Self::Handshake(error),
            cause => Self::Ended(cause),
        }
    }
}

impl fmt::Display for ConnectFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match &self.reason {
            ConnectFailure::Resolve(error) => {
                write!(f, "cannot look up the server's address: {error}; give it as host:port")
            }
            ConnectFailure::NoAddress => f.write_str("the server's name has no address"),
            ConnectFailure::Handshake(error) => write!(f, "cannot connect to {address}: {error}"),
            ConnectFailure::Threads(error) => write!(f, "cannot connect to {address}: {error}"),
            ConnectFailure::Ended(cause) => write!(f, "cannot connect to {address}: {cause}"),
        }
    }
}

impl std::error::Error for ConnectFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            ConnectFailure::Resolve(error) => Some(error),
            ConnectFailure::NoAddress => None,
            ConnectFailure::Handshake(error) => Some(error),
            ConnectFailure::Threads(error) => Some(error),
            ConnectFailure::Ended(cause) => Some(cause),
        }
    }
}
