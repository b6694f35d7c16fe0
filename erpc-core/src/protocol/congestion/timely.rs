//! Timely (Mittal et al., SIGCOMM'15) with the patch of Zhu et al. (CoNEXT'16, section 4.3).
//!
//! A queue lengthens round trips. Below `T_low` the rate grows by `delta` per round trip. Above it Timely looks at
//! the gradient, and slows down while round trips get longer. That alone has
//! many fixed points, most of them unfair; the patch adds how far round trips are above `T_low`, which leaves
//! one: all sessions see the same queue, so all get the same rate, `N delta / (gain C)` being the part of the
//! round trip that exceeds `T_low` when `N` sessions share a line of `C`.
//!
//! Three things differ from the papers, whose feedback comes once per segment of 16 KB or more:
//!
//! * A round trip changes the rate in proportion to the time since the last one, measured in round trips, and by at most one.
//!   So a hundred samples within one round trip count as one, and packets that waited out a stall together count once.
//! * The excess is `1 - T_low / RTT`, Timely's own expression for `T_high`, rather than the patch's
//!   `RTT / T_low - 1`: the same for small queues, and never above 1.
//! * The gradient is the change during about the last round trip, not between packets, whose differences are noise. Below `T_low`
//!   the rate does not grow while round trips do.
//!
//! No round trip is too short to count: a session that does not learn that the queue is gone stays slow.

use super::config::TimelyConfig;
use super::controller::{Controller, LOSSY_TRIPS, Path, Sample};
use crate::time::Instant;

/// `T_high` in `T_low`s; in SIGCOMM'15 it is 500 us and 50 us.
const HIGH: u64 = 5;
/// The `beta` of Zhu et al. (CoNEXT'16, section 4.3): the cut per round trip above `T_low`, times the excess. The paper has
/// 0.008 for feedback per segment. More reacts faster and oscillates.
const GAIN: f64 = 0.2;
/// `beta` (SIGCOMM'15, section 4.3): the same above `T_high`.
const BETA: f64 = 0.8;
/// `delta` (SIGCOMM'15, section 4.3) as a part of the line's rate: 10 Mb/s at 10 Gb/s, as there; the thesis has 5 MB/s for
/// 25 Gb/s. More converges faster and keeps longer queues, in proportion to the sessions that share the line.
const DELTAS_PER_LINE: u64 = 1_000;
/// Round trips below `T_low` in a row after which growth accelerates (hyperactive increase: there, five segments).
const HYPER_AFTER: f64 = 40.0;
/// The highest acceleration, in steps per round trip (there, five).
const HYPER: f64 = 30.0;
/// A sample below `T_low` counts for the round trips since the last sample, at most this many.
const MAX_UNSAMPLED: f64 = 8.0;
/// Samples above `T_high` in a row, at the minimum rate, after which the path counts as long: this session keeps no queue
/// for so many round trips.
const LONG_PATH_SAMPLES: u8 = 16;

/// The part of the line below which losses without a queue change nothing: a lower rate would not lose less.
const LEAST_LOSSY: u64 = 64;

/// One session's rate.
#[derive(Clone, Debug)]
pub(crate) struct Timely {
    line: u64,
    min: u64,
    delta: f64,
    /// Bytes per second.
    rate: u64,
    /// `T_low` for the line.
    line_low: u64,
    /// `T_low` in use: more than the line's on a long path.
    low: u64,
    /// The round trip of a long path; else 0.
    base_rtt: u64,
    /// Samples in a row that say that the path is long, and the shortest of them.
    long_samples: u8,
    shortest_long: u64,
    last_sample: Instant,
    /// When a loss last counted, and round trips in a row that had one.
    last_loss: Instant,
    lossy_trips: u32,
    /// The last round trip, 0 before the first.
    last_rtt: u64,
    /// The part by which round trips have become longer during the last one.
    gradient: f64,
    /// For how many round trips they have been below `T_low`.
    calm_trips: f64,
}

