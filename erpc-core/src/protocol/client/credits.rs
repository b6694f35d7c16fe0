//! A session's credits, and the calls that wait for one.

use crate::mutants::mutant;
use crate::protocol::WINDOW;
use crate::protocol::index::{SlotIndex, SlotSet};

/// Packets that a session may have on its way (thesis section 6.3.3.1), and which call gets the next credit.
///
/// A call owns the credits of its packets `acked..sent` and of the response packets asked for
/// ([`Call::outstanding`](super::call::Call::outstanding)). A [`Quarantine`](super::slot::Quarantine) owns what its call
/// left.
#[derive(Debug)]
pub(super) struct Credits {
    /// Packets on their way.
    taken: u16,
    /// More are not sent. May be less than are on their way.
    limit: u16,
    /// A packet found no credit since the limit was asked.
    ran_out: bool,
    /// Slots that wait for a credit.
    starved: SlotSet,
    /// The slot that gets the next credits.
    next: SlotIndex,
    /// How many short calls have gone before it.
    overtaken: u8,
}

impl Credits {
    pub(super) fn new(limit: u16) -> Self {
        Self {
            taken: 0,
            limit,
            ran_out: false,
            starved: SlotSet::EMPTY,
            next: SlotIndex::FIRST,
            overtaken: 0,
        }
    }

    #[inline(always)]
    pub(super) fn available(&self) -> u16 {
        self.limit.saturating_sub(self.taken)
    }

    /// Packets on their way.
    #[inline(always)]
    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    /// So many may be on their way from now on, at least 1.
    pub(super) fn set_limit(&mut self, packets: u16) {
        self.limit = packets.max(1);
    }

    /// A packet found no credit.
    #[cold]
    pub(super) fn run_out(&mut self) {
        self.ran_out = !mutant!(RunOutForgotten);
    }

    /// Whether a packet found no credit since this was asked last.
    pub(super) fn take_ran_out(&mut self) -> bool {
        std::mem::take(&mut self.ran_out)
    }

    /// A packet leaves.
    #[inline(always)]
    pub(super) fn take(&mut self) {
        debug_assert!(self.available() > 0 || mutant!(CreditsIgnored), "a credit is there");
        self.taken = self.taken.wrapping_add(1);
    }

    /// Packets were answered, or are given up.
    #[inline(always)]
    pub(super) fn release(&mut self, packets: u16) {
        self.taken = self.taken.wrapping_sub(packets);
    }

    /// Whether a call waits for a credit.
    #[inline(always)]
    pub(super) fn is_short(&self) -> bool {
        !self.starved.is_empty()
    }

    /// The call in a slot waits for a credit.
    pub(super) fn wait(&mut self, slot: SlotIndex) {
        if self.starved.is_empty() {
            self.next = slot;
        }
        self.starved.insert(slot);
    }

    /// The call in a slot has ended.
    #[inline(always)]
    pub(super) fn leave(&mut self, slot: SlotIndex) {
        self.starved.remove(slot);
    }

    /// The slot of the call that gets the credits that there are, `None` if there are none or no call waits. Each call
    /// gets them in turn, which may be a burst's. Calls that need but few packets, as `is_short` says, go first, up
    /// to eight of them: they do not wait for the bursts of all others.
    pub(super) fn next(&mut self, is_short: impl Fn(SlotIndex) -> bool) -> Option<SlotIndex> {
        if self.starved.is_empty() || self.available() == 0 {
            return None;
        }
        let head = self.starved.first_from(self.next);
        let overtakes = |slot: &SlotIndex| self.starved.contains(*slot) && is_short(*slot);
        let next = match usize::from(self.overtaken) < WINDOW {
            true => head.circle().find(overtakes).unwrap_or(head),
            false => head,
        };
        self.starved.remove(next);
        if next == head {
            self.next = head.next();
            self.overtaken = 0;
        } else {
            self.overtaken += 1;
        }
        Some(next)
    }

    /// Whether the call in a slot waits for a credit.
    pub(super) fn is_waiting(&self, slot: SlotIndex) -> bool {
        self.starved.contains(slot)
    }

    /// With so many packets on their way; `fed_later` if waiting calls go on at the end of the burst.
    pub(super) fn check_invariants(&self, outstanding: u32, fed_later: bool) {
        assert_eq!(u32::from(self.taken), outstanding, "credits conserve");
        assert!(
            self.starved.is_empty() || self.available() == 0 || fed_later,
            "no credit lies idle beyond the end of the burst while a call waits for it"
        );
        assert!(self.starved.is_empty() || self.limit > 0, "a credit will come back");
    }
}
