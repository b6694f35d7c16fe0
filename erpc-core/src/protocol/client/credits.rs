//! A session's credits, and the calls that wait for one.

use crate::mutants::mutant;
use crate::protocol::index::{SlotIndex, SlotSet};

/// Maximum number of short calls that go before a long call whose turn it is.
const MOST_OVERTAKING: u8 = 8;

/// The number of packets that a session may have in flight (thesis section 6.3.3.1), and which call
/// gets the next credit.
///
/// A call owns the credits of its packets `acked..sent` and of the response packets asked for
/// ([`Call::outstanding`](super::call::Call::outstanding)). A
/// [`Quarantine`](super::slot::Quarantine) owns the credits of the call that it replaces.
#[derive(Debug)]
pub(super) struct Credits {
    /// Packets in flight.
    taken: u16,
    /// Cap of `taken` for new packets. `taken` may exceed it after the limit was lowered.
    limit: u16,
    /// A packet has found no credit since the last call of [`Self::take_ran_out`].
    ran_out: bool,
    /// Slots whose call waits for a credit.
    starved: SlotSet,
    /// Slots whose call was short when it last began to wait.
    short: SlotSet,
    /// The slot at which the search for the next starved call begins.
    next: SlotIndex,
    /// Number of short calls that have gone before the call at `next`.
    overtaken: u8,
}

impl Credits {
    pub(super) fn new(limit: u16) -> Self {
        Self {
            taken: 0,
            limit,
            ran_out: false,
            starved: SlotSet::EMPTY,
            short: SlotSet::EMPTY,
            next: SlotIndex::FIRST,
            overtaken: 0,
        }
    }

    #[inline(always)]
    pub(super) fn available(&self) -> u16 {
        self.limit.saturating_sub(self.taken)
    }

    /// Packets in flight.
    #[inline(always)]
    pub(super) fn taken(&self) -> u16 {
        self.taken
    }

    /// Whether one more packet leaves a quarter of the credits.
    pub(super) fn affords_guess(&self) -> bool {
        self.taken < self.limit / 4 * 3
    }

    /// Sets the number of packets that may be in flight from now on, at least 1.
    pub(super) fn set_limit(&mut self, packets: u16) {
        self.limit = packets.max(1);
    }

    /// A packet found no credit.
    #[cold]
    pub(super) fn run_out(&mut self) {
        self.ran_out = !mutant!(RunOutForgotten);
    }

    /// Whether a packet found no credit since the last query. Resets the flag.
    pub(super) fn take_ran_out(&mut self) -> bool {
        std::mem::take(&mut self.ran_out)
    }

    /// A packet is sent.
    #[inline(always)]
    pub(super) fn take(&mut self) {
        debug_assert!(self.available() > 0 || mutant!(CreditsIgnored), "a credit is available");
        self.taken = self.taken.wrapping_add(1);
    }

    /// Packets were answered or given up.
    #[inline(always)]
    pub(super) fn release(&mut self, packets: u16) {
        self.taken = self.taken.wrapping_sub(packets);
    }

    /// Whether a call waits for a credit.
    #[inline(always)]
    pub(super) fn is_short(&self) -> bool {
        !self.starved.is_empty()
    }

    /// The call in a slot waits for a credit. A short call (`is_short`) needs only few packets.
    pub(super) fn wait(&mut self, slot: SlotIndex, is_short: bool) {
        if self.starved.is_empty() {
            self.next = slot;
        }
        self.starved.insert(slot);
        if is_short {
            self.short.insert(slot);
        } else {
            self.short.remove(slot);
        }
    }

    /// The call in a slot does not wait for a credit any more.
    #[inline(always)]
    pub(super) fn leave(&mut self, slot: SlotIndex) {
        self.starved.remove(slot);
    }

    /// Takes a call off the list of starved calls: the one that gets the next credits. `None` if
    /// there is no credit or no call waits. The calls are served round robin, and each gets the
    /// credits for a whole burst. Short calls need only few packets. So up to [`MOST_OVERTAKING`]
    /// of them go before the call whose turn it is, and need not wait for the bursts of all other
    /// calls.
    pub(super) fn next(&mut self) -> Option<SlotIndex> {
        if self.starved.is_empty() || self.available() == 0 {
            return None;
        }
        let head = self.starved.first_from(self.next);
        let short = self.starved.intersection(self.short);
        let overtakes = self.overtaken < MOST_OVERTAKING && !short.is_empty();
        let next = if overtakes { short.first_from(head) } else { head };
        self.starved.remove(next);
        if next == head {
            self.next = head.next();
            self.overtaken = 0;
        } else {
            self.overtaken += u8::from(!mutant!(OvertakenUncounted));
        }
        Some(next)
    }

    /// Whether the call in a slot waits for a credit.
    pub(super) fn is_waiting(&self, slot: SlotIndex) -> bool {
        self.starved.contains(slot)
    }

    /// Checks the credits against `outstanding` packets. `fed_later`: waiting calls are resumed at
    /// the end of the burst.
    pub(super) fn check_invariants(&self, outstanding: u32, fed_later: bool) {
        assert_eq!(u32::from(self.taken), outstanding, "credits taken equal packets in flight");
        assert!(
            self.starved.is_empty() || self.available() == 0 || fed_later,
            "no credit stays unused beyond the end of the burst while a call waits for it"
        );
        assert!(self.starved.is_empty() || self.limit > 0, "a credit will come back");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::config::SlotCount;

    #[test]
    fn a_long_call_is_overtaken_by_eight_short_ones_at_most() {
        let mut credits = Credits::new(4);
        let (long, short) = (SlotIndex::FIRST, SlotIndex::FIRST.next());
        credits.wait(long, false);
        let mut overtaken = 0;
        // A short call begins whenever the one before has got its credits.
        let served = loop {
            credits.wait(short, true);
            let next = credits.next().expect("credits are available");
            if next == long || overtaken > 100 {
                break next;
            }
            overtaken += 1;
        };
        assert_eq!((served, overtaken), (long, MOST_OVERTAKING));
    }

    #[test]
    fn a_short_call_overtakes_the_long_calls_of_63_other_slots() {
        let all: Vec<_> = SlotCount::new(64).expect("a power of two").all().iter().collect();
        for short in 1..all.len() {
            let mut credits = Credits::new(4);
            for (at, slot) in all.iter().enumerate() {
                credits.wait(*slot, at == short);
            }
            let order: Vec<_> = std::iter::from_fn(|| credits.next()).collect();
            assert_eq!(order[..2], [all[short], all[0]]);
            assert_eq!(order.len(), all.len(), "each call gets credits");
        }
    }
}
