//! Whether a long run stays flat: memory, logs and latencies, interval by interval.
//!
//! ```text
//! main thread   tick: samples the logs ─ the interval is over ─> number ─┐         ┌─> line of JSON
//! lanes         look: the number has changed ──> latencies so far ───────┴─> parts ┘
//! ```

use std::fs;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use erpc_txn::log::Coordinator;
use erpc_txn::participant::Participant;
use hdrhistogram::Histogram;

use super::tally::latencies;
use crate::failure::Failure;
use crate::output;

/// The verdict compares so many parts of a run: the first with the last.
pub(super) const PARTS: usize = 3;

/// How often logs are looked at.
const SAMPLE: Duration = Duration::from_millis(10);

/// What is flat: the median of the last third of the run is at most this many times that of the first
/// third, and so much more. Memory that leaks grows with the transactions; allocators and page tables
/// need a few MiB of their own. The machine may have other load, which latencies show.
const MEMORY: (f64, f64) = (1.02, 8.0);
const LOGS: (f64, f64) = (1.5, 16.0);
const MEDIAN: (f64, f64) = (1.5, 20.0);
const TAIL: (f64, f64) = (2.0, 100.0);

/// What lanes tell the main thread.
pub(super) struct Intervals {
    /// The present interval, from 0.
    number: AtomicU64,
    /// Of each lane that has ended an interval, its latencies in it.
    parts: Mutex<Vec<(u64, Histogram<u64>)>>,
}

/// The intervals of a run, as the main thread sees them.
pub(super) struct Watch {
    intervals: Arc<Intervals>,
    participants: Vec<Arc<Participant>>,
    lanes: usize,
    /// When the first interval begins.
    began: Instant,
    length: Duration,
    /// How many intervals the run has.
    count: u64,
    sampled: Instant,
    /// The most in the present interval.
    most: Logs,
    /// The interval before, until all lanes have told theirs.
    ended: Option<(u64, Logs)>,
    rows: Vec<Row>,
}

/// Sums over the logs of all nodes.
#[derive(Clone, Copy, Default)]
struct Logs {
    records: usize,
    bytes: usize,
}

/// One interval.
#[derive(Clone, Copy)]
struct Row {
    memory_mib: f64,
    logs: Logs,
    commits: u64,
    p50_us: f64,
    p99_us: f64,
}

impl Intervals {
    pub(super) fn new() -> Self {
        Self { number: AtomicU64::new(0), parts: Mutex::default() }
    }

    /// The present interval.
    pub(super) fn now(&self) -> u64 {
        // Orders nothing: each lane counts for itself.
        self.number.load(Ordering::Relaxed)
    }

    /// Takes over what a lane measured in an interval.
    pub(super) fn add(&self, interval: u64, latencies: Histogram<u64>) {
        self.parts.lock().unwrap_or_else(PoisonError::into_inner).push((interval, latencies));
    }

    /// What all lanes measured in an interval, if all have told.
    fn take(&self, interval: u64, lanes: usize) -> Option<Histogram<u64>> {
        let mut parts = self.parts.lock().unwrap_or_else(PoisonError::into_inner);
        let is_of = |part: &(u64, _)| part.0 == interval;
        if parts.iter().filter(|part| is_of(part)).count() < lanes {
            return None;
        }
        let mut all = latencies();
        parts.retain(|part| {
            if is_of(part) {
                // Cannot fail: the histograms have the same bounds.
                all.add(&part.1).unwrap_or_default();
            }
            !is_of(part)
        });
        Some(all)
    }
}

impl Watch {
    /// The first of `count` intervals begins at `began`, when the measurement does.
    pub(super) fn start(
        intervals: Arc<Intervals>,
        participants: Vec<Arc<Participant>>,
        lanes: usize,
        began: Instant,
        (length, count): (Duration, u64),
    ) -> Self {
        Self {
            intervals,
            participants,
            lanes,
            began,
            length,
            count,
            sampled: began,
            most: Logs::default(),
            ended: None,
            rows: Vec::new(),
        }
    }

