//! A response of several packets, under way.

use super::reservation::Cost;
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::protocol::assembly::Assembly;
use crate::wire::{PacketLayout, Stamp};

/// A response under way.
pub(super) struct Response {
    assembly: Assembly,
    /// Response packets asked for, the first included.
    asked: u32,
    /// The message is an encoded status.
    failure: bool,
    /// The message begins with an extension.
    extended: bool,
    /// In the list of responses to be asked on for at the end of the burst.
    pull_pending: bool,
    /// The stamp that the last packet has brought back.
    echo: Stamp,
    /// What a packet that is asked for reserves.
    cost: Cost,
}

/// A response that is whole.
pub(super) struct Complete {
    pub(super) message: MsgBuf,
    pub(super) failure: bool,
    pub(super) extended: bool,
}

impl Response {
    /// A response whose first packet, if it has come, is in `assembly`.
    pub(super) fn new(assembly: Assembly, failure: bool, extended: bool, cost: Cost) -> Self {
        let asked = assembly.next();
        Self { assembly, asked, failure, extended, pull_pending: false, echo: Stamp::NONE, cost }
    }

    /// What a packet that is asked for reserves.
    pub(super) fn cost(&self) -> Cost {
        self.cost
    }

    pub(super) fn layout(&self) -> &PacketLayout {
        self.assembly.layout()
    }

    pub(super) fn is_extended(&self) -> bool {
        self.extended
    }

    /// The packet that comes next.
    pub(super) fn next(&self) -> u32 {
        self.assembly.next()
    }

    /// Packets asked for.
    pub(super) fn asked(&self) -> u32 {
        self.asked
    }

    /// More packets were asked for.
    pub(super) fn note_asked(&mut self, packets: u32) {
        self.asked += packets;
        debug_assert!(self.asked <= self.layout().packets());
    }

    /// Packets that are not asked for.
    pub(super) fn left(&self) -> u32 {
        self.layout().packets() - self.asked
    }

    /// Packets that were asked for and have not come.
    pub(super) fn on_their_way(&self) -> u32 {
        self.asked - self.assembly.next()
    }

    /// Takes the next packet.
    pub(super) fn take(&mut self, body: &[u8], pool: &mut Pool) -> Result<(), NoMemory> {
        self.assembly.take(body, pool)
    }

    /// A packet came with this stamp. Returns whether it is the first of those that were asked for at once.
    pub(super) fn is_first_with(&mut self, echo: Stamp) -> bool {
        std::mem::replace(&mut self.echo, echo) != echo
    }

    /// Whether a failure comes instead of a response.
    pub(super) fn is_failure(&self) -> bool {
        self.failure
    }

    /// Whether it is in the list of responses to be asked on for.
    pub(super) fn is_pull_pending(&self) -> bool {
        self.pull_pending
    }

    /// What was asked for is lost, or comes and is dropped.
    pub(super) fn forget_asked(&mut self) {
        self.asked = self.assembly.next();
    }

    /// The message, if it is whole.
    pub(super) fn complete(self) -> Complete {
        let Self { assembly, failure, extended, .. } = self;
        debug_assert!(assembly.is_complete());
        Complete { message: assembly.into_message(), failure, extended }
    }

    pub(super) fn is_complete(&self) -> bool {
        self.assembly.is_complete()
    }

    /// Gives its memory back.
    pub(super) fn discard(self, pool: &mut Pool) {
        self.assembly.discard(pool);
    }

    /// It is to be asked on for at the end of the burst. Returns whether it was not before.
    pub(super) fn pull_later(&mut self) -> bool {
        !std::mem::replace(&mut self.pull_pending, true)
    }

    /// The end of the burst has come.
    pub(super) fn pulled(&mut self) {
        self.pull_pending = false;
    }
}
