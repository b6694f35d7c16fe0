//! Timely (Mittal et al., SIGCOMM'15) with the patch of Zhu et al. (CoNEXT'16, section 4.3).
//!
//! A queue lengthens round trips. Below `T_low` the rate grows by `delta` per round trip. Above
//! `T_low` Timely uses the gradient and slows down while round trips get longer. The gradient alone
//! has many fixed points, most of them unfair. The patch adds the excess of round trips over
//! `T_low`, which leaves one fixed point. All sessions see the same queue, so all get the same
//! rate. When `N` sessions share a line of `C`, `N delta / (gain C)` is the part of the round trip
//! that exceeds `T_low`.
//!
//! Three things differ from the papers, which get feedback once per segment of 16 KB or more:
//!
//! * A round trip changes the rate in proportion to the time since the last sample, measured in
//!   round trips, and at most as one round trip. A hundred samples within one round trip count as
//!   one, and packets that waited out a stall together count once.
//! * The excess is `1 - T_low / RTT`, Timely's own expression for `T_high`, instead of the patch's
//!   `RTT / T_low - 1`. Both expressions agree for small queues, and `1 - T_low / RTT` stays below
//!   1.
//! * The gradient is the change during about the last round trip, not the change between packets,
//!   which is mostly noise. Below `T_low` the rate does not grow while round trips do.
//!
//! No round trip is too short to count: a session that does not learn that the queue is gone stays
//! slow.

use super::config::TimelyConfig;
use super::controller::{Controller, LOSSY_TRIPS, Path, Sample};
use crate::time::Instant;

/// `T_high` in units of `T_low`. In SIGCOMM'15, `T_high` is 500 us and `T_low` 50 us, a factor of
/// ten.
const HIGH: u64 = 5;
/// The `beta` of Zhu et al. (CoNEXT'16, section 4.3): the cut per round trip above `T_low` is this
/// factor times the excess. The paper has 0.008 for feedback per segment. A larger value reacts
/// faster and oscillates.
const GAIN: f64 = 0.2;
/// `beta` (SIGCOMM'15, section 4.3): the cut per round trip above `T_high` is this factor times the
/// excess over `T_high`.
const BETA: f64 = 0.8;
/// `delta` (SIGCOMM'15, section 4.3) as a fraction of the line's rate: 1/1,000, that is 10 Mb/s at
/// 10 Gb/s, as in the paper; the thesis has 5 MB/s for 25 Gb/s. A larger value converges faster and
/// keeps longer queues, in proportion to the number of sessions that share the line.
const DELTAS_PER_LINE: u64 = 1_000;
/// Consecutive round trips below `T_low` after which growth accelerates (hyperactive increase; the
/// paper has five segments).
const HYPER_AFTER: f64 = 40.0;
/// The largest acceleration, in units of `delta` per round trip (the paper has five).
const HYPER: f64 = 30.0;
/// A sample below `T_low` counts for the round trips since the last sample, but at most for this
/// many.
const MAX_UNSAMPLED: f64 = 8.0;
/// Consecutive samples above `T_high`, at the minimum rate, after which the path counts as long. At
/// the minimum rate, this session does not cause a queue itself.
const LONG_PATH_SAMPLES: u8 = 16;

/// Losses without a queue change nothing at rates of up to 1/64 of the line: at a lower rate, no
/// fewer packets would be lost.
const LEAST_LOSSY: u64 = 64;

/// One session's rate and the state that changes it. Rates are in bytes per second, times in ns.
#[derive(Clone, Debug)]
pub(crate) struct Timely {
    line: u64,
    min: u64,
    delta: f64,
    /// The current rate, between `min` and `line`.
    rate: u64,
    /// `T_low` from the settings, or from the line's rate if it is not set.
    line_low: u64,
    /// `T_low` in use: larger than `line_low` on a long path.
    low: u64,
    /// The round trip of a long path; 0 if the path is not long.
    base_rtt: u64,
    /// The number of consecutive samples that indicate a long path, and the shortest of them.
    long_samples: u8,
    shortest_long: u64,
    last_sample: Instant,
    /// Time of the last loss that was considered, and consecutive round trips with losses.
    last_loss: Instant,
    lossy_trips: u32,
    /// The last round trip without the hosts' part; 0 before the first sample.
    last_rtt: u64,
    /// The relative change of round trips during about the last round trip.
    gradient: f64,
    /// The number of round trips since the last sample at or above `T_low`.
    calm_trips: f64,
}

impl Timely {
    /// A controller whose rate is the line's.
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

    /// Whether a round trip of `nanos` changes nothing: the rate is the line's, this sample and the
    /// last are below `T_low`, and the path is not shorter than known.
    #[inline]
    pub(super) fn is_calm(&self, nanos: u64) -> bool {
        self.is_at_line() && nanos < self.low && nanos >= self.base_rtt && self.last_rtt < self.low
    }

    /// Keeps `T_low` above the path's own round trip, after a round trip of `measured` ns, of which
    /// `nanos` were the network's. The hosts' part is known only as an upper bound, so `nanos` may
    /// be too short. Only `measured` shows the length of the path.
    ///
    /// The shortest sample alone does not show a long path: a session that joins a standing queue
    /// never sees the queue empty, and would keep it longer than other sessions do. Therefore a
    /// path counts as long only if round trips stay above `T_high` while this session sends at the
    /// minimum rate.
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

