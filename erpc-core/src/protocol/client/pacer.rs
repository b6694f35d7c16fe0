//! How fast a session sends: what its controller learns, and which calls wait until it is time.
//!
//! Requests leave at the controller's rate, and so do requests for response, each charged for the packets that it
//! brings: the server answers as fast as it is asked, so both directions obey the client
//! (thesis section 6.4.2).

use super::pace::Pace;
use crate::mutants::mutant;
use crate::protocol::congestion::{Congestion, Controller, Sample};
use crate::protocol::index::{SlotIndex, SlotSet};
use crate::protocol::measurement::Bypasses;
use crate::time::Instant;

/// A session's congestion controller, its departures, and the slots that wait for the next one.
#[derive(Debug)]
pub(super) struct Pacer {
    congestion: Congestion,
    pace: Pace,
    /// No faster than this, in bytes per second, whatever the controller says.
    ceiling: u64,
    /// Slots that wait for the session's next departure.
    waiting: SlotSet,
    /// The slot that goes first then.
    next: SlotIndex,
}

impl Pacer {
    pub(super) fn new(congestion: Congestion, bypasses: Bypasses) -> Self {
        let mut pacer = Self { congestion, ..Self::unlimited() };
        pacer.set_pace(bypasses);
        pacer
    }

    /// No limit: nothing but the receiver's queue is between the two ends.
    pub(super) fn unlimited() -> Self {
        Self {
            congestion: Congestion::None,
            pace: Pace::FREE,
            ceiling: u64::MAX,
            waiting: SlotSet::EMPTY,
            next: SlotIndex::FIRST,
        }
    }

    /// The rate in bytes per second, if it limits the session.
    pub(super) fn rate(&self) -> Option<u64> {
        self.pace.is_limited().then(|| self.congestion.rate().min(self.ceiling))
    }

    #[inline(always)]
    pub(super) fn is_limited(&self) -> bool {
        self.pace.is_limited()
    }

    /// Whether nothing may leave now.
    #[inline]
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.pace.holds(now)
    }

    /// The session has nothing on its way and begins to send. Returns whether the window may have changed.
    #[inline]
    pub(super) fn on_begin(&mut self, now: Instant, bypasses: Bypasses) -> bool {
        let is_limited = !self.congestion.is_at_line();
        if is_limited {
            self.congestion.on_begin(now);
            self.set_pace(bypasses);
        }
        is_limited
    }

    /// A packet was answered. Returns whether the window may have changed.
    #[inline(always)]
    pub(super) fn on_rtt(&mut self, sample: Sample, bypasses: Bypasses) -> bool {
        let is_calm = bypasses.update && self.congestion.is_calm(&sample);
        if !is_calm {
            self.update_rtt(&sample, bypasses);
        }
        !is_calm
    }

    #[inline(never)]
    fn update_rtt(&mut self, sample: &Sample, bypasses: Bypasses) {
        self.congestion.on_rtt(sample);
        self.set_pace(bypasses);
    }

    /// Packets that may be on their way, `u16::MAX` for no limit.
    pub(super) fn window(&self) -> u16 {
        self.congestion.window()
    }

    /// A packet came that was marked on its way, or the server says so of one of ours.
    #[cold]
    pub(super) fn on_mark(&mut self, now: Instant, bypasses: Bypasses) {
        self.congestion.on_mark(now);
        self.set_pace(bypasses);
    }

    /// The session's full packets have so many bytes from now on.
    pub(super) fn set_datagram(&mut self, bytes: u32, bypasses: Bypasses) {
        self.congestion.set_datagram(bytes);
        self.set_pace(bypasses);
    }

    /// A packet was lost.
    #[cold]
    pub(super) fn on_loss(&mut self, now: Instant, in_flight: u32, bypasses: Bypasses) {
        self.congestion.on_loss(now, in_flight);
        self.set_pace(bypasses);
    }

    /// The session sends no more than so many bytes per second from now on.
    pub(super) fn set_ceiling(&mut self, bytes_per_second: u64, bypasses: Bypasses) {
        self.ceiling = match mutant!(CeilingOnlyFalls) {
            true => self.ceiling.min(bytes_per_second),
            false => bytes_per_second,
        };
        self.set_pace(bypasses);
    }

    /// Takes over the controller's rate.
    fn set_pace(&mut self, bypasses: Bypasses) {
        let rate = self.congestion.rate();
        let is_free = self.congestion.is_at_line() && self.ceiling == u64::MAX;
        self.pace.set_rate(if bypasses.wheel && is_free { 0 } else { rate.min(self.ceiling) });
    }

    /// A packet of `bytes` leaves, or is asked for.
    #[inline]
    pub(super) fn spend(&mut self, now: Instant, bytes: usize, bypasses: Bypasses) {
        if self.pace.is_limited() {
            self.pace.spend(now, bytes);
            self.congestion.on_sent(now, bytes as u32);
            self.set_pace(bypasses);
        }
    }

    /// Whether a call waits for the next departure.
    #[inline(always)]
    pub(super) fn is_awaited(&self) -> bool {
        !self.waiting.is_empty()
    }

    pub(super) fn is_waiting(&self, slot: SlotIndex) -> bool {
        self.waiting.contains(slot)
    }

    /// The call in a slot waits for the next departure.
    pub(super) fn wait(&mut self, slot: SlotIndex) {
        self.waiting.insert(slot);
    }

    /// The call in a slot does not wait any more, if it has. The lateness that the last one to leave would have made up
    /// for serves no later call.
    #[inline(always)]
    pub(super) fn leave(&mut self, slot: SlotIndex) {
        if self.waiting.contains(slot) {
            self.waiting.remove(slot);
            self.forget_wait();
        }
    }

    /// The slot whose turn it is to send a packet, if it is time for one.
    pub(super) fn next(&mut self, now: Instant) -> Option<SlotIndex> {
        if self.waiting.is_empty() || self.pace.holds(now) {
            return None;
        }
        let slot = self.waiting.first_from(self.next);
        self.waiting.remove(slot);
        self.next = slot.next();
        Some(slot)
    }

    /// When the next packet may leave, which a call waits for.
    pub(super) fn await_next(&mut self) -> Instant {
        self.pace.await_next()
    }

    /// If no call waits any more, none is late.
    pub(super) fn forget_wait(&mut self) {
        if self.waiting.is_empty() {
            self.pace.forget_wait();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_that_starts_after_the_last_one_left_makes_up_for_no_lateness() {
        let mut pacer = Pacer::unlimited();
        // A nanosecond per byte.
        pacer.pace.set_rate(1_000_000_000);
        pacer.wait(SlotIndex::FIRST);
        pacer.await_next();
        pacer.leave(SlotIndex::FIRST);
        let later = Instant::from_nanos(5_000_000_000);
        // Spent through the pace: the controller, which has no limit, would set the rate again.
        pacer.pace.spend(later, 1_000);
        assert!(pacer.holds(later), "the next packet waits for the rate");
    }
}
