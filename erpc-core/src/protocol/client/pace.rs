//! When a session may send its next packet.
//!
//! Carousel (Saeed et al., SIGCOMM'17, section 4.1) derives each packet's departure time from its
//! flow's rate, and keeps the packet in a wheel until then. Here the session has the departure
//! time, and the session waits in the wheel, while its packets stay in their calls.

use crate::time::Instant;

/// A session that sends later than its rate allows makes up for at most this much lateness, in ns.
/// It is late because the event loop works in turns, and wakes up late when it has slept. With a
/// larger cap, packets that are to be spread out would leave as a burst.
const CATCH_UP: u64 = 65_536;

/// Fractional bits of `cost` and `rest`.
const SHIFT: u32 = 20;

/// One session's departures.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pace {
    /// Nanoseconds per byte, in fixed point; 0 if there is no limit.
    cost: u64,
    /// The rate in bytes per second from which `cost` is computed.
    rate: u64,
    /// When the next packet may leave.
    next: Instant,
    /// Fraction of a nanosecond to add to `next`, in fixed point.
    rest: u64,
    /// Whether a call waits for `next`. Only then the session makes up for lateness: a session with
    /// nothing to send accumulates no allowance.
    awaited: bool,
}

impl Pace {
    /// No limit.
    pub(super) const FREE: Self =
        Self { cost: 0, rate: 0, next: Instant::ZERO, rest: 0, awaited: false };

    /// Sets the rate in bytes per second, 0 for no limit. Earlier packets stay charged at the old
    /// rate.
    pub(super) fn set_rate(&mut self, bytes_per_second: u64) {
        if bytes_per_second != self.rate {
            self.rate = bytes_per_second;
            self.cost = match bytes_per_second {
                0 => 0,
                rate => ((1_000_000_000 << SHIFT) / rate).max(1),
            };
        }
    }

    /// Whether there is a limit.
    #[inline]
    pub(super) fn is_limited(&self) -> bool {
        self.cost != 0
    }

    /// Whether the rate allows no packet at `now`.
    #[inline]
    pub(super) fn holds(&self, now: Instant) -> bool {
        self.cost != 0 && now < self.next
    }

    /// When the next packet may leave. Notes that a call waits for it.
    pub(super) fn await_next(&mut self) -> Instant {
        self.awaited = true;
        self.next
    }

    /// No call waits any more.
    pub(super) fn forget_wait(&mut self) {
        self.awaited = false;
    }

    /// Charges `bytes` that are sent at `now`.
    #[inline]
    pub(super) fn spend(&mut self, now: Instant, bytes: usize) {
        if self.cost != 0 {
            let late = if self.awaited { CATCH_UP } else { 0 };
            let from = self.next.max(Instant::from_nanos(now.as_nanos().saturating_sub(late)));
            let cost = (bytes as u64).saturating_mul(self.cost).saturating_add(self.rest);
            self.next = from.plus_nanos(cost >> SHIFT);
            self.rest = cost & ((1 << SHIFT) - 1);
            self.awaited &= self.next <= now;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Sends packets of `bytes` for `nanos` ns, with one chance to send every `between` ns. Returns
    /// the number of packets sent.
    fn sent(rate: u64, bytes: usize, nanos: u64, between: u64) -> u64 {
        let start = 1_000_000_000;
        let mut pace = Pace { next: Instant::from_nanos(start), ..Pace::FREE };
        pace.set_rate(rate);
        let (mut now, mut count) = (start, 0);
        while now < start + nanos {
            while !pace.holds(Instant::from_nanos(now)) {
                pace.spend(Instant::from_nanos(now), bytes);
                count += 1;
            }
            pace.await_next();
            now += between;
        }
        count
    }

    proptest! {
        #[test]
        fn a_session_keeps_its_rate_for_any_rate_and_any_turn_length(
            rate in 100_000u64..50_000_000_000,
            bytes in 24usize..65_536,
            turn in 10u64..60_000,
        ) {
            // The time is long enough for a hundred packets, and short enough to send them one by
            // one in the test.
            let nanos = (bytes as u64 * 100_000_000_000 / rate).clamp(100_000, 2_000_000_000);
            let most = rate as u128 * u128::from(nanos) / 1_000_000_000 / bytes as u128;
            let count = u128::from(sent(rate, bytes, nanos, turn.max(nanos / 100_000)));
            let burst = rate as u128 * u128::from(CATCH_UP) / 1_000_000_000 / bytes as u128;
            prop_assert!(count <= most + burst + 2, "{count} of {most}, {burst} at once");
            prop_assert!(count + 2 >= most * 99 / 100 - most.min(burst), "{count} of {most}");
        }
    }

    #[test]
    fn a_late_session_sends_at_most_66_microseconds_of_packets_at_once() {
        let mut pace = Pace::FREE;
        pace.set_rate(1_000_000_000);
        let later = Instant::from_nanos(5_000_000_000);
        pace.await_next();
        let mut burst = 0;
        while !pace.holds(later) {
            pace.spend(later, 1_000);
            burst += 1;
        }
        assert_eq!(burst, 66);
    }

    #[test]
    fn an_idle_session_accumulates_no_allowance() {
        let mut pace = Pace::FREE;
        pace.set_rate(1_000_000_000);
        let later = Instant::from_nanos(5_000_000_000);
        pace.spend(later, 1_000);
        assert!(pace.holds(later.plus_nanos(999)) && !pace.holds(later.plus_nanos(1_000)));
    }

    #[test]
    fn an_unlimited_session_is_not_charged() {
        let mut pace = Pace::FREE;
        pace.spend(Instant::from_nanos(1), usize::MAX);
        assert!(!pace.holds(Instant::ZERO) && !pace.is_limited());
        pace.set_rate(u64::MAX);
        assert!(pace.is_limited(), "the smallest cost is above 0");
    }
}
