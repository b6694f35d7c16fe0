//! Many seeds, on some threads.

use std::any::Any;
use std::backtrace::{Backtrace, BacktraceStatus};
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use erpc_core::time::Instant;
use erpc_core::transport::fault::FaultCounts;

use crate::oracle::{Outcomes, Violation};
use crate::plan::{Cut, Plan};
use crate::world::{Happened, Report, World};
use crate::{Scenario, pattern};

thread_local! {
    /// Where the last panic of this thread was.
    /// A run is under way on this thread.
    static RUNNING: Cell<bool> = const { Cell::new(false) };
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
pub enum Outcome {
    /// The run came to its end, or to a violation.
    Ran(Box<Report>),
    /// An assertion of the code under test failed: what it said, and where.
    Panicked(String),
}

impl Outcome {
    /// The rule that did not hold.
    #[must_use]
    pub fn violation(&self) -> Option<Violation> {
        match self {
            Self::Ran(report) => report.violation.clone(),
            Self::Panicked(what) => Some(Violation { at: Instant::ZERO, what: what.clone() }),
        }
    }
}

/// Runs one seed.
#[must_use]
pub fn run_seed(seed: u64, scenario: Option<Scenario>, cut: &Cut) -> Outcome {
    let scenario = scenario.unwrap_or_else(|| Scenario::of_seed(seed));
    run_plan(&Plan::draw(seed, scenario, cut))
}

/// Runs a plan.
#[must_use]
pub fn run_plan(plan: &Plan) -> Outcome {
    PANIC.set(None);
    RUNNING.set(true);
    let outcome = catch_unwind(AssertUnwindSafe(|| World::new(plan).run()));
    RUNNING.set(false);
    match outcome {
        Ok(report) => Outcome::Ran(Box::new(report)),
        Err(payload) => {
            let place = PANIC.take().unwrap_or_default();
            Outcome::Panicked(format!("panic: {} ({place})", message(&*payload)))
        }
    }
}

fn message(payload: &(dyn Any + Send)) -> &str {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| payload.downcast_ref::<&str>().copied()).unwrap_or("of unknown cause")
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
    /// The largest [`Report::bound_used`].
    pub bound_used: u64,
    /// How often packet faults acted.
    pub faults: FaultCounts,
    /// How often happenings acted.
    pub happened: Happened,
    /// How calls ended.
    pub outcomes: Outcomes,
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
    each: &(dyn Fn(u64, &Outcome) + Sync),
) -> Summary {
    let (next, stop) = (AtomicU64::new(0), AtomicBool::new(false));
    // Hashes of seeds that have finished before one in front of them; and the first that has not.
    let hashes = Mutex::new((BTreeMap::new(), 0, from));
    let summary = Mutex::new(Summary::default());
    let lock = || summary.lock().unwrap_or_else(PoisonError::into_inner);
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
                    let mut summary = lock();
                    summary.seeds += 1;
                    if let Outcome::Ran(report) = &outcome {
                        summary.packets += report.packets;
                        summary.calls += report.calls;
                        summary.faults += report.faults;
                        summary.happened += report.happened;
                        summary.outcomes += report.outcomes;
                        summary.bound_used = summary.bound_used.max(report.bound_used);
                        let mut guard = hashes.lock().unwrap_or_else(PoisonError::into_inner);
                        let (early, next, hash) = &mut *guard;
                        early.insert(at, report.trace_hash);
                        while let Some(of) = early.remove(next) {
                            *hash = pattern::mix(*hash).wrapping_add(of);
                            *next += 1;
                        }
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
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.trace_hash = hashes.into_inner().unwrap_or_else(PoisonError::into_inner).2;
    summary
}
