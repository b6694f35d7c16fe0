//! Limits how many events of one kind the log gets.

use std::sync::{Mutex, PoisonError};

use crate::time::Instant;

/// Events of one kind per second and process that are emitted. Further ones are counted.
const PER_SECOND: u32 = 10;

/// Length of a period, in ns. It begins with the first event after the end of the last one.
const PERIOD: u64 = 1_000_000_000;

/// The limit of one kind of event. All threads share it. It is used only when an event happens, and
/// not if the subscriber does not want the event.
pub(crate) struct Limit(Mutex<Period>);

struct Period {
    /// `None` before the first event.
    began: Option<Instant>,
    emitted: u32,
    /// Events since the last emitted one.
    suppressed: u64,
}

impl Limit {
    pub(crate) const fn new() -> Self {
        Self(Mutex::new(Period { began: None, emitted: 0, suppressed: 0 }))
    }

    /// Decides on an event at `now`. `Some` to emit it, with the number of events that were
    /// suppressed since the last emitted one.
    ///
    /// Endpoints with virtual clocks may share a limit, so `now` may run backwards. That begins a
    /// period, too.
    pub(crate) fn admit(&self, now: Instant) -> Option<u64> {
        let mut period = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_in = |began| now >= began && now.nanos_since(began) < PERIOD;
        if !period.began.is_some_and(is_in) {
            (period.began, period.emitted) = (Some(now), 0);
        }
        if period.emitted >= PER_SECOND {
            period.suppressed += 1;
            return None;
        }
        period.emitted += 1;
        Some(std::mem::take(&mut period.suppressed))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: Instant = Instant::from_nanos(5_000_000_000);

    /// Number of `events` at `now` that are emitted, and what the first of them says about
    /// suppressed ones.
    fn admit(limit: &Limit, now: Instant, events: u32) -> (usize, Option<u64>) {
        let emitted: Vec<u64> = (0..events).filter_map(|_| limit.admit(now)).collect();
        assert!(emitted.iter().skip(1).all(|&suppressed| suppressed == 0), "{emitted:?}");
        (emitted.len(), emitted.first().copied())
    }

    #[test]
    fn ten_events_per_second_are_emitted_and_the_next_one_says_how_many_were_not() {
        let limit = Limit::new();
        assert_eq!(admit(&limit, START, 4), (4, Some(0)));
        assert_eq!(admit(&limit, START.plus_nanos(PERIOD - 1), 31), (6, Some(0)));
        assert_eq!(admit(&limit, START.plus_nanos(PERIOD), 11), (10, Some(25)));
        assert_eq!(admit(&limit, START.plus_nanos(5 * PERIOD), 1), (1, Some(1)));
    }

    #[test]
    fn a_clock_that_runs_backwards_begins_a_period() {
        let limit = Limit::new();
        assert_eq!(admit(&limit, START, 12), (10, Some(0)));
        assert_eq!(admit(&limit, START.minus_nanos(1), 1), (1, Some(2)));
    }

    #[test]
    fn the_first_event_is_emitted_at_any_time() {
        for now in [Instant::ZERO, Instant::from_nanos(1), Instant::NEVER] {
            assert_eq!(Limit::new().admit(now), Some(0), "{now:?}");
        }
    }
}
