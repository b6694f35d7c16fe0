//! DCQCN (Zhu et al., SIGCOMM'15, section 3), the sender's side.
//!
//! Switches mark packets behind long queues, and replies echo the marks. A mark cuts the rate by
//! half of `alpha`, at most once per period. `alpha` follows the fraction of recent periods that
//! had marks. Without marks the rate returns: each step halves the distance to the target, which is
//! the rate before the cut. From the fifth step on, the target grows as well, and in larger steps
//! when the byte counter and the clock both have passed five steps. No timers: missed steps apply
//! on the next send or mark.
//!
//! In the paper the receiver sends a notification at most every 50 us. Here every reply echoes the
//! mark, and the sender limits the cuts. A period is at least as long as the last round trip.
//! Behind a long queue replies arrive in bursts, one burst per round trip. With shorter periods the
//! rate would recover from each cut before the next marks arrive.

use super::config::DcqcnConfig;
use super::controller::{Controller, Sample};
use crate::time::Instant;

/// `F`: from this step after a cut on, the target grows, by `R_AI` per step (additive increase).
const RECOVERY: u32 = 5;
/// `R_HAI` in units of `R_AI`: the larger growth of the target (hyper increase).
const HYPER: f64 = 10.0;
/// The most steps that apply together after a silence. All further missed steps are dropped: the
/// network may have changed, so the rate must grow again while the session sends.
const MAX_MISSED_STEPS: u64 = 64;
/// From this fraction of the line's rate on, the rate counts as the line's. Halving the distance
/// would never reach the line's rate.
const AT_LINE: f64 = 0.999;
/// The byte counter: bytes without a cut after which the rate takes a step. The paper's value.
const STEP_BYTES: u64 = 10_000_000;
/// `R_AI`, by which additive increase raises the target in each step, is the line's rate divided by
/// this number: 40 Mb/s at 40 Gb/s, as in the paper. The larger `R_AI` is, and the more sessions
/// share the line, the farther the queue rises above the marking threshold.
const STEPS_PER_LINE: u64 = 1_000;
/// The paper's period for 40 Gb/s, in ns.
const PERIOD: u64 = 55_000;
/// The queue length above which switches mark, in bytes. A period is at least the time that the
/// line needs to drain it.
const MARKED_QUEUE: u64 = 100_000;

/// The shortest period on this line, in ns.
fn least_period(line: u64) -> u64 {
    (MARKED_QUEUE * 1_000_000_000 / line.max(1)).max(PERIOD)
}

/// `g`, the weight of one period in `alpha`: 1/256 for periods of 55 us, as in the paper, and
/// proportionally more for longer periods, up to 1/64. `alpha` thus forgets the first, deepest cuts
/// within 14 ms, or within 64 periods if that is longer.
fn weight(line: u64) -> f64 {
    let periods = least_period(line) as f64 / PERIOD as f64;
    (periods / 256.0).clamp(1.0 / 256.0, 1.0 / 64.0)
}

/// One session's rate and the state that changes it. Rates are in bytes per second.
#[derive(Clone, Debug)]
pub(crate) struct Dcqcn {
    line: u64,
    min: f64,
    step: f64,
    g: f64,
    /// In ns.
    least_period: u64,
    last_rtt: u64,
    /// `R_C` in bytes per second.
    rate: u64,
    /// `R_T`: the rate before the last cut, which the rate approaches.
    target: f64,
    alpha: f64,
    last_cut: Option<Instant>,
    /// Time of the last mark or timed step. The next timed step is one period later.
    last_step: Instant,
    /// Timed steps since the cut.
    time_steps: u32,
    /// Bytes sent since the cut or the last byte step.
    bytes: u64,
    /// Byte steps since the cut.
    byte_steps: u32,
}

impl Dcqcn {
    /// A controller whose rate is the line's.
    pub(super) fn new(config: &DcqcnConfig, line: u64) -> Self {
        let line = line.max(1);
        Self {
            line,
            min: config.min(line) as f64,
            step: (line / STEPS_PER_LINE).max(1) as f64,
            g: weight(line),
            least_period: least_period(line),
            last_rtt: 0,
            rate: line,
            target: line as f64,
            alpha: 1.0,
            last_cut: None,
            last_step: Instant::ZERO,
            time_steps: 0,
            bytes: 0,
            byte_steps: 0,
        }
    }

