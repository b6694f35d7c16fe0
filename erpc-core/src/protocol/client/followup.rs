//! What the table of sessions does after a step of one of them.

use super::reservation::Charges;
use crate::protocol::Cause;
use crate::transport::Link;
use crate::wire::{ConnectionId, Flags};

/// What a step of a session asks of the table that holds it.
#[must_use]
pub(super) enum Followup {
    None,
    /// Look up the path to its server.
    Route,
    /// The server has accepted it, on these terms.
    Open(Box<Terms>),
    /// The server has accepted it on terms that were not offered: drop the packet, end the session.
    Refuse,
    /// It has ended.
    End(Cause),
}

/// What the two sides have agreed upon.
pub(super) struct Terms {
    pub(super) server: ConnectionId,
    /// Which member of the server's group.
    pub(super) steer: u8,
    pub(super) flags: Flags,
    pub(super) credits: u16,
    pub(super) window: u32,
    pub(super) eager: u32,
    /// What both ends can take, in bytes.
    pub(super) max_datagram: u32,
    /// The path carries as much, both ways, or is taken to.
    pub(super) is_proven: bool,
    pub(super) max_request: u32,
    /// Of such datagrams.
    pub(super) charges: Charges,
    pub(super) link: Link,
    /// From `Open` to `Opened`, in nanoseconds, if it is known to which `Open` that was the answer.
    pub(super) round_trip: Option<u64>,
}
