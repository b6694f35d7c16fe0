//! How fast a session sends: its congestion controller, and the calls that wait for the session's
//! next departure (the time at which it may send again).
//!
//! Requests and requests for response leave at the controller's rate. A request for response is
//! charged for the packets that it causes. The server answers as fast as it is asked, so the client
//! controls both directions (thesis section 6.4.2).

use super::pace::Pace;
use crate::mutants::mutant;
use crate::protocol::congestion::{Congestion, Controller, Sample};
use crate::protocol::index::{SlotIndex, SlotSet};
use crate::protocol::measurement::Bypasses;
use crate::time::Instant;

/// A session's congestion controller, its departures, and the slots that wait for the next one.
#[derive(Debug)]
#[repr(C)] // The pace first: plain calls look only at it.
pub(super) struct Pacer {
    pace: Pace,
    congestion: Congestion,
    /// Cap of the rate, in bytes per second, whatever the controller says.
    ceiling: u64,
    /// Slots whose call waits for the session's next departure.
    waiting: SlotSet,
    /// The slot at which the search for the next waiting call begins.
    next: SlotIndex,
}

impl Pacer {
    pub(super) fn new(congestion: Congestion, bypasses: Bypasses) -> Self {
        let mut pacer = Self { congestion, ..Self::unlimited() };
        pacer.set_pace(bypasses);
        pacer
    }

    /// No limit. For a server on this host: there is no network to protect, and credits and window
    /// protect the receiver's queue.
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

    /// The part that plain calls look at.
    #[inline]
    pub(super) fn pace(&self) -> &Pace {
        &self.pace
    }

    /// Whether the rate allows no packet at `now`.
    #[inline]
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.pace.holds(now)
    }

    /// The session, with nothing in flight, begins to send. Returns whether the window may have
    /// changed.
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

    /// Packets that may be in flight, `u16::MAX` for no limit.
    pub(super) fn window(&self) -> u16 {
        self.congestion.window()
    }

    /// A received packet carries a congestion mark, or says that a packet of this session carried
    /// one.
    #[cold]
    pub(super) fn on_mark(&mut self, now: Instant, bypasses: Bypasses) {
        self.congestion.on_mark(now);
        self.set_pace(bypasses);
    }

    /// Sets the size of the session's full packets, in bytes.
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

    /// Sets the cap of the session's rate, in bytes per second.
    pub(super) fn set_ceiling(&mut self, bytes_per_second: u64, bypasses: Bypasses) {
        self.ceiling = match mutant!(CeilingOnlyFalls) {
            true => self.ceiling.min(bytes_per_second),
            false => bytes_per_second,
        };
        self.set_pace(bypasses);
    }

    /// Applies the controller's rate and the cap.
    fn set_pace(&mut self, bypasses: Bypasses) {
        let rate = self.congestion.rate();
        let is_free = self.congestion.is_at_line() && self.ceiling == u64::MAX;
        self.pace.set_rate(if bypasses.wheel && is_free { 0 } else { rate.min(self.ceiling) });
    }

    /// Charges a packet of `bytes` that is sent, or asked for.
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

    /// The call in a slot does not wait any more, if it did. When the last waiting call leaves, the
    /// session's lateness is dropped, so that no later call makes up for it.
    #[inline(always)]
    pub(super) fn leave(&mut self, slot: SlotIndex) {
        if self.waiting.contains(slot) {
            self.waiting.remove(slot);
            self.forget_wait();
        }
    }

    /// Takes the next waiting slot off the list, if the rate allows a packet now.
    pub(super) fn next(&mut self, now: Instant) -> Option<SlotIndex> {
        if self.waiting.is_empty() || self.pace.holds(now) {
            return None;
        }
        let slot = self.waiting.first_from(self.next);
        self.waiting.remove(slot);
        self.next = slot.next();
        Some(slot)
    }

    /// When the next packet may leave. Notes that a call waits for it.
    pub(super) fn await_next(&mut self) -> Instant {
        self.pace.await_next()
    }

    /// Drops the lateness if no call waits any more.
    pub(super) fn forget_wait(&mut self) {
        if self.waiting.is_empty() && !mutant!(WaitNotForgotten) {
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
        // 1 ns per byte.
        pacer.pace.set_rate(1_000_000_000);
        pacer.wait(SlotIndex::FIRST);
        pacer.await_next();
        pacer.leave(SlotIndex::FIRST);
        let later = Instant::from_nanos(5_000_000_000);
        // Charged directly to the pace: the controller has no limit and would reset the rate.
        pacer.pace.spend(later, 1_000);
        assert!(pacer.holds(later), "the next packet waits for the rate");
    }
}
