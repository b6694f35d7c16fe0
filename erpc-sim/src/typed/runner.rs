//! Runs many seeds on several threads.

use std::ops::AddAssign;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use super::oracle::{Outcomes, lock};
use super::plan::Weather;
use super::world::{Report, World};
use crate::oracle::Violation;
use crate::runner::{Hashes, in_words, silently};

/// The outcome of a seed.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The faults of the run.
    pub weather: Weather,
    /// The rule that was broken. A panic is a broken rule, too.
    pub violation: Option<Violation>,
    /// Packets that were sent.
    pub packets: u64,
    /// Calls that were made.
    pub calls: u64,
    /// How calls ended.
    pub outcomes: Outcomes,
    /// A hash over the run. Equal seeds give equal hashes.
    pub trace_hash: u64,
}

impl From<Report> for Outcome {
    fn from(report: Report) -> Self {
        let Report { weather, violation, packets, calls, outcomes, trace_hash } = report;
        Self { weather, violation, packets, calls, outcomes, trace_hash }
    }
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, other: Self) {
        let Self { answered, cancelled, refused, late, not_executed, maybe_executed, again } =
            other;
        self.answered += answered;
        self.cancelled += cancelled;
        self.refused += refused;
        self.late += late;
        self.not_executed += not_executed;
        self.maybe_executed += maybe_executed;
        self.again += again;
    }
}

/// Runs one seed. `prints`: prints its events.
#[must_use]
pub fn run_seed(seed: u64, prints: bool) -> Outcome {
    silently(|| {
        let mut world = World::new(seed, prints);
        let end = catch_unwind(AssertUnwindSafe(|| world.run()));
        if let Err(payload) = end {
            lock(&world.oracle).violate(None, in_words(&*payload));
        }
        let outcome = world.report().into();
        // After a panic the world may be inconsistent, so its drop may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
        outcome
    })
}

/// The totals over many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Packets of all seeds.
    pub packets: u64,
    /// Calls of all seeds.
    pub calls: u64,
    /// How calls ended.
    pub outcomes: Outcomes,
    /// The lowest failed seed, and its violation.
    pub failure: Option<(u64, Violation)>,
    /// A hash over the trace hashes of all seeds, in order. Equal arguments give equal hashes.
    pub trace_hash: u64,
}

/// Runs `count` seeds, the first one `from`, on `threads` threads. Stops soon after a seed has
/// failed.
///
/// # Panics
/// If a thread cannot be started.
#[must_use]
pub fn run_seeds(from: u64, count: u64, threads: usize) -> Summary {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sums = Mutex::new((Summary::default(), Hashes::new(from)));
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let seed = from + at;
                    let outcome = run_seed(seed, false);
                    let mut sums = sums.lock().unwrap_or_else(PoisonError::into_inner);
                    let (summary, hashes) = &mut *sums;
                    summary.seeds += 1;
                    summary.packets += outcome.packets;
                    summary.calls += outcome.calls;
                    summary.outcomes += outcome.outcomes;
                    hashes.put(at, outcome.trace_hash);
                    if let Some(violation) = outcome.violation {
                        stop.store(true, Ordering::Relaxed);
                        if summary.failure.as_ref().is_none_or(|(first, _)| seed < *first) {
                            summary.failure = Some((seed, violation));
                        }
                    }
                }
            });
        }
    });
    let (summary, hashes) = sums.into_inner().unwrap_or_else(PoisonError::into_inner);
    Summary { trace_hash: hashes.mixed, ..summary }
}

/// The command that runs a seed again, with the same planted bug.
#[must_use]
pub fn command(seed: u64) -> String {
    let command =
        format!("cargo run --release -p erpc-sim -- typed --seeds 1 --from {seed} --events");
    #[cfg(erpc_mutants)]
    if let Some(bug) = crate::mutants::chosen() {
        return format!("{} {command} --bug {bug:?}", crate::shrink::WITH_BUGS);
    }
    command
}
