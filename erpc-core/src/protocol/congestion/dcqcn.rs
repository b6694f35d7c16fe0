//! DCQCN (Zhu et al., SIGCOMM'15, section 3), the sender's side.
//!
//! Switches mark packets behind long queues, replies tell, and the rate is cut at most once per period, by a half of
//! `alpha`, which follows how many of the last periods had marks. Without marks the rate returns: in
//! five steps halfway to where it was each time, then that target moves on by a step, and by larger ones when bytes agree with
//! the clock. Time is asked for nothing: what should have happened in the meantime happens with the next packet that is sent, or mark.
//!
//! In the paper the receiver sends a notification at most every 50 us. Here every reply tells, and the sender does the counting.
//! A period is no shorter than the last round trip: behind a long queue replies come in clumps, one per round trip,
//! and who grew between them would have got over each cut before hearing of the next mark.

use super::{Controller, DcqcnConfig, Path};
use crate::time::Instant;

/// `F`: steps of recovery before the target grows.
const RECOVERY: u32 = 5;
/// `R_HAI` in `R_AI`s.
const HYPER: f64 = 10.0;
/// Most steps that are made up for at once; who was silent for longer has to ask the network again.
const MOST_STEPS: u64 = 64;
/// As good as the line's rate, which halving the distance would never reach.
const AT_LINE: f64 = 0.999;

/// One session's rate.
#[derive(Clone, Debug)]
pub(crate) struct Dcqcn {
    line: u64,
    min: f64,
    step: f64,
    g: f64,
    /// In nanoseconds, as it was set, and the last round trip that was heeded.
    least_period: u64,
    rtt: u64,
    counter: u64,
    /// `R_C` in bytes per second, as others see it.
    rate: u64,
    /// `R_T`: where the rate was before the last cut, and later on goes.
    target: f64,
    alpha: f64,
    /// The last cut.
    cut: Option<Instant>,
    /// Since when the next step of time is counted, the last mark or step, and how many there were since the cut.
    ticked: Instant,
    ticks: u32,
    /// The same for bytes.
    bytes: u64,
    rounds: u32,
}

impl Dcqcn {
    /// At line.
    pub(super) fn new(config: &DcqcnConfig, path: &Path) -> Self {
        let line = path.line_rate.max(1);
        Self {
            line,
            min: config.min(line) as f64,
            step: config.increase(line),
            g: config.g(line),
            least_period: config.period_nanos(line),
            rtt: 0,
            counter: config.counter(),
            rate: line,
            target: line as f64,
            alpha: 1.0,
            cut: None,
            ticked: Instant::ZERO,
            ticks: 0,
            bytes: 0,
            rounds: 0,
        }
    }

