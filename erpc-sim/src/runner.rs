//! Many seeds, on some threads.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use erpc_core::time::Instant;
use erpc_core::transport::fault::FaultCounts;
use erpc_test_tools::random::mix;

use crate::Scenario;
use crate::oracle::{Outcomes, Streams, Violation};
use crate::plan::{Cut, Plan};
use crate::world::{Happened, RunReport, World};

thread_local! {
    /// A run is under way on this thread.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// Where the last panic of a run on this thread was.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of runs from being printed: they are violations like others, and shrinking makes many.
/// Other panics are printed as before. `RUST_BACKTRACE=1` adds where a run's panic came from.
pub fn silence_panics() {
    let others = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        if !RUNNING.get() {
            return others(info);
        }
        let place = info.location().map(ToString::to_string).unwrap_or_default();
        let backtrace = Backtrace::capture();
        PANIC.set(Some(match backtrace.status() {
            BacktraceStatus::Captured => format!("{place}\n{backtrace}"),
            _ => place,
        }));
    }));
}

/// What came of a seed, also if it panicked.
#[derive(Clone, Debug)]
pub enum SeedOutcome {
    /// The run came to its end, or to a violation.
    Ran(Box<RunReport>),
    /// An assertion of the code under test failed.
    Panicked(Box<Panic>),
}

/// How a run ended in an assertion.
#[derive(Clone, Debug)]
pub struct Panic {
    /// What it said, and where; and when on the world's clock.
    pub violation: Violation,
    /// Packets that had been put on the network.
    pub packets: u64,
    /// Calls that had been made.
    pub calls: u64,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation.fmt(f)
    }
}

impl SeedOutcome {
    /// The rule that did not hold.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        match self {
            Self::Ran(report) => report.violation.clone(),
            Self::Panicked(panic) => Some(panic.violation.clone()),
        }
    }

    /// Packets that were put on the network, and calls that were made.
    fn amount(&self) -> (u64, u64) {
        match self {
            Self::Ran(report) => (report.packets, report.calls),
            Self::Panicked(panic) => (panic.packets, panic.calls),
        }
    }
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, scenario: Option<Scenario>, cut: &Cut) -> SeedOutcome {
    let scenario = scenario.unwrap_or_else(|| Scenario::of_seed(seed));
    run_plan(&Plan::draw(seed, scenario, cut))
}

/// Runs a plan.
#[must_use]
pub fn run_plan(plan: &Plan) -> SeedOutcome {
    PANIC.set(None);
    RUNNING.set(true);
    let outcome = run_to_the_end(plan);
    RUNNING.set(false);
    outcome
}

fn run_to_the_end(plan: &Plan) -> SeedOutcome {
    let mut world = match catch_unwind(|| World::new(plan)) {
        Ok(world) => world,
        Err(payload) => return panicked(&*payload, (Instant::ZERO, 0, 0)),
    };
    let end = catch_unwind(AssertUnwindSafe(|| world.go_on_to_the_end()));
    let progress = world.progress();
    if let Err(payload) = end {
        let outcome = panicked(&*payload, progress);
        // What a panic has left half done may well panic again.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
        return outcome;
    }
    match catch_unwind(AssertUnwindSafe(|| Box::new(world.report()))) {
        Ok(report) => SeedOutcome::Ran(report),
        Err(payload) => panicked(&*payload, progress),
    }
}

fn panicked(payload: &(dyn Any + Send), (at, packets, calls): (Instant, u64, u64)) -> SeedOutcome {
    let place = PANIC.take().unwrap_or_default();
    let what = format!("panic: {} ({place})", message(payload));
    SeedOutcome::Panicked(Box::new(Panic { violation: Violation { at, what }, packets, calls }))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("of unknown cause")
}

/// The trace hashes of seeds, mixed in the order of the seeds, whichever was run first.
#[derive(Default)]
struct Hashes {
    /// Of seeds that have finished before one in front of them, by place.
    early: BTreeMap<u64, u64>,
    /// The first place that has not finished.
    next: u64,
    mixed: u64,
}

impl Hashes {
    fn new(from: u64) -> Self {
        Self { mixed: from, ..Self::default() }
    }

    fn put(&mut self, place: u64, hash: u64) {
        self.early.insert(place, hash);
        while let Some(hash) = self.early.remove(&self.next) {
            self.mixed = mix(self.mixed).wrapping_add(hash);
            self.next += 1;
        }
    }
}

/// What came of many seeds.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Seeds that were run.
    pub seeds: u64,
    /// Packets of all of them.
    pub packets: u64,
    /// Calls of all of them.
    pub calls: u64,
    /// The first seed, in order, that failed, and how.
    pub failure: Option<(u64, Violation)>,
    /// A hash over the trace hashes of all seeds, in order: equal for equal arguments.
    pub trace_hash: u64,
    /// The largest [`RunReport::bound_used`].
    pub bound_used: u64,
    /// How often packet faults acted.
    pub faults: FaultCounts,
    /// How often happenings acted.
    pub happened: Happened,
    /// How calls ended.
    pub outcomes: Outcomes,
    /// What became of streams.
    pub streams: Streams,
}

/// Runs `count` seeds from `from` on, on so many threads, and stops soon after one has failed.
///
/// # Panics
/// If a thread cannot be started.
#[must_use]
pub fn run_seeds(
    from: u64,
    count: u64,
    scenario: Option<Scenario>,
    threads: usize,
    cut: &Cut,
    each: &(dyn Fn(u64, &SeedOutcome) + Sync),
) -> Summary {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    let sums = Mutex::new((Summary::default(), Hashes::new(from)));
    let lock = || sums.lock().unwrap_or_else(PoisonError::into_inner);
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= count {
                        return;
                    }
                    let seed = from + at;
                    let outcome = run_seed(seed, scenario, cut);
                    each(seed, &outcome);
                    let (packets, calls) = outcome.amount();
                    let (summary, hashes) = &mut *lock();
                    summary.seeds += 1;
                    summary.packets += packets;
                    summary.calls += calls;
                    if let SeedOutcome::Ran(report) = &outcome {
                        summary.faults += report.faults;
                        summary.happened += report.happened;
                        summary.outcomes += report.outcomes;
                        summary.streams += report.streams;
                        summary.bound_used = summary.bound_used.max(report.bound_used);
                        hashes.put(at, report.trace_hash);
                    }
                    if let Some(violation) = outcome.violation() {
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