impl Timely {
    /// At line.
    pub(super) fn new(config: &TimelyConfig, path: &Path, line: u64) -> Self {
        let line = line.max(1);
        let low = config.low_nanos(path, line);
        Self {
            line,
            min: config.min(line),
            delta: (line / DELTAS_PER_LINE).max(1) as f64,
            rate: line,
            line_low: low,
            low,
            base_rtt: 0,
            long_samples: 0,
            shortest_long: u64::MAX,
            last_sample: Instant::ZERO,
            last_loss: Instant::ZERO,
            lossy_trips: 0,
            last_rtt: 0,
            gradient: 0.0,
            calm_trips: 0.0,
        }
    }

    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        self.rate == self.line
    }

    /// At line and below `T_low` a round trip changes nothing, unless it is the first one there, or shows that the path
    /// is shorter than it was.
    #[inline]
    pub(super) fn is_calm(&self, nanos: u64) -> bool {
        self.is_at_line() && nanos < self.low && nanos >= self.base_rtt && self.last_rtt < self.low
    }

    /// A round trip took `measured` nanoseconds, `nanos` of them on the network: what the hosts took is known as the most that it
    /// may have been, so only `measured` tells how long the path is.
    ///
    /// Keeps `T_low` above the path's own round trip. The shortest sample is no measure of that: a session that joins a
    /// standing queue never sees it empty, and would keep it longer than the others. So a path counts as long when round
    /// trips stay above `T_high` while this session sends at the minimum rate.
    fn track_path(&mut self, nanos: u64, measured: u64) {
        if measured < self.base_rtt {
            self.set_base_rtt(measured);
        } else if self.rate > self.min || nanos < HIGH * self.low {
            (self.long_samples, self.shortest_long) = (0, u64::MAX);
        } else {
            self.shortest_long = self.shortest_long.min(measured);
            self.long_samples += 1;
            if self.long_samples == LONG_PATH_SAMPLES {
                self.set_base_rtt(self.shortest_long);
            }
        }
    }

    fn set_base_rtt(&mut self, base: u64) {
        (self.long_samples, self.shortest_long) = (0, u64::MAX);
        self.low = self.line_low.max(base.saturating_add(self.line_low / 2));
        self.base_rtt = if self.low > self.line_low { base } else { 0 };
    }

    /// What a round trip adds to the rate, in bytes per second, when it is one since the last.
    fn change(&self, rtt: f64) -> f64 {
        let low = self.low as f64;
        // `w(g)` of CoNEXT'16, equation 29: 0 while the queue shrinks by a quarter, 1 while it grows by one.
        let weight = (2.0 * self.gradient + 0.5).clamp(0.0, 1.0);
        if rtt < low {
            let steps = (self.calm_trips - HYPER_AFTER).clamp(1.0, HYPER);
            return self.delta * steps * (2.0 - 2.0 * weight).min(1.0);
        }
        let rate = self.rate as f64;
        let cut = GAIN * weight * (1.0 - low / rtt);
        let high = low * HIGH as f64;
        if rtt < high {
            return self.delta * (1.0 - weight) - rate * cut;
        }
        -rate * cut.max(BETA * (1.0 - high / rtt))
    }

    fn set(&mut self, rate: f64) {
        self.rate = (rate as u64).clamp(self.min, self.line);
    }
}

impl Controller for Timely {
    #[inline]
    fn on_sent(&mut self, _: Instant, _: u32) {}

    fn on_rtt(&mut self, sample: &Sample) {
        let now = sample.now;
        let nanos = sample.nanos.saturating_sub(sample.waited).max(1);
        self.track_path(nanos, sample.nanos.max(1));
        let rtt = nanos as f64;
        let trips = now.nanos_since(self.last_sample) as f64 / rtt;
        let share = trips.min(1.0);
        self.last_sample = now;
        let before = if self.last_rtt == 0 { rtt } else { self.last_rtt as f64 };
        self.last_rtt = nanos;
        // By the longer one: after a round trip of which nothing is left, the next one is no gradient of thousands.
        self.gradient += (rtt - before) / rtt.max(before) - share * self.gradient;
        // At a low rate samples are rare, and one without a queue counts for the round trips before it, too.
        let grown = trips.min(MAX_UNSAMPLED);
        self.calm_trips = if nanos < self.low { self.calm_trips + grown } else { 0.0 };
        let share = if nanos < self.low { grown } else { share };
        self.set(self.rate as f64 + share * self.change(rtt));
    }

    #[inline]
    fn on_mark(&mut self, _: Instant) {}

    /// A loss behind a queue is congestion, and costs half of `beta` once per round trip. A loss without a queue may be chance.
    /// Losses in several round trips one after the other are a buffer that overflows before round trips reach `T_low`.
    fn on_loss(&mut self, now: Instant, _: u32) {
        let since = now.nanos_since(self.last_loss);
        if since < self.last_rtt {
            return;
        }
        self.last_loss = now;
        self.lossy_trips = if since < 2 * self.last_rtt { self.lossy_trips + 1 } else { 1 };
        let is_lossy = self.lossy_trips >= LOSSY_TRIPS && self.rate > self.line / LEAST_LOSSY;
        if self.last_rtt >= self.low || is_lossy {
            self.lossy_trips = 0;
            self.calm_trips = 0.0;
            self.set(self.rate as f64 * (1.0 - BETA / 2.0));
        }
    }

    #[inline]
    fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 1 GB/s, so that `T_low` is 80 us, `T_high` 400 us, `delta` 1 MB/s and the minimum 0.1 MB/s.
    const LINE: u64 = 1_000_000_000;
    const LOW: u64 = 80_000;
    const DELTA: u64 = 1_000_000;
    const MIN: u64 = 100_000;

