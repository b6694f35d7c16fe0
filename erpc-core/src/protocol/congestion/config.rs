//! The choice of a controller and its settings.

use std::time::Duration;

use super::controller::Path;

/// The lowest rate of a session, in bytes per second. At this rate the gap after the largest
/// datagram still fits into the horizon of the pacing wheel.
pub(super) const LEAST_RATE: u64 = 100_000;

/// The algorithm that sets the rate of sessions.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum CongestionControl {
    /// No congestion control. Only credits and windows limit a session.
    None,
    /// Swift, which measures round trips. The default. Works on paths of any length, without
    /// support from the network, and without knowing the link's rate.
    Swift(SwiftConfig),
    /// Timely, which measures round trips; made for racks. Works without support from the network.
    /// Does nothing where the link's rate is unknown.
    Timely(TimelyConfig),
    /// DCQCN, which uses ECN marks of switches. If no switch marks packets, sessions send at the
    /// link's rate. An endpoint refuses DCQCN over transports that [cannot read
    /// marks](crate::transport::Transport::enable_ecn). Does nothing where the link's rate is
    /// unknown.
    Dcqcn(DcqcnConfig),
}

impl Default for CongestionControl {
    fn default() -> Self {
        Self::Swift(SwiftConfig::new())
    }
}

impl CongestionControl {
    /// The error message for the first setting that is out of bounds; `None` if all are valid.
    pub(crate) fn flaw(&self) -> Option<&'static str> {
        match self {
            Self::None => None,
            Self::Timely(timely) => timely.flaw(),
            Self::Swift(swift) => min_rate_flaw(swift.min_rate),
            Self::Dcqcn(dcqcn) => min_rate_flaw(dcqcn.min_rate),
        }
    }
}

fn min_rate_flaw(set: Option<u64>) -> Option<&'static str> {
    let too_low = set.is_some_and(|rate| rate < LEAST_RATE);
    too_low.then_some("min_rate must be at least 100,000 bytes per second")
}

/// The minimum rate: the configured value, or 1/10,000 of the line; at least [`LEAST_RATE`], at
/// most the line's rate. On a line of 1 GB/s or more, a thousand sessions at the default minimum
/// leave nine tenths of the line free.
fn min_rate(set: Option<u64>, line: u64) -> u64 {
    set.unwrap_or(line / 10_000).max(LEAST_RATE).min(line)
}

/// Timely's settings. Setters chain. Defaults follow the line's rate. They were tested on lines of
/// 200 Mb/s to 100 Gb/s.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TimelyConfig {
    queue: u32,
    low: Option<Duration>,
    min_rate: Option<u64>,
}

impl Default for TimelyConfig {
    fn default() -> Self {
        Self::new()
    }
}

impl TimelyConfig {
    /// The default settings. Each setter documents its default.
    #[must_use]
    pub const fn new() -> Self {
        Self { queue: 75_000, low: None, min_rate: None }
    }

    /// The queue length up to which Timely sees no congestion, in bytes, 1,000 to 1 GiB. Default
    /// 75,000: 24 us at 25 Gb/s, 0.6 ms at 1 Gb/s. If two of the largest datagrams are longer,
    /// their length applies. A smaller value keeps queues shorter, but too small a value makes
    /// rates oscillate and leaves the line idle at times. A switch port whose buffer is smaller
    /// than twice this value drops packets before any session slows down.
    #[must_use]
    pub const fn queue(mut self, bytes: u32) -> Self {
        self.queue = bytes;
        self
    }

    /// `T_low` (SIGCOMM'15, section 4.3): shorter round trips are no congestion; 1 us to 1 s.
    /// Default: the transport's scatter of round trips, plus the time that [`queue`](Self::queue)
    /// needs to drain.
    ///
    /// `T_low` must be longer than the path's own round trip, so set it for paths between data
    /// centers. If the round trip of the empty path is between `T_low` and 5 `T_low`, a session
    /// gets a small part of the line. If it is longer, a session needs about 16 packets at the
    /// minimum rate to learn the length of its path.
    #[must_use]
    pub const fn low(mut self, rtt: Duration) -> Self {
        self.low = Some(rtt);
        self
    }