    /// To be called often. Prints a line for each interval.
    pub(super) fn tick(&mut self) -> Result<(), Failure> {
        let now = Instant::now();
        if now >= self.sampled + SAMPLE {
            self.sampled = now;
            let logs = Logs::of(&self.participants);
            self.most.records = self.most.records.max(logs.records);
            self.most.bytes = self.most.bytes.max(logs.bytes);
        }
        if let Some((interval, logs)) = self.ended
            && let Some(latencies) = self.intervals.take(interval, self.lanes)
        {
            self.ended = None;
            let row = Row::new(logs, &latencies)?;
            let at = self.length.as_secs_f64() * (interval + 1) as f64;
            output::line(row.json(at))?;
            self.rows.push(row);
        }
        let passed = now - self.began;
        let interval = self.intervals.now();
        let end = self.length.as_secs_f64() * (interval + 1) as f64;
        if self.ended.is_none() && interval < self.count && passed.as_secs_f64() >= end {
            self.ended = Some((interval, std::mem::take(&mut self.most)));
            self.intervals.number.store(interval + 1, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Whether an interval has ended that has no line yet, because some lanes have not told theirs.
    pub(super) fn is_waiting(&self) -> bool {
        self.ended.is_some()
    }

    /// What is flat, and what is not.
    pub(super) fn verdict(&self) -> Verdict {
        let part = self.rows.len() / PARTS;
        let compare = |(factor, slack): (f64, f64), of: fn(&Row) -> f64| {
            let first = median(self.rows.iter().take(part).map(of));
            let last = median(self.rows.iter().rev().take(part).map(of));
            Compared { first, last, is_flat: part > 0 && last <= first * factor + slack }
        };
        Verdict {
            memory: compare(MEMORY, |row| row.memory_mib),
            logs: compare(LOGS, |row| row.logs.records as f64),
            median: compare(MEDIAN, |row| row.p50_us),
            tail: compare(TAIL, |row| row.p99_us),
        }
    }
}

/// The medians of the first and the last third of a run.
#[derive(Clone, Copy)]
pub(super) struct Compared {
    first: f64,
    last: f64,
    is_flat: bool,
}

pub(super) struct Verdict {
    memory: Compared,
    logs: Compared,
    median: Compared,
    tail: Compared,
}

impl Verdict {
    fn all(&self) -> [(&'static str, &'static str, Compared); 4] {
        [
            ("memory", "MiB", self.memory),
            ("logs", "records", self.logs),
            ("p50", "us", self.median),
            ("p99", "us", self.tail),
        ]
    }

    /// On one line.
    pub(super) fn json(&self) -> String {
        let fields = self.all().map(|(name, _, Compared { first, last, is_flat })| {
            format!(
                "\"{name}_flat\":{is_flat},\"{name}_first\":{first:.1},\"{name}_last\":{last:.1}"
            )
        });
        format!("{{{}}}", fields.join(","))
    }

    /// What has grown.
    pub(super) fn grown(&self) -> Option<String> {
        let grown = self.all().into_iter().find(|(.., compared)| !compared.is_flat);
        grown.map(|(name, unit, Compared { first, last, .. })| {
            format!("{name} grew from {first:.1} to {last:.1} {unit}")
        })
    }
}

impl Logs {
    fn of(participants: &[Arc<Participant>]) -> Self {
        let mut all = Self::default();
        for participant in participants {
            for node in participant.placement().nodes() {
                for thread in 0..participant.settings().threads {
                    if let Some(log) = participant.log(Coordinator { node: node.0, thread }) {
                        all.records += log.len();
                        all.bytes += log.bytes();
                    }
                }
            }
        }
        all
    }
}

impl Row {
    fn new(logs: Logs, latencies: &Histogram<u64>) -> Result<Self, Failure> {
        let us = |quantile| latencies.value_at_quantile(quantile) as f64 / 1e3;
        let (p50_us, p99_us) = (us(0.5), us(0.99));
        Ok(Self { memory_mib: memory_mib()?, logs, commits: latencies.len(), p50_us, p99_us })
    }

    fn json(&self, at: f64) -> String {
        let Self { memory_mib, logs: Logs { records, bytes }, commits, p50_us, p99_us } = self;
        format!(
            "{{\"at_s\":{at:.1},\"memory_mib\":{memory_mib:.1},\"log_records\":{records},\
             \"log_bytes\":{bytes},\"commits\":{commits},\"p50_us\":{p50_us:.1},\
             \"p99_us\":{p99_us:.1}}}"
        )
    }
}

/// The memory that this process has resident, in MiB.
fn memory_mib() -> Result<f64, Failure> {
    let status = fs::read_to_string("/proc/self/status");
    let status = status.map_err(Failure::of("no /proc/self/status"))?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix("kB")?.trim().parse::<f64>().ok());
    kib.map(|kib| kib / 1024.0).ok_or_else(|| Failure::new("/proc/self/status has no VmRSS"))
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<_> = values.collect();
    values.sort_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A run whose intervals have these figures: memory, records, p50 and p99.
    fn verdict(rows: impl Iterator<Item = [f64; 4]>) -> Verdict {
        let intervals = Arc::new(Intervals::new());
        let mut watch =
            Watch::start(intervals, Vec::new(), 1, Instant::now(), (Duration::from_secs(1), 9));
        watch.rows.extend(rows.map(|[memory_mib, records, p50_us, p99_us]| {
            let logs = Logs { records: records as usize, bytes: 0 };
            Row { memory_mib, logs, commits: 1, p50_us, p99_us }
        }));
        watch.verdict()
    }

    #[test]
    fn what_grows_is_named() {
        let flat = [500.0, 100.0, 200.0, 900.0];
        assert_eq!(verdict((0..9).map(|_| flat)).grown(), None);
        for (at, name) in ["memory", "logs", "p50", "p99"].into_iter().enumerate() {
            let grows = (0..9).map(|time| {
                let mut row = flat;
                row[at] *= 1.0 + 0.5 * f64::from(time);
                row
            });
            let grown = verdict(grows).grown().expect("it grows");
            assert!(grown.starts_with(name), "{grown}");
        }
        // One bad interval is no growth.
        let spike = |time| if time == 8 { flat.map(|figure| 9.0 * figure) } else { flat };
        assert_eq!(verdict((0..9).map(spike)).grown(), None);
    }

    #[test]
    fn too_few_intervals_prove_nothing() {
        assert!(verdict((0..2).map(|_| [1.0; 4])).grown().is_some());
    }

    #[test]
    fn an_interval_waits_for_all_lanes() {
        let intervals = Intervals::new();
        let mut part = latencies();
        part.saturating_record(1000);
        intervals.add(0, part.clone());
        assert!(intervals.take(0, 2).is_none());
        intervals.add(1, part.clone());
        assert!(intervals.take(0, 2).is_none(), "the other lane has told nothing of interval 0");
        intervals.add(0, part);
        assert_eq!(intervals.take(0, 2).map(|all| all.len()), Some(2));
        assert!(intervals.take(0, 2).is_none());
    }
}
