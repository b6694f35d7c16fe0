//! What an endpoint's owner chooses.

use std::time::Duration;

use super::Path;

/// No session is slower than this, in bytes per second, so that the gap after any datagram is within the
/// horizon of the wheel.
pub(super) const LEAST_RATE: u64 = 100_000;

/// Who decides how fast sessions send.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CongestionControl {
    /// Nobody: credits and windows are the only limits.
    None,
    /// Timely, by round-trip times. The default. Needs nothing of the network.
    Timely(TimelyConfig),
    /// DCQCN, by marks. For networks whose switches mark packets; where none does, it does nothing. Refused over transports
    /// that [cannot read them](crate::transport::Transport::enable_ecn).
    Dcqcn(DcqcnConfig),
}

impl Default for CongestionControl {
    fn default() -> Self {
        Self::Timely(TimelyConfig::new())
    }
}

impl CongestionControl {
    /// The first setting that is out of bounds, named with them.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        let rules = match self {
            Self::None => return None,
            Self::Timely(timely) => timely.rules(),
            Self::Dcqcn(dcqcn) => dcqcn.rules(),
        };
        rules.into_iter().find(|(holds, _)| !holds).map(|(_, what)| what)
    }
}

type Rules = [(bool, &'static str); 5];

/// A fraction that is one.
fn is_fraction(value: f64) -> bool {
    value > 0.0 && value <= 1.0
}

/// The lowest rate, unless one was set: a ten-thousandth of the line, so that a thousand sessions that have
/// all gone down to it leave nine tenths of the line free.
fn min_rate(set: Option<u64>, line: u64) -> u64 {
    set.unwrap_or(line / 10_000).max(LEAST_RATE).min(line)
}

/// Timely's parameters. Setters chain; defaults follow the line's rate, and one set of them is measured from 200 Mb/s to
/// 100 Gb/s.
///
/// Where Mittal et al. and Zhu et al. give numbers, they are for 10 Gb/s and segments of 16 to 64 KB; ours are for
/// one round trip per packet, and each default says what it was.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimelyConfig {
    queue: u32,
    low: Option<Duration>,
    min_rate: Option<u64>,
    step: Option<u64>,
    gain: f64,
    beta: f64,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl TimelyConfig {
    /// The defaults, which the setters name.
    #[must_use]
    pub const fn new() -> Self {
        Self { queue: 75_000, low: None, min_rate: None, step: None, gain: 0.2, beta: 0.8 }
    }

    /// The queue that is no congestion yet, in bytes, 1,000 to 1 GiB. Default 75,000: 24 us at 25 Gb/s, 0.6 ms at
    /// 1 Gb/s. Smaller keeps queues shorter until rates oscillate and the line runs dry. A switch port that has less
    /// buffer than twice this drops packets before anybody sends slower.
    #[must_use]
    pub const fn queue(mut self, bytes: u32) -> Self {
        self.queue = bytes;
        self
    }

    /// `T_low` (SIGCOMM'15, section 4.3): round trips below it are no congestion; 1 us to 1 s. Default: what the
    /// transport says round trips scatter by, plus the time that [`queue`](Self::queue) takes to drain. It must lie above
    /// the path's own round-trip time: a session whose empty path takes longer gets a small part of the
    /// line (between `T_low` and 5 `T_low`), or needs some 16 packets at the minimum rate to
    /// learn what its path is like (beyond). So set it for paths between data centers.
    #[must_use]
    pub const fn low(mut self, rtt: Duration) -> Self {
        self.low = Some(rtt);
        self
    }

    /// The lowest rate, in bytes per second, at least 100,000. Default: the line's divided by 10,000, and at least 100,000. As
    /// many sessions as have room at this rate can share the line without a queue that grows.
    #[must_use]
    pub const fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.min_rate = Some(bytes_per_second);
        self
    }

    /// `delta` (SIGCOMM'15, section 4.3): what the rate grows by per round trip, in bytes per second. Default: the line's
    /// divided by 1,000 (10 Mb/s at 10 Gb/s, as there; the thesis has 5 MB/s for 25 Gb/s). More converges faster and
    /// keeps longer queues, in proportion to the sessions that share the line.
    #[must_use]
    pub const fn step(mut self, bytes_per_second: u64) -> Self {
        self.step = Some(bytes_per_second);
        self
    }

    /// How much slower per round trip while the round trips exceed `T_low`, times the part of them that is too much; above 0
    /// to 1. It is the `beta` of Zhu et al. (CoNEXT'16, section 4.3), who take 0.008 for their
    /// feedback per segment. Default 0.2. More reacts faster and oscillates.
    #[must_use]
    pub const fn gain(mut self, factor: f64) -> Self {
        self.gain = factor;
        self
    }

    /// `beta` (SIGCOMM'15, section 4.3): the same beyond `T_high`, which is 5 `T_low`. Above 0 to 1. Default 0.8, as there.
    #[must_use]
    pub const fn beta(mut self, factor: f64) -> Self {
        self.beta = factor;
        self
    }

    pub(super) fn low_nanos(&self, path: &Path) -> u64 {
        let queue = u64::from(self.queue.max(2 * path.datagram));
        let low = self.low.unwrap_or_else(|| {
            path.noise + Duration::from_nanos(queue * 1_000_000_000 / path.line_rate.max(1))
        });
        low.as_nanos() as u64
    }

    pub(super) fn min(&self, line: u64) -> u64 {
        min_rate(self.min_rate, line)
    }

    pub(super) fn delta(&self, line: u64) -> f64 {
        self.step.unwrap_or(line / 1_000).max(1) as f64
    }

    pub(super) fn factors(&self) -> (f64, f64) {
        (self.gain, self.beta)
    }

    fn rules(&self) -> Rules {
        let (least, most) = (Duration::from_micros(1), Duration::from_secs(1));
        [
            ((1_000..=1 << 30).contains(&self.queue), "queue must be 1,000 bytes to 1 GiB"),
            (self.low.is_none_or(|low| low >= least && low <= most), "low must be 1 us to 1 s"),
            (
                self.min_rate.is_none_or(|rate| rate >= LEAST_RATE),
                "min_rate must be at least 100,000 bytes per second",
            ),
            (is_fraction(self.gain), "gain must be above 0 and at most 1"),
            (is_fraction(self.beta), "beta must be above 0 and at most 1"),
        ]
    }
}

/// DCQCN's period for 40 Gb/s, in nanoseconds.
const PERIOD: u64 = 55_000;

/// DCQCN's parameters (Zhu et al., SIGCOMM'15, section 5). Setters chain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct DcqcnConfig {
    period: Option<Duration>,
    bytes: u64,
    step: Option<u64>,
    gain: Option<f64>,
    min_rate: Option<u64>,
}