    fn at_line() -> Timely {
        let noise = Duration::from_micros(5);
        let path = Path { line_rate: Some(LINE), noise, datagram: 1_500, round_trip: None };
        Timely::new(&TimelyConfig::new(), &path, LINE)
    }

    fn sample(now: Instant, nanos: u64) -> Sample {
        Sample { now, nanos, waited: 0, in_flight: 1, is_full: true }
    }

    /// At `rate`, after a round trip of `last_rtt`.
    fn at(rate: u64, last_rtt: u64) -> Timely {
        Timely { rate, last_rtt, ..at_line() }
    }

    /// Round trips one after the other; the rate after each.
    fn feed(timely: &mut Timely, rtts: impl IntoIterator<Item = u64>) -> Vec<u64> {
        let rate = |rtt| {
            timely.on_rtt(&sample(timely.last_sample.plus_nanos(rtt), rtt));
            timely.rate()
        };
        rtts.into_iter().map(rate).collect()
    }

    fn once(rate: u64, last: u64, rtt: u64) -> u64 {
        feed(&mut at(rate, last), [rtt])[0]
    }

    #[test]
    fn below_t_low_the_rate_grows_by_delta_per_round_trip() {
        let rates = feed(&mut at(LINE / 2, 40_000), [40_000; 3]);
        assert_eq!(rates, [1, 2, 3].map(|trips| LINE / 2 + trips * DELTA));
        assert_eq!(
            feed(&mut at(LINE / 2, 500), [500; 2])[1],
            LINE / 2 + 2 * DELTA,
            "none is too short"
        );
    }

    #[test]
    fn a_hundred_round_trips_within_one_count_as_one_and_those_that_come_together_too() {
        let mut timely = at(LINE / 2, 40_000);
        (1..=100).for_each(|part| timely.on_rtt(&sample(Instant::from_nanos(400 * part), 40_000)));
        assert!(timely.rate().abs_diff(LINE / 2 + DELTA) < 200, "{}", timely.rate());
        let mut timely = at_line();
        (0..32)
            .for_each(|_| timely.on_rtt(&sample(Instant::from_nanos(1_000_000_000), 50_000_000)));
        assert!(timely.rate() > LINE / 5, "{}", timely.rate());
    }

    #[test]
    fn below_t_low_the_rate_does_not_grow_while_round_trips_grow_by_a_quarter() {
        assert_eq!(once(LINE / 2, 40_000, 60_000), LINE / 2);
        assert_eq!(once(LINE / 2, 60_000, 40_000), LINE / 2 + DELTA);
    }

    #[test]
    fn forty_round_trips_below_t_low_make_growth_hyperactive_up_to_30_delta() {
        let rates = feed(&mut at(MIN, 40_000), [40_000; 75]);
        let steps: Vec<u64> = rates.windows(2).map(|pair| (pair[1] - pair[0]) / DELTA).collect();
        assert_eq!((steps[0], steps[39], steps[40], steps[48], steps[72]), (1, 1, 2, 10, 30));
        let mut timely = at(MIN, 40_000);
        feed(&mut timely, [40_000; 60]);
        let rates = feed(&mut timely, [LOW, 60_000, 60_000]);
        assert!(rates[2] - rates[1] <= DELTA, "one above it starts the count again");
    }

    /// Zhu et al., section 4.3: `delta (1 - w) = R gain w (1 - T_low / RTT)` with `w(0) = 1/2`.
    #[test]
    fn the_point_of_rest_is_where_delta_equals_the_rate_times_gain_times_the_excess() {
        let rest = DELTA * 10;
        assert_eq!(once(rest, 2 * LOW, 2 * LOW), rest);
        assert!(once(2 * rest, 2 * LOW, 2 * LOW) < 2 * rest, "a session with more gets less");
        assert!(once(rest / 2, 2 * LOW, 2 * LOW) > rest / 2, "a session with less gets more");
    }

    #[test]
    fn between_the_thresholds_a_gradient_of_a_quarter_decides_alone() {
        assert_eq!(once(LINE / 2, 60_000, 160_000), LINE / 2 - LINE / 20, "0.2 * (1 - 80 / 160)");
        assert_eq!(once(LINE / 2, 260_000, 160_000), LINE / 2 + DELTA);
    }

    #[test]
    fn beyond_t_high_the_rate_falls_by_beta_times_the_excess() {
        assert_eq!(once(LINE, 900_000, 800_000), LINE * 6 / 10, "0.8 * (1 - 400 / 800)");
        assert!(once(LINE, 900_000, 390_000) >= LINE, "it is shrinking");
    }

