//! Runs many seeds on several threads.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use erpc_core::transport::fault::FaultCounts;
use erpc_test_tools::random::mix;

use crate::Scenario;
use crate::oracle::{Outcomes, Streams, Violation};
use crate::plan::{Cut, Plan};
use crate::world::{Happened, Progress, RunReport, World};

thread_local! {
    /// Whether a run is in progress on this thread.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
    /// The location of the last panic of a run on this thread.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Keeps panics of runs from being printed: they are violations, and shrinking causes many. Other
/// panics are still printed. `RUST_BACKTRACE=1` adds a backtrace to a run's panic.
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

/// The outcome of a seed.
#[derive(Clone, Debug)]
pub enum SeedOutcome {
    /// The run reached its end or a violation.
    Ran(Box<RunReport>),
    /// The run panicked, usually in an assertion of the code under test.
    Panicked(Box<Panic>),
}

/// A run that ended in a panic.
#[derive(Clone, Debug)]
pub struct Panic {
    /// The panic's message, its location, and the world's time.
    pub violation: Violation,
    /// Packets put on the network before the panic.
    pub packets: u64,
    /// Calls made before the panic.
    pub calls: u64,
}

impl fmt::Display for Panic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.violation.fmt(f)
    }
}

impl SeedOutcome {
    /// The rule that was violated.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        match self {
            Self::Ran(report) => report.violation.clone(),
            Self::Panicked(panic) => Some(panic.violation.clone()),
        }
    }

    /// Packets put on the network, and calls made.
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

/// Runs a plan. A panic becomes an outcome.
#[must_use]
pub fn run_plan(plan: &Plan) -> SeedOutcome {
    silently(|| run_to_the_end(plan))
}

/// Calls `run`, whose panics are not printed.
pub(crate) fn silently<R>(run: impl FnOnce() -> R) -> R {
    PANIC.set(None);
    RUNNING.set(true);
    let result = run();
    RUNNING.set(false);
    result
}

/// A caught panic in words, with its location.
pub(crate) fn in_words(payload: &(dyn Any + Send)) -> String {
    let line = PANIC.take().unwrap_or_default();
    format!("panic: {} ({line})", message(payload))
}

fn run_to_the_end(plan: &Plan) -> SeedOutcome {
    let mut world = match catch_unwind(|| World::new(plan)) {
        Ok(world) => world,
        Err(payload) => return panicked(&*payload, Progress::default()),
    };
    let end = catch_unwind(AssertUnwindSafe(|| world.go_on_to_the_end()));
    let progress = world.progress();
    if let Err(payload) = end {
        let outcome = panicked(&*payload, progress);
        // After a panic the world may be inconsistent, so its drop may panic too.
        let _ = catch_unwind(AssertUnwindSafe(|| drop(world)));
        return outcome;
    }
    match catch_unwind(AssertUnwindSafe(|| Box::new(world.report()))) {
        Ok(report) => SeedOutcome::Ran(report),
        Err(payload) => panicked(&*payload, progress),
    }
}

fn panicked(payload: &(dyn Any + Send), progress: Progress) -> SeedOutcome {
    let what = in_words(payload);
    let Progress { at, place, packets, calls } = progress;
    let violation = Violation { at, place, what };
    SeedOutcome::Panicked(Box::new(Panic { violation, packets, calls }))
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("of unknown cause")
}

/// The trace hashes of seeds, mixed in the order of the seeds. The order in which runs finish does
/// not matter.
#[derive(Default)]
pub(crate) struct Hashes {
    /// Hashes of seeds that finished before an earlier seed, by place. A seed's place is its
    /// distance from the first seed.
    early: BTreeMap<u64, u64>,
    /// The first place whose seed has not finished.
    next: u64,
    pub(crate) mixed: u64,
}

impl Hashes {
    pub(crate) fn new(from: u64) -> Self {
        Self { mixed: from, ..Self::default() }
    }

    pub(crate) fn put(&mut self, place: u64, hash: u64) {
        self.early.insert(place, hash);
        while let Some(hash) = self.early.remove(&self.next) {
            self.mixed = mix(self.mixed).wrapping_add(hash);
            self.next += 1;
        }
    }
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
    /// The lowest failed seed, and its violation.
    pub failure: Option<(u64, Violation)>,
    /// A hash over the trace hashes of all seeds, in order. Equal arguments give equal hashes.
    pub trace_hash: u64,
    /// The largest [`RunReport::bound_used`].
    pub bound_used: u64,
    /// How often packet faults acted.
    pub faults: FaultCounts,
    /// How often events acted.
    pub happened: Happened,
    /// How calls ended.
    pub outcomes: Outcomes,
    /// What became of streams.
    pub streams: Streams,
}

/// Runs `count` seeds, the first one `from`, on `threads` threads. Stops soon after a seed has
/// failed. Calls `each` with every outcome, from any thread.
///
/// # Panics
/// Panics if a thread cannot be started.
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