    #[inline]
    fn period(&self) -> u64 {
        self.least_period.max(self.rtt)
    }

    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        self.rate == self.line
    }

    fn set(&mut self, rate: f64) {
        let line = self.line as f64;
        self.rate = if rate >= AT_LINE * line { self.line } else { rate.max(self.min) as u64 };
    }

    /// One step up: recovery, additive increase or hyper increase.
    fn grow(&mut self) {
        let (first, last) = (self.ticks.min(self.rounds), self.ticks.max(self.rounds));
        if first > RECOVERY {
            self.target += HYPER * self.step * f64::from(first - RECOVERY);
        } else if last >= RECOVERY {
            self.target += self.step;
        }
        self.target = self.target.min(self.line as f64);
        self.set((self.rate as f64 + self.target) / 2.0);
    }

    /// The steps that time has brought.
    fn catch_up(&mut self, now: Instant) {
        let period = self.period();
        let periods = now.nanos_since(self.ticked) / period;
        self.ticked = self.ticked.plus_nanos(periods * period);
        for _ in 0..periods.min(MOST_STEPS) {
            if self.is_at_line() {
                break;
            }
            self.ticks += 1;
            self.grow();
        }
    }

    fn slow_down(&mut self, now: Instant) {
        let quiet =
            self.cut.map_or(0, |cut| now.nanos_since(cut) / self.period()).saturating_sub(1);
        self.alpha *= (1.0 - self.g).powf(quiet as f64);
        self.target = self.rate as f64;
        self.set(self.target * (1.0 - self.alpha / 2.0));
        self.alpha += self.g * (1.0 - self.alpha);
        self.cut = Some(now);
        (self.ticks, self.bytes, self.rounds) = (0, 0, 0);
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
        if self.bytes >= self.counter {
            self.bytes = 0;
            self.rounds += 1;
            self.grow();
        }
    }

    #[inline]
    fn on_rtt(&mut self, _: Instant, nanos: u64) {
        self.rtt = nanos;
    }

    #[inline]
    fn on_mark(&mut self, now: Instant) {
        self.catch_up(now);
        self.ticked = now;
        if self.cut.is_none_or(|cut| now.nanos_since(cut) >= self.period()) {
            self.slow_down(now);
        }
    }

    /// Marks come before queues overflow. What is lost without them is lost at random.
    #[inline]
    fn on_loss(&mut self, _: Instant) {}

    #[inline]
    fn rate(&self) -> u64 {
        self.rate
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// 5 GB/s: the paper's 40 Gb/s, with steps of 5 MB/s, that is 40 Mb/s.
    const LINE: u64 = 5_000_000_000;
    const STEP: u64 = 5_000_000;
    const PERIOD: u64 = 55_000;
    const PACKET: u32 = 1_500;

    fn at_line() -> Dcqcn {
        let path = Path { line_rate: LINE, noise: Duration::ZERO, datagram: 1_500 };
        Dcqcn::new(&DcqcnConfig::new(), &path)
    }

    fn after(periods: u64) -> Instant {
        Instant::from_nanos(1_000_000_000 + periods * PERIOD)
    }

    fn marked() -> Dcqcn {
        let mut dcqcn = at_line();
        dcqcn.on_mark(after(0));
        dcqcn
    }

    /// Sends a packet at the end of each of these periods, which is when a session hears of the time.
    fn send(dcqcn: &mut Dcqcn, periods: impl IntoIterator<Item = u64>) {
        periods.into_iter().for_each(|period| dcqcn.on_sent(after(period), PACKET));
    }

    #[test]
    fn a_mark_cuts_by_half_of_alpha_and_the_next_ones_count_a_period_later() {
        let mut dcqcn = marked();
        assert_eq!(dcqcn.rate(), LINE / 2, "alpha is 1");
        (0..100).for_each(|_| dcqcn.on_mark(after(0).plus_nanos(PERIOD - 1)));
        assert_eq!(dcqcn.rate(), LINE / 2);
        dcqcn.on_mark(after(1));
        assert_eq!(dcqcn.rate(), LINE / 4, "the rate has not grown meanwhile");
    }

    /// As behind a long queue, where the replies to what was sent at once come at once.
    #[test]
    fn marks_in_clumps_a_long_round_trip_apart_cut_each_time_for_good() {
        let mut dcqcn = marked();
        dcqcn.on_rtt(after(0), 20 * PERIOD);
        for clump in 1..=3 {
            (0..32).for_each(|nanos| dcqcn.on_mark(after(20 * clump).plus_nanos(nanos)));
            send(&mut dcqcn, [20 * clump + 19]);
        }
        assert!(dcqcn.rate() < LINE / 4, "{}", dcqcn.rate());
    }

    #[test]
    fn alpha_follows_how_many_of_the_last_periods_had_marks() {
        let mut dcqcn = marked();
        assert!((dcqcn.alpha - 1.0).abs() < 1e-9);
        dcqcn.on_mark(after(257));
        let (g, quiet) = (1.0 / 256.0, (255.0f64 / 256.0).powi(256));
        assert!((dcqcn.alpha - ((1.0 - g) * quiet + g)).abs() < 1e-9, "{}", dcqcn.alpha);
    }

    #[test]
    fn recovery_halves_the_distance_four_times_then_the_target_grows_by_r_ai() {
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
    fn when_bytes_and_time_agree_the_target_grows_by_r_hai() {
        let mut dcqcn = Dcqcn { target: LINE as f64 / 4.0, rate: LINE / 4, ..marked() };
        (0..5).for_each(|_| dcqcn.on_sent(after(0), 10_000_000));
        assert_eq!(dcqcn.target as u64, LINE / 4 + STEP, "the fifth round of bytes alone");
        dcqcn.on_sent(after(0), 10_000_000);
        send(&mut dcqcn, [5]);
        assert_eq!(dcqcn.target as u64, LINE / 4 + 7 * STEP);
        send(&mut dcqcn, [6]);
        assert_eq!(dcqcn.target as u64, LINE / 4 + 17 * STEP);
    }

    #[test]
    fn time_that_has_passed_in_silence_is_made_up_for_in_64_steps() {
        let mut dcqcn = Dcqcn { target: 0.0, ..marked() };
        send(&mut dcqcn, [1_000_000]);
        assert_eq!(dcqcn.ticks, 64);
        send(&mut dcqcn, [1_000_001]);
        assert_eq!(dcqcn.ticks, 65);
    }

    #[test]
    fn without_marks_the_rate_is_back_at_line_and_with_nothing_else_it_stays_at_the_minimum() {
        let mut dcqcn = marked();
        send(&mut dcqcn, 1..20);
        assert!(dcqcn.is_at_line());
        (20..60).for_each(|period| dcqcn.on_mark(after(period)));
        assert!(dcqcn.rate() < LINE / 1_000 && dcqcn.rate() >= LINE / 10_000);
    }

    #[test]
    fn a_loss_or_a_long_round_trip_is_no_mark() {
        let mut dcqcn = at_line();
        dcqcn.on_loss(after(0));
        dcqcn.on_rtt(after(0), 50_000_000);
        assert_eq!(dcqcn.rate(), LINE);
    }
}
