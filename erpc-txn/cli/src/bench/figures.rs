//! The figures of a run, and their line of JSON.

use std::time::Duration;

use hdrhistogram::Histogram;

use super::audit::Audit;
use super::lane::Ran;
use super::tally::latencies;
use super::{SettingsArgs, Transport};

pub(super) struct Figures {
    /// Millions of commits per second: of CPU time with `mem`, else of time.
    pub(super) mtps: f64,
    /// Attempts of transactions, those included that conflicted or failed.
    pub(super) attempts: u64,
    pub(super) commits: u64,
    /// The share of attempts that other transactions made abort.
    pub(super) abort_rate: f64,
    pub(super) requests_per_attempt: f64,
    pub(super) messages_per_attempt: f64,
    /// The share of keys whose primary is the coordinator's node.
    pub(super) local_share: f64,
    pub(super) latencies: Histogram<u64>,
    /// Of all threads, per commit.
    pub(super) cpu_us_per_txn: f64,
    /// What the check found; none if it did not run.
    pub(super) anomalies: Option<usize>,
    /// The measured time.
    pub(super) secs: f64,
}

impl Figures {
    pub(super) fn new(args: &SettingsArgs, lanes: &[Ran], audit: Option<&Audit>) -> Self {
        let sum = |of: fn(&Ran) -> u64| lanes.iter().map(of).sum::<u64>();
        let (attempts, commits) =
            (sum(|lane| lane.counts.attempts), sum(|lane| lane.counts.commits));
        let failed = lanes.iter().flat_map(|lane| &lane.tally.kinds).map(|kind| kind.failed).sum();
        let conflicts = sum(|lane| lane.counts.aborts).saturating_sub(failed);
        let longest =
            |of: fn(&Ran) -> Duration| lanes.iter().map(of).max().unwrap_or_default().as_secs_f64();
        let secs = longest(|lane| lane.time);
        // With `mem`, all lanes are on one thread.
        let (cpu, base) = match args.transport {
            Transport::Mem => (longest(|lane| lane.cpu), longest(|lane| lane.cpu)),
            Transport::Udp => (lanes.iter().map(|lane| lane.cpu.as_secs_f64()).sum(), secs),
        };
        let mut all = latencies();
        for lane in lanes {
            // Cannot fail: the histograms have the same bounds.
            all.add(&lane.tally.latencies).unwrap_or_default();
        }
        let per_attempt = |count: u64| count as f64 / attempts as f64;
        Self {
            mtps: commits as f64 / base / 1e6,
            attempts,
            commits,
            abort_rate: per_attempt(conflicts),
            requests_per_attempt: per_attempt(sum(|lane| lane.counts.requests)),
            messages_per_attempt: per_attempt(sum(|lane| lane.counts.messages)),
            local_share: sum(|lane| lane.tally.local_keys) as f64
                / sum(|lane| lane.tally.keys) as f64,
            latencies: all,
            cpu_us_per_txn: cpu * 1e6 / commits as f64,
            anomalies: audit.map(|audit| audit.wrong.len()),
            secs,
        }
    }

    /// A quantile of the latencies of commits, in us.
    pub(super) fn quantile(&self, quantile: f64) -> f64 {
        self.latencies.value_at_quantile(quantile) as f64 / 1e3
    }

    /// The figures as a JSON object, on one line.
    pub(super) fn json(&self, workload: &str, args: &SettingsArgs) -> String {
        let transport = match args.transport {
            Transport::Mem => "mem",
            Transport::Udp => "udp",
        };
        let anomalies = self.anomalies.map_or("null".into(), |count| count.to_string());
        let fields = [
            ("workload", format!("\"{workload}\"")),
            ("transport", format!("\"{transport}\"")),
            ("processes", if args.processes { args.nodes } else { 1 }.to_string()),
            ("nodes", args.nodes.to_string()),
            ("replicas", args.replicas.to_string()),
            ("threads", args.threads.to_string()),
            ("tasks", args.tasks.to_string()),
            ("burst", args.burst().to_string()),
            ("rows_per_thread", args.rows.to_string()),
            ("secs", number(self.secs)),
            ("mtps", number(self.mtps)),
            ("attempts", self.attempts.to_string()),
            ("commits", self.commits.to_string()),
            ("abort_rate", number(self.abort_rate)),
            ("requests_per_attempt", number(self.requests_per_attempt)),
            ("messages_per_attempt", number(self.messages_per_attempt)),
            ("local_share", number(self.local_share)),
            ("p50_us", number(self.quantile(0.5))),
            ("p99_us", number(self.quantile(0.99))),
            ("cpu_us_per_txn", number(self.cpu_us_per_txn)),
            ("anomalies", anomalies),
        ];
        let fields = fields.map(|(name, value)| format!("\"{name}\":{value}"));
        format!("{{{}}}", fields.join(","))
    }
}

/// A number with five decimals, or `null` if nothing was measured.
fn number(value: f64) -> String {
    if value.is_finite() { format!("{value:.5}") } else { "null".into() }
}