    /// The minimum rate, in bytes per second, at least 100,000. Default: the line's rate divided by
    /// 10,000, but at least 100,000. The line's rate divided by the minimum rate is the number of
    /// sessions that can share the line without a growing queue.
    #[must_use]
    pub const fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.min_rate = Some(bytes_per_second);
        self
    }

    /// `T_low` on this path, in ns.
    pub(super) fn low_nanos(&self, path: &Path, line: u64) -> u64 {
        let queue = u64::from(self.queue.max(2 * path.datagram));
        let low = self.low.unwrap_or_else(|| {
            path.noise + Duration::from_nanos(queue * 1_000_000_000 / line.max(1))
        });
        low.as_nanos() as u64
    }

    /// The minimum rate on a line of `line`, in bytes per second.
    pub(super) fn min(&self, line: u64) -> u64 {
        min_rate(self.min_rate, line)
    }

    fn flaw(&self) -> Option<&'static str> {
        let (least, most) = (Duration::from_micros(1), Duration::from_secs(1));
        if !(1_000..=1 << 30).contains(&self.queue) {
            return Some("queue must be 1,000 bytes to 1 GiB");
        }
        if self.low.is_some_and(|low| low < least || low > most) {
            return Some("low must be 1 us to 1 s");
        }
        min_rate_flaw(self.min_rate)
    }
}

/// Swift's settings. Setters chain. All other parameters follow from measurements of the sessions.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct SwiftConfig {
    min_rate: Option<u64>,
}

impl SwiftConfig {
    /// The default settings. Each setter documents its default.
    #[must_use]
    pub const fn new() -> Self {
        Self { min_rate: None }
    }

    /// As [`TimelyConfig::min_rate`]. Where the link's rate is unknown, the default is 100,000.
    #[must_use]
    pub const fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.min_rate = Some(bytes_per_second);
        self
    }

    /// The minimum rate on a line of `line`, in bytes per second.
    pub(super) fn min(&self, line: Option<u64>) -> u64 {
        min_rate(self.min_rate, line.unwrap_or(self.min_rate.unwrap_or(LEAST_RATE)))
    }
}

/// DCQCN's settings. Setters chain. The parameters of Zhu et al. (SIGCOMM'15, section 5) follow the
/// line's rate.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct DcqcnConfig {
    min_rate: Option<u64>,
}

impl DcqcnConfig {
    /// The default settings. Each setter documents its default.
    #[must_use]
    pub const fn new() -> Self {
        Self { min_rate: None }
    }

    /// As [`TimelyConfig::min_rate`].
    #[must_use]
    pub const fn min_rate(mut self, bytes_per_second: u64) -> Self {
        self.min_rate = Some(bytes_per_second);
        self
    }

    /// The minimum rate on a line of `line`, in bytes per second.
    pub(super) fn min(&self, line: u64) -> u64 {
        min_rate(self.min_rate, line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_setting_is_accepted_at_its_bounds_and_refused_beyond_them() {
        let timely = TimelyConfig::new;
        let dcqcn = DcqcnConfig::new;
        let (nano, us, second) =
            (Duration::from_nanos(1), Duration::from_micros(1), Duration::from_secs(1));
        let accepted = [
            CongestionControl::None,
            CongestionControl::default(),
            CongestionControl::Timely(timely().queue(1_000).low(us).min_rate(100_000)),
            CongestionControl::Timely(timely().queue(1 << 30).low(second)),
            CongestionControl::Dcqcn(dcqcn()),
            CongestionControl::Dcqcn(dcqcn().min_rate(100_000)),
        ];
        for control in accepted {
            assert_eq!(control.flaw(), None, "{control:?}");
        }
        let refused = [
            (CongestionControl::Timely(timely().queue(999)), "queue"),
            (CongestionControl::Timely(timely().queue((1 << 30) + 1)), "queue"),
            (CongestionControl::Timely(timely().low(us - nano)), "low"),
            (CongestionControl::Timely(timely().low(second + nano)), "low"),
            (CongestionControl::Timely(timely().min_rate(99_999)), "min_rate"),
            (CongestionControl::Dcqcn(dcqcn().min_rate(99_999)), "min_rate"),
        ];
        for (control, setting) in refused {
            let flaw = control.flaw().expect(setting);
            assert!(flaw.starts_with(setting), "{flaw}");
        }
    }

    #[test]
    fn thresholds_follow_the_line() {
        let path = |line| Path {
            line_rate: Some(line),
            noise: Duration::from_micros(5),
            datagram: 1_472,
            round_trip: None,
        };
        let low = |line| TimelyConfig::new().low_nanos(&path(line), line);
        assert_eq!([low(3_125_000_000), low(125_000_000)], [29_000, 605_000]);
        let jumbo = Path { datagram: 65_507, ..path(125_000_000) };
        assert_eq!(TimelyConfig::new().low_nanos(&jumbo, 125_000_000), 5_000 + 2 * 65_507 * 8);
        let min = |line| TimelyConfig::new().min(line);
        assert_eq!([min(3_125_000_000), min(125_000_000), min(50_000)], [312_500, 100_000, 50_000]);
    }
}