    /// The change of the rate, in bytes per second, by a round trip of `rtt` ns if one round trip
    /// passed since the last sample.
    fn change(&self, rtt: f64) -> f64 {
        let low = self.low as f64;
        // `w(g)` of CoNEXT'16, equation 29: 0 if the round trip shrinks by a quarter or more, 1 if
        // it grows by a quarter or more.
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
        // Divide by the longer of the two round trips. Otherwise a round trip of which the hosts'
        // part leaves almost nothing would give the next one a gradient of thousands.
        self.gradient += (rtt - before) / rtt.max(before) - share * self.gradient;
        // At a low rate samples are rare. A sample without a queue also counts for the round trips
        // before it.
        let grown = trips.min(MAX_UNSAMPLED);
        self.calm_trips = if nanos < self.low { self.calm_trips + grown } else { 0.0 };
        let share = if nanos < self.low { grown } else { share };
        self.set(self.rate as f64 + share * self.change(rtt));
    }

    #[inline]
    fn on_mark(&mut self, _: Instant) {}

    /// A loss behind a queue is congestion. It cuts the rate by half of `beta`, at most once per
    /// round trip. A loss without a queue may be random. Losses in several consecutive round trips
    /// show a buffer that overflows before round trips reach `T_low`.
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

    /// 1 GB/s: `T_low` is 80 us, `T_high` 400 us, `delta` 1 MB/s and the minimum rate 0.1 MB/s.
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

    /// A controller at `rate`, after a round trip of `last_rtt` ns.
    fn at(rate: u64, last_rtt: u64) -> Timely {
        Timely { rate, last_rtt, ..at_line() }
    }

    /// Feeds consecutive round trips. Returns the rate after each.
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
            "no round trip is too short to count"
        );
    }

    #[test]
    fn samples_within_one_round_trip_and_samples_that_arrive_together_count_once() {
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
        assert!(rates[2] - rates[1] <= DELTA, "a round trip above T_low restarts the count");
    }

    /// Zhu et al., section 4.3: `delta (1 - w) = R gain w (1 - T_low / RTT)` with `w(0) = 1/2`.
    #[test]
    fn the_fixed_point_is_where_delta_equals_the_rate_times_gain_times_the_excess() {
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
        assert!(once(LINE, 900_000, 390_000) >= LINE, "the queue is shrinking");
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
    fn a_calm_sample_changes_nothing() {
        let mut timely = at_line();
        assert!(timely.is_calm(LOW - 1) && timely.is_calm(0) && !timely.is_calm(LOW));
        feed(&mut timely, [LOW - 1, 30_000, 1, 60_000]);
        assert_eq!((timely.rate(), timely.low), (LINE, LOW));
        assert!(!at(LINE - 1, 0).is_calm(1));
        assert!(!at(LINE, 2 * LOW).is_calm(1), "a loss much later must not count as congestion");
    }

    #[test]
    fn a_path_longer_than_t_high_is_learned_at_the_minimum_rate_and_unlearned_immediately() {
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

    /// The hosts' part of a round trip is an upper bound. The rest of the round trip may be shorter
    /// than the path.
    #[test]
    fn a_host_delay_does_not_unlearn_a_long_path() {
        let mut timely = at_line();
        feed(&mut timely, [2_000_000; 200]);
        assert!(timely.is_at_line());
        let now = timely.last_sample.plus_nanos(2_000_000);
        let waited = 1_000_000;
        timely.on_rtt(&Sample { now, nanos: 2_000_000, waited, in_flight: 1, is_full: true });
        feed(&mut timely, [2_000_000; 100]);
        assert!(timely.is_at_line(), "{timely:?}");
    }

    #[test]
    fn a_round_trip_that_is_all_host_delay_makes_no_gradient_of_thousands() {
        let mut timely = at(LINE / 2, 60_000);
        let now = timely.last_sample.plus_nanos(300_000);
        let waited = 299_999;
        timely.on_rtt(&Sample { now, nanos: 300_000, waited, in_flight: 1, is_full: true });
        assert!(timely.gradient >= -1.0, "{}", timely.gradient);
        let before = timely.rate();
        feed(&mut timely, [100_000, 150_000, 200_000, 250_000, 300_000]);
        assert!(timely.rate() < before, "the queue grows, and the rate falls");
    }

    #[test]
    fn losses_in_three_consecutive_short_round_trips_are_congestion() {
        let mut timely = at(LINE, 40_000);
        let lose = |timely: &mut Timely, trip: u64| {
            timely.on_loss(Instant::from_nanos(1_000_000 + trip * 40_001), 1);
        };
        (0..10).for_each(|count| lose(&mut timely, 3 * count));
        assert!(timely.is_at_line(), "single losses are random");
        (100..103).for_each(|trip| lose(&mut timely, trip));
        assert_eq!(timely.rate(), LINE / 10 * 6);
    }

    #[test]
    fn a_draining_queue_does_not_count_as_a_long_path() {
        let mut timely = at(MIN, 1_000_000);
        feed(&mut timely, [1_000_000; 15]);
        feed(&mut timely, [399_999]);
        feed(&mut timely, [1_000_000; 3]);
        assert_eq!((timely.low, timely.base_rtt), (LOW, 0));
    }
}
