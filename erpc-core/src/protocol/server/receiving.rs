//! A request of several packets, while it arrives.

use super::memory::SessionMemory;
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::stats::DropReason;
use crate::time::Instant;
use crate::wire::{Header, PacketLayout, Stamp};

/// A request of several packets that is not complete yet.
pub(super) struct Receiving {
    assembly: Assembly,
    method: u32,
    extended: bool,
    /// The deadline in the first packet.
    deadline: Instant,
    /// The slot's last response buffer, kept for the next response.
    kept: Option<MsgBuf>,
    /// A credit return is owed at the end of the burst.
    credit_owed: bool,
    /// A packet arrived out of order: an earlier one is missing.
    gap: bool,
    /// The stamp that the next credit return echoes. If packets have arrived out of order, it is
    /// the stamp of the last of these, otherwise the stamp of the last packet that arrived.
    echo: Stamp,
    /// The next expected packet, according to the last credit return.
    told_next: u32,
}

impl Receiving {
    /// A request of which the first packet has arrived, with this `header`.
    pub(super) fn new(header: &Header, assembly: Assembly, deadline: Instant) -> Self {
        Self {
            assembly,
            method: header.aux,
            extended: header.flags.extended(),
            deadline,
            kept: None,
            credit_owed: false,
            gap: false,
            echo: Stamp::NONE,
            told_next: 0,
        }
    }

    /// Whether a packet, of a request with this `layout`, agrees with the first packet on the
    /// properties of the request.
    pub(super) fn agrees_with(&self, header: &Header, layout: &PacketLayout) -> bool {
        layout == self.assembly.layout()
            && (header.packet.get() != 0 || header.aux == self.method)
            && header.flags.extended() == self.extended
    }

    /// Checks that a packet is the next expected one.
    ///
    /// # Errors
    /// `OutOfOrder` for a later packet, which the client must send again. `Duplicate` for an
    /// earlier packet.
    pub(super) fn check_order(&self, packet: u32) -> Result<(), DropReason> {
        let next = self.assembly.next();
        if packet > next && !mutant!(OutOfOrderTaken) {
            return Err(DropReason::OutOfOrder);
        }
        if packet < next { Err(DropReason::Duplicate) } else { Ok(()) }
    }

    /// Appends the body of the next packet.
    pub(super) fn take(
        &mut self,
        body: &[u8],
        memory: &mut SessionMemory,
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        let before = self.assembly.footprint();
        let taken = self.assembly.take(body, pool);
        memory.remove(before);
        memory.add(self.assembly.footprint());
        taken
    }

    /// Keeps the slot's buffer for the response.
    pub(super) fn keep(&mut self, buffer: Option<MsgBuf>) {
        self.kept = buffer;
    }

    pub(super) fn layout(&self) -> &PacketLayout {
        self.assembly.layout()
    }

    pub(super) fn is_complete(&self) -> bool {
        self.assembly.is_complete()
    }

    /// Bytes of memory held.
    pub(super) fn footprint(&self) -> usize {
        self.assembly.footprint() + self.kept.as_ref().map_or(0, MsgBuf::footprint)
    }

    /// The complete request.
    pub(super) fn into_request(self, memory: &mut SessionMemory) -> Received {
        memory.remove(self.footprint());
        let Self { assembly, method, deadline, kept: buffer, told_next, .. } = self;
        let last = assembly.next() - 1;
        let last_untold = (last > told_next).then_some(last);
        Received { message: assembly.into_message(), method, deadline, buffer, last_untold }
    }

    /// Drops the packets. Returns the slot's last response buffer.
    pub(super) fn discard(self, memory: &mut SessionMemory, pool: &mut Pool) -> Option<MsgBuf> {
        memory.remove(self.assembly.footprint());
        self.assembly.discard(pool);
        self.kept
    }

    /// # Panics
    /// If an invariant does not hold.
    pub(super) fn check_invariants(&self) {
        assert!(
            !self.assembly.is_complete(),
            "a complete request is passed to the handler immediately"
        );
        assert!(self.assembly.next() > 0, "a request begins with its first packet");
        assert!(self.credit_owed || !self.gap, "a credit return is owed after a gap");
    }

    /// Records that a packet has arrived, out of order if there is a `gap`. True if a credit return
    /// was not owed before.
    pub(super) fn owe_credit(&mut self, header: &Header, gap: bool) -> bool {
        self.gap |= gap;
        // If there is a gap, the credit return makes the client roll back. The credit return
        // answers the packet that arrived out of order, so it echoes this packet's stamp.
        if header.packet.get() > 0 && (gap || !self.gap) {
            self.echo = Stamp::from_u32(header.aux);
        }
        !std::mem::replace(&mut self.credit_owed, true)
    }

    /// The credit return that is owed.
    pub(super) fn return_credit(&mut self) -> CreditReturn {
        self.credit_owed = false;
        self.told_next = self.assembly.next();
        CreditReturn {
            next: self.assembly.next(),
            gap: std::mem::take(&mut self.gap),
            echo: std::mem::take(&mut self.echo),
        }
    }
}

/// The variable part of a credit return.
#[derive(Clone, Copy)]
pub(super) struct CreditReturn {
    /// The next expected packet: all packets before it have arrived.
    pub(super) next: u32,
    /// A later packet has arrived and was dropped: the client must roll back to `next`.
    pub(super) gap: bool,
    pub(super) echo: Stamp,
}

/// A complete request of several packets.
pub(super) struct Received {
    pub(super) message: MsgBuf,
    pub(super) method: u32,
    pub(super) deadline: Instant,
    /// The slot's last response buffer.
    pub(super) buffer: Option<MsgBuf>,
    /// The number of the last packet, unless a credit return has acknowledged it already.
    pub(super) last_untold: Option<u32>,
}
