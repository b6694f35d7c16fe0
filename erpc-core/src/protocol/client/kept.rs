//! Large responses that the server keeps until it is told that the client has them.

use std::time::Duration;

use crate::protocol::index::{SlotIndex, SlotSet};
use crate::time::Instant;

/// For responses larger than this the client tells the server that it may drop them; smaller ones are
/// not worth a packet and stay in their slot until the next request. In bytes.
pub(in crate::protocol) const KEPT_SMALL: u32 = 512;

/// The slots whose last response the server may still keep. The slot's next request tells the server, or, one timeout
/// later, a `Done`.
#[derive(Debug)]
pub(super) struct KeptResponses {
    /// The server is to be told.
    owed: SlotSet,
    /// The server was told by a `Done`, which may have been lost.
    told: SlotSet,
    told_at: Instant,
}

impl KeptResponses {
    pub(super) fn new(now: Instant) -> Self {
        Self { owed: SlotSet::EMPTY, told: SlotSet::EMPTY, told_at: now }
    }

    /// The server is to be told about this slot.
    pub(super) fn owe(&mut self, slot: SlotIndex) {
        self.owed.insert(slot);
    }

    pub(super) fn is_owed(&self, slot: SlotIndex) -> bool {
        self.owed.contains(slot)
    }

    /// A new request in the slot tells the server.
    #[inline(always)]
    pub(super) fn superseded(&mut self, slot: SlotIndex) {
        self.owed.remove(slot);
        self.told.remove(slot);
    }

    /// The slots to name in a `Done`, of those that are `free`: slots that are owed and, in case the last `Done` was
    /// lost, an `interval` later once more those that it named.
    pub(super) fn due(&mut self, now: Instant, interval: Duration, free: SlotSet) -> SlotSet {
        let fresh = self.owed.intersection(free);
        let told = self.told.intersection(free);
        let repeat = if now >= self.told_at + interval { told } else { SlotSet::EMPTY };
        let due = fresh.union(repeat);
        if !due.is_empty() {
            self.owed = self.owed.intersection(fresh.complement());
            self.told = self.told.intersection(repeat.complement()).union(fresh);
            self.told_at = now;
        }
        due
    }
}
