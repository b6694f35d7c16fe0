//! Why a session could not be opened.

use std::fmt;
use std::io;

use super::shared::ClientThreadsError;
use crate::debug_text::debug_is_display;
use crate::protocol::{Cause, ConnectError};
use crate::status::Status;

/// A session could not be opened. Holds the address and the reason.
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

    /// The address that was tried last, or the name that could not be resolved. Empty if a custom
    /// [`Target`](crate::client::Target) or [`Resolver`](crate::client::Resolver) has no name.
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
                write!(f, "cannot look up the server's address{}: {error}", Named(address))
            }
            ConnectFailure::NoAddress => {
                write!(f, "the server's name{} has no address", Named(address))
            }
            ConnectFailure::Handshake(error) => write!(f, "cannot connect to {address}: {error}"),
            ConnectFailure::Threads(error) => write!(f, "cannot connect to {address}: {error}"),
            ConnectFailure::Ended(cause) => write!(f, "cannot connect to {address}: {cause}"),
        }
    }
}

/// A name in quotes, with a space before it; nothing if it is empty.
struct Named<'a>(&'a str);

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() { Ok(()) } else { write!(f, " `{}`", self.0) }
    }
}

/// Most addresses that a text names for one reason.
const MOST_NAMED: usize = 8;

/// The addresses of servers that could not be reached, each with its reason. Addresses with the
/// same reason stand together.
pub(super) fn servers_and_reasons<R: fmt::Display>(
    servers: impl Iterator<Item = (R, Option<Cause>)>,
) -> String {
    let mut reasons: Vec<(Cause, Vec<String>)> = Vec::new();
    for (server, cause) in servers {
        let Some(cause) = cause else { continue };
        match reasons.iter_mut().find(|(other, _)| *other == cause) {
            Some((_, servers)) => servers.push(server.to_string()),
            None => reasons.push((cause, vec![server.to_string()])),
        }
    }
    let texts = reasons.into_iter().map(|(cause, servers)| {
        let (named, others) = servers.split_at(servers.len().min(MOST_NAMED));
        let more = match others.len() {
            0 => String::new(),
            more => format!(" and {more} more"),
        };
        format!("cannot connect to {}{more}: {cause}", named.join(", "))
    });
    texts.collect::<Vec<_>>().join("; ")
}

debug_is_display!(ConnectFailed);

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_with_the_same_reason_stand_together_and_the_list_is_bounded() {
        let reset = Some(Cause::PeerReset);
        let servers =
            [("a:1", reset), ("b:1", Some(Cause::PeerClosed)), ("c:1", reset), ("d:1", None)];
        assert_eq!(
            servers_and_reasons(servers.into_iter()),
            format!(
                "cannot connect to a:1, c:1: {}; cannot connect to b:1: {}",
                Cause::PeerReset,
                Cause::PeerClosed
            )
        );
        let many = (0..10).map(|port| (format!("a:{port}"), reset));
        assert_eq!(
            servers_and_reasons(many),
            format!(
                "cannot connect to a:0, a:1, a:2, a:3, a:4, a:5, a:6, a:7 and 2 more: {}",
                Cause::PeerReset
            )
        );
    }
}
