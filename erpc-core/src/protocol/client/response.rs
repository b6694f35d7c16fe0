//! The reassembly of a response of several packets.

use super::reservation::Cost;
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::protocol::assembly::Assembly;
use crate::wire::{PacketLayout, Stamp};

/// Upper limit for the packets that one request for response asks for.
pub(super) const MOST_PULLED: u32 = 64;

/// A response in reassembly.
pub(super) struct Response {
    assembly: Assembly,
    /// Response packets `0..asked` were asked for, or came unasked.
    asked: u32,
    /// The message is an encoded status.
    failure: bool,
    /// The message begins with an extension.
    extended: bool,
    /// Listed to be pulled at the end of the burst.
    pull_pending: bool,
    /// The stamp that the last packet echoed.
    echo: Stamp,
    /// What each packet that is asked for reserves.
    cost: Cost,
}

/// A complete response.
pub(super) struct Complete {
    pub(super) message: MsgBuf,
    pub(super) failure: bool,
    pub(super) extended: bool,
}

impl Response {
    /// A response whose first packet, if it has arrived, is in `assembly`.
    pub(super) fn new(assembly: Assembly, failure: bool, extended: bool, cost: Cost) -> Self {
        let asked = assembly.next();
        Self { assembly, asked, failure, extended, pull_pending: false, echo: Stamp::NONE, cost }
    }

    /// What each packet that is asked for reserves.
    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    pub(super) fn layout(&self) -> &PacketLayout {
        self.assembly.layout()
    }

    pub(super) fn is_extended(&self) -> bool {
        self.extended
    }

    /// The packet that is needed next.
    pub(super) fn next(&self) -> u32 {
        self.assembly.next()
    }

    /// The number of packets asked for, including those that have arrived.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// More packets were asked for.
    pub(super) fn note_asked(&mut self, packets: u32) {
        self.asked += packets;
        debug_assert!(self.asked <= self.layout().packets());
    }

    /// Packets not asked for yet.
    pub(super) fn left(&self) -> u32 {
        self.layout().packets() - self.asked
    }

    /// Packets that were asked for and have not arrived.
    pub(super) fn on_their_way(&self) -> u32 {
        self.asked - self.assembly.next()
    }

    /// Takes the next packet.
    pub(super) fn take(&mut self, body: &[u8], pool: &mut Pool) -> Result<(), NoMemory> {
        self.assembly.take(body, pool)
    }

    /// A packet arrived with this stamp. Returns whether it is the first one of its pull.
    pub(super) fn is_first_with(&mut self, echo: Stamp) -> bool {
        std::mem::replace(&mut self.echo, echo) != echo
    }

    /// Whether the message is a failure.
    pub(super) fn is_failure(&self) -> bool {
        self.failure
    }

    /// Whether the response is listed to be pulled at the end of the burst.
    pub(super) fn is_pull_pending(&self) -> bool {
        self.pull_pending
    }

    /// Forgets the packets that were asked for and have not arrived: they are lost, or the client
    /// drops them on arrival.
    pub(super) fn forget_asked(&mut self) {
        self.asked = self.assembly.next();
    }

    /// The message, which must be complete.
    pub(super) fn complete(self) -> Complete {
        let Self { assembly, failure, extended, .. } = self;
        debug_assert!(assembly.is_complete());
        Complete { message: assembly.into_message(), failure, extended }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.assembly.is_complete()
    }

    /// Returns the response's memory to the pool.
    pub(super) fn discard(self, pool: &mut Pool) {
        self.assembly.discard(pool);
    }

    /// Marks the response as listed to be pulled at the end of the burst. Returns whether the
    /// caller must add it to the list; false if the response is listed already.
    pub(super) fn pull_later(&mut self) -> bool {
        !std::mem::replace(&mut self.pull_pending, true)
    }

    /// The burst has ended: the response is not listed any more.
    pub(super) fn pulled(&mut self) {
        self.pull_pending = false;
    }
}
