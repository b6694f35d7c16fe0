//! Call counts, the progress bar and the printed result.

use std::io::{self, Write};
use std::iter::Sum;
use std::time::Duration;

use erpc::Retransmissions;
use hdrhistogram::Histogram;
use indicatif::{DecimalBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::args::LoadArgs;
use crate::data::Data;

/// The method of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Get,
    Put,
    Delete,
    Scan,
}

impl Operation {
    const ALL: [(Self, &str); 4] =
        [(Self::Get, "get"), (Self::Put, "put"), (Self::Delete, "delete"), (Self::Scan, "scan")];
}

/// Latencies in nanoseconds, with three significant digits.
type Latencies = Histogram<u64>;

/// Completed calls and their latencies.
#[derive(Default)]
pub(crate) struct Tally {
    /// Latencies by operation. `None` until the first call of the operation.
    latencies: [Option<Latencies>; Operation::ALL.len()],
    /// Bytes of keys and values in requests.
    sent: u64,
    /// Bytes of keys and values in responses.
    received: u64,
    /// Time of the slowest thread.
    pub(crate) elapsed: Duration,
    /// Packets that the client retransmitted.
    pub(crate) resent: Retransmissions,
}

impl Tally {
    /// Counts a call. `sent` and `received` are its bytes of keys and values.
    pub(crate) fn record(
        &mut self,
        operation: Operation,
        latency: Duration,
        sent: usize,
        received: usize,
    ) {
        let latencies = &mut self.latencies[operation as usize];
        if latencies.is_none() {
            *latencies = new_latencies();
        }
        if let Some(latencies) = latencies {
            latencies.saturating_record(u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX));
        }
        self.sent += sent as u64;
        self.received += received as u64;
    }

    fn all(&self) -> Option<Latencies> {
        let mut all = new_latencies()?;
        for latencies in self.latencies.iter().flatten() {
            // Cannot fail: all histograms have the same range.
            all.add(latencies).ok()?;
        }
        Some(all)
    }

    fn merge(&mut self, other: &Self) {
        for (mine, others) in self.latencies.iter_mut().zip(&other.latencies) {
            match (mine.as_mut(), others) {
                (Some(mine), Some(others)) => mine.add(others).unwrap_or_default(),
                (None, Some(others)) => *mine = Some(others.clone()),
                (_, None) => {}
            }
        }
        self.sent += other.sent;
        self.received += other.received;
        self.elapsed = self.elapsed.max(other.elapsed);
        self.resent += other.resent;
    }
}

/// A histogram from 1 ns to 60 s, which is longer than any call. Never `None`: the bounds are
/// valid.
fn new_latencies() -> Option<Latencies> {
    Histogram::new_with_max(60_000_000_000, 3).ok()
}

impl Sum<Self> for Tally {
    fn sum<I: Iterator<Item = Self>>(threads: I) -> Self {
        threads.fold(Self::default(), |mut sum, thread| {
            sum.merge(&thread);
            sum
        })
    }
}

/// A progress bar on standard error. Hidden if standard error is not a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    by_time: bool,
}

impl Progress {
    /// A bar that shows how many of `count` files are stored.
    pub(crate) fn files(count: usize) -> Self {
        Self::new(count as u64, "storing {bar:40} {pos} of {len} files", false)
    }

    /// A bar that shows how much of `span` has passed.
    pub(crate) fn time(span: Duration) -> Self {
        Self::new(millis(span), "running {bar:40} {msg}", true)
    }

    fn new(length: u64, template: &str, by_time: bool) -> Self {
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::new(length).with_style(style), by_time }
    }

    /// Shows that `calls` calls are complete after `elapsed`.
    pub(crate) fn show(&self, elapsed: Duration, calls: u64) {
        if self.by_time {
            self.bar.set_message(counted(calls, "call"));
            self.bar.set_position(millis(elapsed));
        } else {
            self.bar.set_position(calls);
        }
    }
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// Prints the result of storing the files.
pub(crate) fn print_stored(data: &Data, tally: &Tally) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let (files, bytes) = (data.files().len() as u64, DecimalBytes(data.bytes()));
    writeln!(
        out,
        "stored {}, {bytes}, in {:.3} s",
        counted(files, "file"),
        tally.elapsed.as_secs_f64()
    )
}

/// Prints the result of the mixed load.
pub(crate) fn print_mix(args: &LoadArgs, tally: &Tally) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let secs = tally.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let all = tally.all();
    let calls = all.as_ref().map_or(0, Latencies::len);
    writeln!(
        out,
        "{} in {secs:.1} s, all answers correct: {}/s from {} with {} outstanding each",
        counted(calls, "call"),
        counted((calls as f64 / secs) as u64, "call"),
        counted(args.threads.get().into(), "thread"),
        args.outstanding,
    )?;
    writeln!(out, "\n{:<8}{:>12}{:>12}{:>12}{:>12}", "", "calls", "p50 us", "p99 us", "p99.9 us")?;
    let rows = Operation::ALL
        .map(|(operation, name)| (name, tally.latencies[operation as usize].as_ref()));
    for (name, latencies) in rows.into_iter().chain([("all", all.as_ref())]) {
        let Some(latencies) = latencies else { continue };
        let [p50, p99, p999] =
            [0.5, 0.99, 0.999].map(|quantile| latencies.value_at_quantile(quantile) as f64 / 1e3);
        let count = HumanCount(latencies.len()).to_string();
        writeln!(out, "{name:<8}{count:>12}{p50:>12.1}{p99:>12.1}{p999:>12.1}")?;
    }
    writeln!(
        out,
        "\n{} sent, {} received, {}",
        DecimalBytes(tally.sent),
        DecimalBytes(tally.received),
        resent(&tally.resent),
    )
}

/// Loss and delay as the client saw them: packets declared lost, and answers that missed their
/// timeout, so that the client sent a probe. Some of these answers were only late. The client
/// usually recognizes this when they arrive.
fn resent(counts: &Retransmissions) -> String {
    if counts.packets() == 0 {
        return "nothing lost, nothing late".to_owned();
    }
    let overdue = counted(counts.probes, "answer");
    let late = HumanCount(counts.needless_probes);
    let lost = counted(counts.shown_lost(), "packet");
    format!("{lost} declared lost, {overdue} overdue ({late} only late)")
}

/// "1 call", "2 calls".
pub(crate) fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", HumanCount(count))
}
