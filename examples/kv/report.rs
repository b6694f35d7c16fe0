//! Counting, progress and the printed result.

use std::io::{self, Write};
use std::iter::Sum;
use std::time::Duration;

use erpc::Retransmissions;
use hdrhistogram::Histogram;
use indicatif::{DecimalBytes, HumanCount, ProgressBar, ProgressStyle};

use crate::args::LoadArgs;
use crate::data::Data;

/// What a call does.
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

/// Latencies in nanoseconds, kept to three digits.
type Latencies = Histogram<u64>;

/// Calls that were made, and how long they took.
#[derive(Default)]
pub(crate) struct Tally {
    /// By operation. Made when the first call of the kind is recorded.
    latencies: [Option<Latencies>; Operation::ALL.len()],
    sent: u64,
    received: u64,
    /// Of the slowest thread.
    pub(crate) elapsed: Duration,
    /// Packets that had to be sent again.
    pub(crate) resent: Retransmissions,
}

impl Tally {
    /// Counts a call that sent and received so many bytes of keys and values.
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
            // They have one range, so that one fits the other.
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

/// From 1 ns to a minute, longer than any call takes. `None` never: the bounds are right.
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

/// A bar on standard error, if that is a terminal.
pub(crate) struct Progress {
    bar: ProgressBar,
    by_time: bool,
}

impl Progress {
    /// Through so many files.
    pub(crate) fn files(count: usize) -> Self {
        Self::new(count as u64, "storing {bar:40} {pos} of {len} files", false)
    }

    /// Through a span of time.
    pub(crate) fn time(span: Duration) -> Self {
        Self::new(millis(span), "running {bar:40} {msg}", true)
    }

    fn new(length: u64, template: &str, by_time: bool) -> Self {
        let style =
            ProgressStyle::with_template(template).unwrap_or_else(|_| ProgressStyle::default_bar());
        Self { bar: ProgressBar::new(length).with_style(style), by_time }
    }

    /// Shows that after `elapsed` so many calls are done.
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

/// Says how storing the files went.
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

/// Says how the mixed load went.
pub(crate) fn print_mix(args: &LoadArgs, tally: &Tally) -> io::Result<()> {
    let mut out = io::stdout().lock();
    let secs = tally.elapsed.as_secs_f64().max(f64::MIN_POSITIVE);
    let all = tally.all();
    let calls = all.as_ref().map_or(0, Latencies::len);
    writeln!(
        out,
        "{} in {secs:.1} s, every answer right: {}/s from {} with {} outstanding each",
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

/// What went wrong on the way: packets that were lost, as far as the client can tell, and answers that did not come in time, so that the client asked once
/// more. Of those it knows afterwards, as a rule, whether they were only late.
fn resent(counts: &Retransmissions) -> String {
    if counts.packets() == 0 {
        return "nothing lost, nothing late".to_owned();
    }
    let overdue = counted(counts.probes, "answer");
    let late = HumanCount(counts.needless_probes);
    let lost = counted(counts.shown_lost(), "packet");
    format!("{lost} taken for lost, {overdue} overdue ({late} only late)")
}

/// "1 call", "2 calls".
pub(crate) fn counted(count: u64, what: &str) -> String {
    let plural = if count == 1 { "" } else { "s" };
    format!("{} {what}{plural}", HumanCount(count))
}
