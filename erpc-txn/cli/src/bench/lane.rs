//! One thread of one node: its tasks, and what they did.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant};

use erpc::{Endpoint, Transport};
use erpc_txn::check;
use erpc_txn::cluster::{NodeId, Placement};
use erpc_txn::coordinator::{Counts, Limits, Node, Recorder};
use erpc_txn::workloads::{Outcome, Random, Workload, attempt};

use super::intervals::Intervals;
use super::plan::{Plan, Stage, Stages};
use super::tally::Tally;
use crate::machine;

/// A task lets the others run after so many transactions, in case that none of them has to wait. Not
/// less than the default burst, or other tasks would use the caches between prefetch and read.
const TURN: u32 = 8;

pub(super) struct Lane<W, T: Transport> {
    pub(super) node: Node<T>,
    state: Rc<State<W>>,
    /// What the lane has seen last, and its counters at that time.
    seen: Stage,
    interval: u64,
    start: Mark,
    end: Mark,
}

/// What a lane's tasks share.
struct State<W> {
    workload: Arc<W>,
    placement: Arc<dyn Placement>,
    stages: Arc<Stages>,
    tally: RefCell<Tally>,
    running: Cell<u32>,
    /// Transactions of a task that are chosen together.
    burst: usize,
    recorder: Option<(Recorder, usize)>,
    intervals: Option<Arc<Intervals>>,
}

/// A moment of a lane.
#[derive(Clone, Copy)]
struct Mark {
    time: Instant,
    cpu: Duration,
    counts: Counts,
}

/// What one lane did, for other threads.
pub(super) struct Ran {
    pub(super) tally: Tally,
    /// Of the measured time.
    pub(super) counts: Counts,
    pub(super) time: Duration,
    /// CPU time of the lane's thread. With `mem`, lanes share one.
    pub(super) cpu: Duration,
    /// All attempts, if they were recorded.
    pub(super) recorded: Vec<check::Transaction>,
}

impl<W: Workload, T: Transport> Lane<W, T> {
    /// Starts the tasks. The members must have met.
    pub(super) fn start(
        endpoint: &Endpoint<T>,
        node: Node<T>,
        lane: u64,
        plan: &Plan<W>,
        stages: &Arc<Stages>,
    ) -> Self {
        let recorder = plan.args.check.then(|| {
            let recorder = Recorder::new();
            node.record(&recorder);
            (recorder, (plan.args.check_limit.get() / plan.args.lanes()) as usize)
        });
        let state = Rc::new(State {
            workload: Arc::clone(&plan.workload),
            placement: plan.ring.clone(),
            stages: Arc::clone(stages),
            tally: RefCell::new(Tally::new(W::KINDS.len())),
            running: Cell::new(plan.args.tasks),
            burst: plan.args.burst(),
            recorder,
            intervals: plan.intervals.clone(),
        });
        for task in 0..plan.args.tasks {
            let number = lane << 32 | u64::from(task);
            let random = Random::of_row(plan.args.seed, number);
            let (node, state, limits) = (node.clone(), Rc::clone(&state), plan.limits);
            drop(endpoint.spawn(async move { state.work(node, limits, random).await }));
        }
        let mark = Mark::now(&node);
        Self { node, state, seen: Stage::Warmup, interval: 0, start: mark, end: mark }
    }

    /// Takes notice of the stage. To be called often, in the lane's thread.
    pub(super) fn look(&mut self) {
        if let Some(intervals) = &self.state.intervals
            && intervals.now() != self.interval
        {
            intervals.add(self.interval, self.state.tally.borrow_mut().take_recent());
            self.interval = intervals.now();
        }
        let stage = self.state.stages.now();
        if stage == self.seen {
            return;
        }
        let mark = Mark::now(&self.node);
        if self.seen == Stage::Warmup {
            self.start = mark;
        }
        self.end = mark;
        self.seen = stage;
    }

    /// Whether all transactions have ended after the measurement.
    pub(super) fn is_over(&self) -> bool {
        self.seen == Stage::Over && self.state.running.get() == 0 && self.node.active() == 0
    }

    pub(super) fn finish(self) -> Ran {
        let counts = |mark: Mark| mark.counts;
        let recorder = self.state.recorder.as_ref();
        Ran {
            tally: self.state.tally.replace(Tally::new(0)),
            counts: difference(counts(self.end), counts(self.start)),
            time: self.end.time - self.start.time,
            cpu: self.end.cpu - self.start.cpu,
            recorded: recorder.map_or(Vec::new(), |(recorder, _)| recorder.take()),
        }
    }
}

impl<W: Workload> State<W> {
    /// A task: transactions, one after the other.
    async fn work<T: Transport>(&self, node: Node<T>, limits: Limits, mut random: Random) {
        let me = node.participant().node();
        let placement = &*self.placement;
        let mut done = 0u32;
        let mut choices = VecDeque::with_capacity(self.burst);
        let mut places = Vec::new();
        // A transaction begins when the one before has ended: one look at the clock for both. It takes
        // about 45 ns, and a local transaction 350.
        let mut began = Instant::now();
        while self.stages.now() != Stage::Over {
            let Some(choice) = choices.pop_front() else {
                choices
                    .extend((0..self.burst).map(|_| self.workload.choose(placement, &mut random)));
                if self.burst > 1 {
                    places.clear();
                    for choice in &choices {
                        self.workload.places(choice, |place| places.push(place));
                    }
                    node.prefetch(&places);
                }
                continue;
            };
            let is_measured = self.stages.now() == Stage::Measured;
            let outcome = attempt(&node, &*self.workload, &choice, limits).await;
            let ended = Instant::now();
            let took = ended - std::mem::replace(&mut began, ended);
            let goes_on = self.count(me, &choice, &outcome, took, is_measured);
            let is_full = |(recorder, limit): &(Recorder, usize)| recorder.len() >= *limit;
            if !goes_on || self.recorder.as_ref().is_some_and(is_full) {
                self.stages.advance(Stage::Over);
            }
            done += 1;
            if done.is_multiple_of(TURN) {
                yield_now().await;
                began = Instant::now();
            }
        }
        self.running.set(self.running.get() - 1);
    }
}

impl<W: Workload> State<W> {
    /// Counts a transaction of node `me`. Returns whether the lane may go on.
    fn count(
        &self,
        me: NodeId,
        choice: &W::Choice,
        outcome: &Outcome,
        took: Duration,
        is_measured: bool,
    ) -> bool {
        let mut tally = self.tally.borrow_mut();
        if is_measured {
            let placement = &*self.placement;
            self.workload.places(choice, |place| {
                tally.keys += 1;
                let primary = placement.replicas(placement.partition_of(place.key)).first();
                tally.local_keys += u64::from(primary == Some(&me));
            });
        }
        tally.add(W::kind(choice), outcome, took, is_measured)
    }
}

impl Mark {
    fn now<T: Transport>(node: &Node<T>) -> Self {
        Self { time: Instant::now(), cpu: machine::cpu_time(), counts: node.counts() }
    }
}

fn difference(end: Counts, start: Counts) -> Counts {
    let mut counts = end;
    counts.attempts -= start.attempts;
    counts.commits -= start.commits;
    counts.aborts -= start.aborts;
    counts.unknown -= start.unknown;
    counts.requests -= start.requests;
    counts.messages -= start.messages;
    counts.freeing_messages -= start.freeing_messages;
    counts
}

/// Lets the other tasks run.
async fn yield_now() {
    let mut has_yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut has_yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}