    #[inline]
    fn period(&self) -> u64 {
        self.least_period.max(self.last_rtt)
    }

    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        self.rate == self.line
    }

    fn set(&mut self, rate: f64) {
        let line = self.line as f64;
        self.rate = if rate >= AT_LINE * line { self.line } else { rate.max(self.min) as u64 };
    }

    /// Raises the rate by one step: recovery, additive increase or hyper increase.
    fn grow(&mut self) {
        let (first, last) =
            (self.time_steps.min(self.byte_steps), self.time_steps.max(self.byte_steps));
        if first > RECOVERY {
            self.target += HYPER * self.step * f64::from(first - RECOVERY);
        } else if last >= RECOVERY {
            self.target += self.step;
        }
        self.target = self.target.min(self.line as f64);
        self.set((self.rate as f64 + self.target) / 2.0);
    }

    /// Applies the timed steps that are due.
    fn catch_up(&mut self, now: Instant) {
        let period = self.period();
        let periods = now.nanos_since(self.last_step) / period;
        self.last_step = self.last_step.plus_nanos(periods * period);
        for _ in 0..periods.min(MAX_MISSED_STEPS) {
            if self.is_at_line() {
                break;
            }
            self.time_steps += 1;
            self.grow();
        }
    }

    fn cut(&mut self, now: Instant) {
        let quiet =
            self.last_cut.map_or(0, |cut| now.nanos_since(cut) / self.period()).saturating_sub(1);
        self.alpha *= (1.0 - self.g).powf(quiet as f64);
        self.target = self.rate as f64;
        self.set(self.target * (1.0 - self.alpha / 2.0));
        self.alpha += self.g * (1.0 - self.alpha);
        self.last_cut = Some(now);
        (self.time_steps, self.bytes, self.byte_steps) = (0, 0, 0);
    }
}

