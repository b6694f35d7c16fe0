//! A request of several packets on its way in.

use super::memory::SessionMemory;
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::mutants::mutant;
use crate::protocol::assembly::Assembly;
use crate::protocol::stats::DropReason;
use crate::time::Instant;
use crate::wire::{Header, PacketLayout, Stamp};

/// A request of several packets, as far as it is here.
pub(super) struct Receiving {
    assembly: Assembly,
    method: u32,
    extended: bool,
    /// From the first packet.
    deadline: Instant,
    kept: Option<MsgBuf>,
    /// A credit return is owed at the end of the burst.
    credit_owed: bool,
    /// A packet arrived before its predecessors.
    gap: bool,
    /// The stamp of the last packet.
    echo: Stamp,
    /// The next packet, as the last credit return named it.
    told_next: u32,
}

impl Receiving {
    /// The request of this first packet.
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

    /// Whether a packet of a request that is cut so says the same of the request as the first one.
    pub(super) fn agrees_with(&self, header: &Header, layout: &PacketLayout) -> bool {
        layout == self.assembly.layout()
            && (header.packet.get() != 0 || header.aux == self.method)
            && header.flags.extended() == self.extended
    }

    /// Whether a packet is the next one: otherwise the client sends it again, or has sent it before.
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

    /// Drops the packets. Returns the kept buffer.
    pub(super) fn discard(self, memory: &mut SessionMemory, pool: &mut Pool) -> Option<MsgBuf> {
        memory.remove(self.assembly.footprint());
        self.assembly.discard(pool);
        self.kept
    }

    /// # Panics
    /// If something does not add up.
    pub(super) fn check_invariants(&self) {
        assert!(!self.assembly.is_complete(), "the handler gets a complete request at once");
        assert!(self.assembly.next() > 0, "a request begins with its first packet");
        assert!(self.credit_owed || !self.gap, "a gap is told by a credit return");
    }

    /// Notes that a packet has arrived, out of order if there is a `gap`. Returns whether a credit return was not owed
    /// before.
    pub(super) fn owe_credit(&mut self, header: &Header, gap: bool) -> bool {
        self.gap |= gap;
        // The client goes back for the packet that shows the gap: it is the one to echo.
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
    /// All packets before this one are here.
    pub(super) next: u32,
    /// A later packet has arrived: the client has to go back.
    pub(super) gap: bool,
    pub(super) echo: Stamp,
}

/// A request of several packets, complete.
pub(super) struct Received {
    pub(super) message: MsgBuf,
    pub(super) method: u32,
    pub(super) deadline: Instant,
    /// The slot's last response buffer.
    pub(super) buffer: Option<MsgBuf>,
    /// The last packet, unless a credit return has named the packet behind it.
    pub(super) last_untold: Option<u32>,
}