    #[test]
    fn the_rate_stays_between_the_minimum_and_the_line() {
        assert_eq!(feed(&mut at_line(), [50_000_000; 15])[14], MIN);
        assert_eq!(feed(&mut at(LINE - 1, 40_000), [40_000; 2])[1], LINE);
    }

    #[test]
    fn a_loss_behind_a_queue_costs_half_of_beta_once_per_round_trip() {
        let mut timely = at(LINE, 2 * LOW);
        let now = Instant::from_nanos(1_000_000);
        timely.on_loss(now, 1);
        assert_eq!(timely.rate(), LINE * 6 / 10);
        timely.on_loss(now.plus_nanos(2 * LOW - 1), 1);
        assert_eq!(timely.rate(), LINE * 6 / 10);
        timely.on_loss(now.plus_nanos(2 * LOW), 1);
        assert_eq!(timely.rate(), LINE * 36 / 100);
    }

    #[test]
    fn a_loss_without_a_queue_costs_nothing() {
        let mut timely = at(LINE, LOW - 1);
        timely.on_loss(Instant::from_nanos(1_000_000), 1);
        assert_eq!(timely.rate(), LINE);
    }

    #[test]
    fn what_is_calm_changes_nothing() {
        let mut timely = at_line();
        assert!(timely.is_calm(LOW - 1) && timely.is_calm(0) && !timely.is_calm(LOW));
        feed(&mut timely, [LOW - 1, 30_000, 1, 60_000]);
        assert_eq!((timely.rate(), timely.low), (LINE, LOW));
        assert!(!at(LINE - 1, 0).is_calm(1));
        assert!(
            !at(LINE, 2 * LOW).is_calm(1),
            "or a loss much later would be taken for congestion"
        );
    }

    #[test]
    fn a_path_that_is_longer_than_t_high_is_learned_at_the_minimum_rate_and_unlearned_at_once() {
        let mut timely = at_line();
        let rates = feed(&mut timely, [1_000_000; 40]);
        assert_eq!(rates[20], MIN);
        assert_eq!(timely.low, 1_000_000 + LOW / 2);
        feed(&mut timely, [1_000_000; 80]);
        assert!(timely.is_at_line());
        assert!(timely.is_calm(1_000_000) && !timely.is_calm(990_000));
        feed(&mut timely, [990_000]);
        assert_eq!(timely.low, 990_000 + LOW / 2);
        feed(&mut timely, [20_000]);
        assert_eq!((timely.low, timely.base_rtt), (LOW, 0));
    }

    /// Finding A6: an absence is known as the most that a packet may have waited, so what it leaves of a round trip may be
    /// shorter than the path.
    #[test]
    fn a_long_path_is_not_unlearned_by_an_absence() {
        let mut timely = at_line();
        feed(&mut timely, [2_000_000; 200]);
        assert!(timely.is_at_line());
        let now = timely.last_sample.plus_nanos(2_000_000);
        let waited = 1_000_000;
        timely.on_rtt(&Sample { now, nanos: 2_000_000, waited, in_flight: 1, is_full: true });
        feed(&mut timely, [2_000_000; 100]);
        assert!(timely.is_at_line(), "{timely:?}");
    }

    /// Finding A7.
    #[test]
    fn a_round_trip_of_which_an_absence_leaves_nothing_makes_no_gradient_of_thousands() {
        let mut timely = at(LINE / 2, 60_000);
        let now = timely.last_sample.plus_nanos(300_000);
        let waited = 299_999;
        timely.on_rtt(&Sample { now, nanos: 300_000, waited, in_flight: 1, is_full: true });
        assert!(timely.gradient >= -1.0, "{}", timely.gradient);
        let before = timely.rate();
        feed(&mut timely, [100_000, 150_000, 200_000, 250_000, 300_000]);
        assert!(timely.rate() < before, "the queue grows, and the rate falls");
    }

    /// Finding A8.
    #[test]
    fn losses_in_three_round_trips_in_a_row_are_congestion_though_these_are_short() {
        let mut timely = at(LINE, 40_000);
        let lose = |timely: &mut Timely, trip: u64| {
            timely.on_loss(Instant::from_nanos(1_000_000 + trip * 40_001), 1);
        };
        (0..10).for_each(|count| lose(&mut timely, 3 * count));
        assert!(timely.is_at_line(), "one alone is chance");
        (100..103).for_each(|trip| lose(&mut timely, trip));
        assert_eq!(timely.rate(), LINE / 10 * 6);
    }

    #[test]
    fn a_queue_that_drains_is_not_taken_for_a_long_path() {
        let mut timely = at(MIN, 1_000_000);
        feed(&mut timely, [1_000_000; 15]);
        feed(&mut timely, [399_999]);
        feed(&mut timely, [1_000_000; 3]);
        assert_eq!((timely.low, timely.base_rtt), (LOW, 0));
    }
}
