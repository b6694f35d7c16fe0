//! The line of JSON that a run prints, and the results of a closed loop.

use std::fmt::Write as _;
use std::time::Duration;

use erpc::{LoopGaps, Retransmissions};
use hdrhistogram::Histogram;

/// A JSON object on one line, field by field.
#[derive(Default)]
pub(crate) struct Line(String);

impl Line {
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn name(&mut self, name: &str) -> &mut String {
        self.0.push_str(if self.0.is_empty() { "{" } else { "," });
        // Names are identifiers of this crate and need no escapes.
        let _ = write!(self.0, "\"{name}\":");
        &mut self.0
    }

    /// Adds a text, which has no characters that JSON would escape.
    pub(crate) fn text(mut self, name: &str, value: &str) -> Self {
        debug_assert!(value.chars().all(|c| c.is_ascii_graphic() && c != '"' && c != '\\'));
        let _ = write!(self.name(name), "\"{value}\"");
        self
    }

    pub(crate) fn int(mut self, name: &str, value: u64) -> Self {
        let _ = write!(self.name(name), "{value}");
        self
    }

    /// Adds a number, or `null` if it is not finite or was not measured.
    pub(crate) fn number(mut self, name: &str, value: Option<f64>) -> Self {
        match value.filter(|value| value.is_finite()) {
            Some(value) => {
                let _ = write!(self.name(name), "{}", rounded(value));
            }
            None => self.name(name).push_str("null"),
        }
        self
    }

    /// Adds a client's retransmissions, by cause.
    pub(crate) fn resent(self, counts: &Retransmissions) -> Self {
        self.int("retx", counts.shown_lost())
            .int("probes", counts.probes)
            .int("needless_probes", counts.needless_probes)
    }

    /// Writes the line to standard output.
    pub(crate) fn print(mut self) {
        self.0.push('}');
        println!("{}", self.0);
    }
}

/// Rounds to three decimals, or to five if the value is below 1.
fn rounded(value: f64) -> String {
    let decimals = if value.abs() >= 1.0 { 3 } else { 5 };
    let text = format!("{value:.decimals$}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

/// Latencies in nanoseconds, with three significant digits.
pub(crate) struct Latencies {
    all: Histogram<u64>,
    first: Option<u64>,
}

impl Latencies {
    /// Longest latency that the histogram can represent. Longer latencies are recorded as this one.
    const MAX: Duration = Duration::from_secs(60);

    pub(crate) fn new() -> Self {
        let max = Self::MAX.as_nanos() as u64;
        let all = Histogram::new_with_bounds(1, max, 3).expect("constant bounds are valid");
        Self { all, first: None }
    }

    pub(crate) fn clear(&mut self) {
        self.all.clear();
        self.first = None;
    }

    #[inline]
    pub(crate) fn record(&mut self, nanos: u64) {
        self.all.saturating_record(nanos);
        self.first = self.first.or(Some(nanos));
    }

    /// Number of recorded values.
    pub(crate) fn count(&self) -> u64 {
        self.all.len()
    }

    /// Adds the values of `other`.
    pub(crate) fn merge(&mut self, other: &Self) {
        // Both histograms have the same range, so no value is out of range.
        self.all.add(&other.all).unwrap_or(());
    }

    /// The latency that was recorded first, in microseconds.
    pub(crate) fn first_micros(&self) -> Option<f64> {
        self.first.map(|nanos| nanos as f64 / 1e3)
    }

    pub(crate) fn micros(&self, quantile: f64) -> Option<f64> {
        (!self.all.is_empty()).then(|| self.all.value_at_quantile(quantile) as f64 / 1e3)
    }
}

/// The result of a closed loop of calls.
pub(crate) struct LoopOutcome {
    pub(crate) workload: &'static str,
    /// The program and the system calls that moved the packets.
    pub(crate) stack: &'static str,
    pub(crate) outstanding: usize,
    /// Calls within the measured time.
    pub(crate) ops: u64,
    /// Calls including those of the warm-up.
    pub(crate) ops_total: u64,
    pub(crate) elapsed: Duration,
    /// Payload of a call in bytes, request and answer together.
    pub(crate) payload: usize,
    pub(crate) latencies: Latencies,
    pub(crate) cpu_client: Duration,
    pub(crate) cpu_server: Option<Duration>,
    pub(crate) resent: Retransmissions,
    /// Stalls of the event loops. `None` if this side has no event loop, or if the server does not
    /// answer the control call.
    pub(crate) gaps_client: Option<LoopGaps>,
    pub(crate) gaps_server: Option<LoopGaps>,
    pub(crate) pp_ns: Option<f64>,
}

impl LoopOutcome {
    /// Prints the line, and a summary for people on standard error.
    pub(crate) fn print(&self) {
        let rps = self.ops as f64 / self.elapsed.as_secs_f64();
        let gbps = rps * self.payload as f64 * 8.0 / 1e9;
        let per_million = |cpu: Duration| cpu.as_secs_f64() / self.ops as f64 * 1e6;
        let (client, server) = (per_million(self.cpu_client), self.cpu_server.map(per_million));
        let [p50, p99, p999] = [0.5, 0.99, 0.999].map(|quantile| self.latencies.micros(quantile));
        let count = |gaps: Option<LoopGaps>| gaps.map(|gaps| gaps.count as f64);
        let gaps = self.gaps_client.into_iter().chain(self.gaps_server);
        let longest = gaps.map(|gaps| gaps.longest).max().map(|time| time.as_secs_f64() * 1e6);
        let shown = |value: Option<f64>| value.map_or("?".to_owned(), rounded);
        eprintln!(
            "{} x{}: {} calls/s, {} Gb/s, p50 {} us, p99 {} us, p99.9 {} us, {} CPU s per million calls, retx {}, probes {}, loops stalled {} and {} times, up to {} us, ping-pong {} ns",
            self.workload,
            self.outstanding,
            rps.round(),
            rounded(gbps),
            shown(p50),
            shown(p99),
            shown(p999),
            shown(server.map(|server| server + client)),
            self.resent.shown_lost(),
            self.resent.probes,
            shown(count(self.gaps_client)),
            shown(count(self.gaps_server)),
            shown(longest),
            shown(self.pp_ns),
        );
        Line::new()
            .text("workload", self.workload)
            .text("stack", self.stack)
            .int("outstanding", self.outstanding as u64)
            .int("ops", self.ops)
            .int("ops_total", self.ops_total)
            .number("rps", Some(rps))
            .number("gbps", Some(gbps))
            .number("p50_us", p50)
            .number("p99_us", p99)
            .number("p999_us", p999)
            .number("cpu_client_s_per_m", Some(client))
            .number("cpu_server_s_per_m", server)
            .number("cpu_s_per_m", server.map(|server| server + client))
            .resent(&self.resent)
            .number("gaps_client", count(self.gaps_client))
            .number("gaps_server", count(self.gaps_server))
            .number("longest_gap_us", longest)
            .number("pp_ns", self.pp_ns)
            .print();
    }
}
