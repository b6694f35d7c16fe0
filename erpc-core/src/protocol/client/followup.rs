//! What the table of sessions does after a step of a session.

use super::reservation::Charges;
use crate::protocol::Cause;
use crate::protocol::config::SlotCount;
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
    /// The handshake has failed: no packet reaches the server's address, for this reason, and the
    /// handshake has had no answer since this time.
    Unanswered(NetworkError, Instant),
    /// The session's inquiry has found that its server is gone. All sessions to the server's
    /// address end, unless one of them shows that the server is there.
    Unreachable(Finding),
}

/// What an inquiry has found.
#[derive(Clone, Copy)]
pub(super) struct Finding {
    pub(super) error: NetworkError,
    /// When the inquiry began. The session has not heard its server since.
    pub(super) since: Instant,
    /// A packet from the server's address after this time, on any session, refutes the finding.
    pub(super) quiet_since: Instant,
}

/// What client and server have agreed upon for a session.
pub(super) struct Terms {
    pub(super) server: ConnectionId,
    /// Index of the server's endpoint in its group.
    pub(super) steer: u8,
    pub(super) flags: Flags,
    /// Whether the server takes bundles.
    pub(super) bundles: bool,
    pub(super) credits: u16,
    pub(super) slots: SlotCount,
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