impl Controller for Dcqcn {
    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        if self.is_at_line() {
            return;
        }
        self.catch_up(now);
        self.bytes += u64::from(bytes);
        if self.bytes >= STEP_BYTES {
            self.bytes = 0;
            self.byte_steps += 1;
            self.grow();
        }
    }

    #[inline]
    fn on_rtt(&mut self, sample: &Sample) {
        self.last_rtt = sample.nanos.saturating_sub(sample.waited);
    }

    #[inline]
    fn on_mark(&mut self, now: Instant) {
        self.catch_up(now);
        self.last_step = now;
        if self.last_cut.is_none_or(|cut| now.nanos_since(cut) >= self.period()) {
            self.cut(now);
        }
    }

    /// Ignores the loss. Switches mark before queues overflow, so a loss without marks is random.
    #[inline]
    fn on_loss(&mut self, _: Instant, _: u32) {}

    #[inline]
    fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// 5 GB/s: the paper's 40 Gb/s, with steps of 5 MB/s (40 Mb/s).
    const LINE: u64 = 5_000_000_000;
    const STEP: u64 = 5_000_000;
    const PERIOD: u64 = 55_000;
    const PACKET: u32 = 1_500;

    fn at_line() -> Dcqcn {
        Dcqcn::new(&DcqcnConfig::new(), LINE)
    }

    fn after(periods: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + periods * PERIOD)
    }

    fn sample(nanos: u64) -> Sample {
        Sample { now: after(0), nanos, waited: 0, in_flight: 1, is_full: true }
    }

    fn marked() -> Dcqcn {
        let mut dcqcn = at_line();
        dcqcn.on_mark(after(0));
        dcqcn
    }

    /// Sends a packet at the end of each of `periods`.
    fn send(dcqcn: &mut Dcqcn, periods: impl IntoIterator<Item = u64>) {
        periods.into_iter().for_each(|period| dcqcn.on_sent(after(period), PACKET));
    }

    #[test]
    fn a_mark_cuts_by_half_of_alpha_and_further_marks_count_after_a_period() {
        let mut dcqcn = marked();
        assert_eq!(dcqcn.rate(), LINE / 2, "alpha is 1");
        (0..100).for_each(|_| dcqcn.on_mark(after(0).plus_nanos(PERIOD - 1)));
        assert_eq!(dcqcn.rate(), LINE / 2);
        dcqcn.on_mark(after(1));
        assert_eq!(dcqcn.rate(), LINE / 4, "the rate has not grown since the first cut");
    }

    /// The packets of the session wait in a long queue, so a round trip takes 20 periods. The
    /// replies to a burst of packets arrive as a burst, and all of them are marked.
    #[test]
    fn bursts_of_marks_a_long_round_trip_apart_cut_the_rate_permanently() {
        let mut dcqcn = marked();
        dcqcn.on_rtt(&sample(20 * PERIOD));
        for burst in 1..=3 {
            (0..32).for_each(|nanos| dcqcn.on_mark(after(20 * burst).plus_nanos(nanos)));
            send(&mut dcqcn, [20 * burst + 19]);
        }
        assert!(dcqcn.rate() < LINE / 4, "{}", dcqcn.rate());
    }

    #[test]
    fn alpha_follows_the_fraction_of_recent_periods_with_marks() {
        let mut dcqcn = marked();
        assert!((dcqcn.alpha - 1.0).abs() < 1e-9);
        dcqcn.on_mark(after(257));
        let (g, quiet) = (1.0 / 256.0, (255.0f64 / 256.0).powi(256));
        assert!((dcqcn.alpha - ((1.0 - g) * quiet + g)).abs() < 1e-9, "{}", dcqcn.alpha);
    }

    #[test]
    fn recovery_halves_the_distance_and_then_the_target_grows_by_r_ai() {
        let mut dcqcn = marked();
        let mut distance = LINE / 2;
        for period in 1..=4 {
            send(&mut dcqcn, [period]);
            distance /= 2;
            assert_eq!(dcqcn.rate(), LINE - distance);
        }
        let mut dcqcn = Dcqcn { target: LINE as f64 / 2.0, rate: LINE / 2, ..marked() };
        send(&mut dcqcn, 1..=7);
        assert_eq!(dcqcn.target as u64, LINE / 2 + 3 * STEP);
    }

    #[test]
    fn when_byte_steps_and_timed_steps_exceed_five_the_target_grows_by_r_hai() {
        let mut dcqcn = Dcqcn { target: LINE as f64 / 4.0, rate: LINE / 4, ..marked() };
        (0..5).for_each(|_| dcqcn.on_sent(after(0), 10_000_000));
        assert_eq!(dcqcn.target as u64, LINE / 4 + STEP, "five byte steps alone add R_AI");
        dcqcn.on_sent(after(0), 10_000_000);
        send(&mut dcqcn, [5]);
        assert_eq!(dcqcn.target as u64, LINE / 4 + 7 * STEP);
        send(&mut dcqcn, [6]);
        assert_eq!(dcqcn.target as u64, LINE / 4 + 17 * STEP);
    }

    #[test]
    fn after_a_silence_at_most_64_missed_steps_apply() {
        let mut dcqcn = Dcqcn { target: 0.0, ..marked() };
        send(&mut dcqcn, [1_000_000]);
        assert_eq!(dcqcn.time_steps, 64);
        send(&mut dcqcn, [1_000_001]);
        assert_eq!(dcqcn.time_steps, 65);
    }

    #[test]
    fn without_marks_the_rate_returns_to_line_and_with_marks_only_it_nears_the_minimum() {
        let mut dcqcn = marked();
        send(&mut dcqcn, 1..20);
        assert!(dcqcn.is_at_line());
        (20..60).for_each(|period| dcqcn.on_mark(after(period)));
        assert!(dcqcn.rate() < LINE / 1_000 && dcqcn.rate() >= LINE / 10_000);
    }

    #[test]
    fn the_period_and_g_follow_the_line() {
        assert_eq!([3_125_000_000, 125_000_000].map(least_period), [55_000, 800_000]);
        assert_eq!([3_125_000_000, 125_000_000].map(weight), [1.0 / 256.0, 1.0 / 64.0]);
        assert!((weight(909_090_909) - 1.0 / 128.0).abs() < 1e-6, "in between");
    }

    #[test]
    fn a_loss_or_a_long_round_trip_is_no_mark() {
        let mut dcqcn = at_line();
        dcqcn.on_loss(after(0), 1);
        dcqcn.on_rtt(&sample(50_000_000));
        assert_eq!(dcqcn.rate(), LINE);
    }
}