impl Default for DcqcnConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl DcqcnConfig {
    /// The defaults, which the setters name.
    #[must_use]
    pub const fn new() -> Self {
        Self { period: None, bytes: 10_000_000, step: None, gain: None, min_rate: None }
    }

    /// How often the rate may be cut, and how often it grows without marks; 1 us to 1 s. Default 55 us, as
    /// there for 40 Gb/s, and at least the time the line takes for 100 kB, behind which switches mark. Never shorter than
    /// the last round trip, as that would react twice to the same marks. Shorter reacts faster.
    #[must_use]
    pub const fn period(mut self, period: Duration) -> Self {
        self.period = Some(period);
        self
    }

    /// The byte counter: after so many bytes without a mark the rate grows, too; at least 1. Default 10,000,000,
    /// as there.
    #[must_use]
    pub const fn bytes(mut self, bytes: u64) -> Self {
        self.bytes = bytes;
        self
    }

    /// `R_AI`: what the rate grows by after five steps without a mark, in bytes per second; tenfold
    /// when the byte counter has taken five steps as well. Default: the line's divided by 1,000 (40 Mb/s at 40 Gb/s,
    /// as there). The queue beyond the marks grows with it and with the sessions that share the line.
    #[must_use]
    pub const fn step(mut self, bytes_per_second: u64) -> Self {
        self.step = Some(bytes_per_second);
        self
    }

    /// `g`: how much one period with or without marks counts for how deep the next cut is; above 0 to 1. Default 1/256 for
    /// periods of 55 us, as there, and in proportion more for longer ones, up to 1/64: the first cuts, which are the
    /// deepest, are forgotten in 14 ms, or in 64 periods where that is longer.
    #[must_use]
    pub const fn gain(mut self, factor: f64) -> Self {
        self.gain = Some(factor);
        self
    }

