//! Large responses that the server keeps until the client has confirmed them.

use std::time::Duration;

use crate::protocol::index::{SlotIndex, SlotSet};
use crate::time::Instant;

/// The client confirms responses of more bytes than this, so that the server can drop them. Smaller
/// ones do not justify a packet and stay in their slot until the next request.
pub(in crate::protocol) const KEPT_SMALL: u32 = 512;

/// The slots whose last response the server may still keep. The slot's next request confirms the
/// response. Without such a request, a `Done` confirms it, one timeout later at the latest.
#[derive(Debug)]
pub(super) struct KeptResponses {
    /// Slots to be named in a `Done`.
    owed: SlotSet,
    /// Slots named in a `Done`, which may have been lost.
    told: SlotSet,
    told_at: Instant,
}

impl KeptResponses {
    pub(super) fn new(now: Instant) -> Self {
        Self { owed: SlotSet::EMPTY, told: SlotSet::EMPTY, told_at: now }
    }

    /// The client owes the server a `Done` for this slot.
    pub(super) fn owe(&mut self, slot: SlotIndex) {
        self.owed.insert(slot);
    }

    pub(super) fn is_owed(&self, slot: SlotIndex) -> bool {
        self.owed.contains(slot)
    }

    /// A new request in the slot confirms its last response.
    #[inline(always)]
    pub(super) fn superseded(&mut self, slot: SlotIndex) {
        self.owed.remove(slot);
        self.told.remove(slot);
    }

    /// The slots to name in a `Done` now, out of those that are `free`: slots that are owed and,
    /// one `interval` after the last `Done`, once more the slots that an earlier `Done` named, in
    /// case that `Done` was lost.
    pub(super) fn due(&mut self, now: Instant, interval: Duration, free: SlotSet) -> SlotSet {
        let fresh = self.owed.intersection(free);
        let told = self.told.intersection(free);
        let repeat = if now >= self.told_at + interval { told } else { SlotSet::EMPTY };
        let due = fresh.union(repeat);
        if !due.is_empty() {
            self.owed = self.owed.without(fresh);
            self.told = self.told.without(repeat).union(fresh);
            self.told_at = now;
        }
        due
    }
}
