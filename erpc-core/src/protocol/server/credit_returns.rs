//! Credit returns that are owed at the end of a burst.

use crate::protocol::ClientId;
use crate::wire::{RequestNumber, Stamp};

/// A request whose client gets credits back at the end of the burst.
pub(super) struct OwedCredit {
    pub(super) session: ClientId,
    pub(super) request: RequestNumber,
    /// The last packet, if the request is complete.
    pub(super) last: Option<LastPacket>,
}

/// The last packet of a request.
pub(super) struct LastPacket {
    pub(super) packet: u32,
    pub(super) echo: Stamp,
}

/// The credit returns of the current burst: one per request, for all of its packets.
#[derive(Default)]
pub(super) struct CreditReturns {
    owed: Vec<OwedCredit>,
}

impl CreditReturns {
    #[inline]
    pub(super) fn owe(&mut self, credit: OwedCredit) {
        self.owed.push(credit);
    }

    /// Takes the credit returns out, in order. The vector keeps its capacity.
    #[inline]
    pub(super) fn drain(&mut self) -> impl Iterator<Item = OwedCredit> + '_ {
        self.owed.drain(..)
    }
}