    /// As [`TimelyConfig::min_rate`].
    #[must_use]
    pub const fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.min_rate = Some(bytes_per_second);
        self
    }

    pub(super) fn period_nanos(&self, line: u64) -> u64 {
        let marks = 100_000 * 1_000_000_000 / line.max(1);
        self.period.map_or(marks.max(PERIOD), |period| period.as_nanos() as u64)
    }

    pub(super) fn counter(&self) -> u64 {
        self.bytes
    }

    pub(super) fn increase(&self, line: u64) -> f64 {
        self.step.unwrap_or(line / 1_000).max(1) as f64
    }

    pub(super) fn g(&self, line: u64) -> f64 {
        let periods = self.period_nanos(line) as f64 / PERIOD as f64;
        self.gain.unwrap_or((periods / 256.0).clamp(1.0 / 256.0, 1.0 / 64.0))
    }

    pub(super) fn min(&self, line: u64) -> u64 {
        min_rate(self.min_rate, line)
    }

    fn rules(&self) -> Rules {
        let (least, most) = (Duration::from_micros(1), Duration::from_secs(1));
        [
            (
                self.period.is_none_or(|period| period >= least && period <= most),
                "period must be 1 us to 1 s",
            ),
            (self.bytes >= 1, "bytes must be at least 1"),
            (
                self.min_rate.is_none_or(|rate| rate >= LEAST_RATE),
                "min_rate must be at least 100,000 bytes per second",
            ),
            (self.gain.is_none_or(is_fraction), "gain must be above 0 and at most 1"),
            (true, ""),
        ]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_taken_at_its_bounds_and_refused_beyond_them() {
        let timely = TimelyConfig::new;
        let dcqcn = DcqcnConfig::new;
        let (nano, us, second) =
            (Duration::from_nanos(1), Duration::from_micros(1), Duration::from_secs(1));
        let taken = [
            CongestionControl::None,
            CongestionControl::default(),
            CongestionControl::Timely(timely().queue(1_000).low(us).min_rate(100_000).gain(1.0)),
            CongestionControl::Timely(timely().queue(1 << 30).low(second).step(0).beta(1.0)),
            CongestionControl::Dcqcn(dcqcn()),
            CongestionControl::Dcqcn(dcqcn().period(us).bytes(1).gain(1.0).min_rate(100_000)),
            CongestionControl::Dcqcn(dcqcn().period(second).step(0)),
        ];
        for control in taken {
            assert_eq!(control.flaw(), None, "{control:?}");
        }
        let refused = [
            (CongestionControl::Timely(timely().queue(999)), "queue"),
            (CongestionControl::Timely(timely().queue((1 << 30) + 1)), "queue"),
            (CongestionControl::Timely(timely().low(us - nano)), "low"),
            (CongestionControl::Timely(timely().low(second + nano)), "low"),
            (CongestionControl::Timely(timely().min_rate(99_999)), "min_rate"),
            (CongestionControl::Timely(timely().gain(0.0)), "gain"),
            (CongestionControl::Timely(timely().gain(f64::NAN)), "gain"),
            (CongestionControl::Timely(timely().beta(1.1)), "beta"),
            (CongestionControl::Dcqcn(dcqcn().period(us - nano)), "period"),
            (CongestionControl::Dcqcn(dcqcn().period(second + nano)), "period"),
            (CongestionControl::Dcqcn(dcqcn().bytes(0)), "bytes"),
            (CongestionControl::Dcqcn(dcqcn().gain(-0.1)), "gain"),
            (CongestionControl::Dcqcn(dcqcn().min_rate(99_999)), "min_rate"),
        ];
        for (control, setting) in refused {
            let flaw = control.flaw().expect(setting);
            assert!(flaw.starts_with(setting), "{flaw}");
        }
    }

    #[test]
    fn thresholds_follow_the_line() {
        let path = |line_rate| Path { line_rate, noise: Duration::from_micros(5), datagram: 1_472 };
        let low = |line| TimelyConfig::new().low_nanos(&path(line));
        assert_eq!([low(3_125_000_000), low(125_000_000)], [29_000, 605_000]);
        let jumbo = Path { datagram: 65_507, ..path(125_000_000) };
        assert_eq!(TimelyConfig::new().low_nanos(&jumbo), 5_000 + 2 * 65_507 * 8);
        let min = |line| TimelyConfig::new().min(line);
        assert_eq!([min(3_125_000_000), min(125_000_000), min(50_000)], [312_500, 100_000, 50_000]);
        let period = |line| DcqcnConfig::new().period_nanos(line);
        assert_eq!([period(3_125_000_000), period(125_000_000)], [55_000, 800_000]);
        let g = |line| DcqcnConfig::new().g(line);
        assert_eq!([g(3_125_000_000), g(125_000_000)], [1.0 / 256.0, 1.0 / 64.0]);
        assert!((g(909_090_909) - 1.0 / 128.0).abs() < 1e-6, "in between");
    }
}
