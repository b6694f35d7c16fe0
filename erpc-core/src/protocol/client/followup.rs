//! What the table of sessions does after a step of a session.

use super::reservation::Charges;
use crate::protocol::Cause;
use crate::time::Instant;
use crate::transport::{Link, NetworkError};
use crate::wire::{ConnectionId, Flags};

/// What a step of a session asks of the table that holds it.
#[must_use]
pub(super) enum Followup {
    None,
    /// Look up the path to the session's server.
    Route,
    /// The server has accepted the session on these terms.
    Open(Box<Terms>),
    /// The server has accepted on terms that were not offered: drop the packet, end the session.
    Refuse,
    /// The session has ended.
    End(Cause),
    /// No packet reaches the server's address, for this reason, and nothing has come from there
    /// since this time.
    Unreachable(NetworkError, Instant),
}

/// What client and server have agreed upon for a session.
pub(super) struct Terms {
    pub(super) server: ConnectionId,
    /// Index of the server's endpoint in its group.
    pub(super) steer: u8,
    pub(super) flags: Flags,
    pub(super) credits: u16,
    pub(super) window: u32,
    pub(super) eager: u32,
    /// Bytes of the largest datagram that both ends can take.
    pub(super) max_datagram: u32,
    /// The path has proved to carry such datagrams both ways, or is assumed to.
    pub(super) is_proven: bool,
    pub(super) max_request: u32,
    /// For datagrams of `max_datagram` bytes.
    pub(super) charges: Charges,
    pub(super) link: Link,
    /// From `Open` to `Opened`, in ns; `None` if several `Open`s were sent.
    pub(super) round_trip: Option<u64>,
}
