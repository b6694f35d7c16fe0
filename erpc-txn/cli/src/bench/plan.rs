//! The cluster and the workload.

use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::coordinator::Limits;
use erpc_txn::participant::{Participant, Settings};
use erpc_txn::workloads::{Workload, load};
use indicatif::{HumanCount, ProgressBar, ProgressStyle};

use super::SettingsArgs;
use super::intervals::{Intervals, Verdict, Watch};
use crate::failure::Failure;
use crate::member;

/// The time for which the members may be meeting.
pub(super) const MEETING: Duration = Duration::from_secs(20);

/// The time that a long run needs to warm up.
pub(super) const LONGEST_WARMUP: Duration = Duration::from_secs(2);

/// The deadline of transactions. A busy machine may not run a node for seconds, which is no reason to
/// end a long run.
const PATIENCE: Duration = Duration::from_secs(10);

pub(super) struct Plan<W> {
    pub(super) args: SettingsArgs,
    pub(super) workload: Arc<W>,
    pub(super) ring: Arc<Ring>,
    /// Those of this process, by node. They have the population.
    pub(super) participants: Vec<Arc<Participant>>,
    pub(super) limits: Limits,
    /// If the run is watched for growth.
    pub(super) intervals: Option<Arc<Intervals>>,
}

impl<W: Workload> Plan<W> {
    /// Builds and loads the tables.
    pub(super) fn new(workload: W, args: &SettingsArgs) -> Result<Self, Failure> {
        let ring = Ring::new(1, (0..args.nodes).map(NodeId), usize::from(args.replicas) - 1);
        let ring = Arc::new(ring.map_err(Failure::of("no such cluster"))?);
        let settings = Settings {
            tables: workload.tables(ring.partitions()),
            threads: args.threads.get(),
            log_bytes: 4 << 20,
            log_records: 4 * args.tasks as usize + 64,
        };
        let spinner = match args.member {
            // Its output would be among that of others.
            Some(_) => ProgressBar::hidden(),
            None => ProgressBar::new_spinner().with_message("loading the tables"),
        };
        spinner.enable_steady_tick(Duration::from_millis(100));
        let began = Instant::now();
        let build = |&node: &NodeId| {
            let incarnation = member::incarnation()?;
            let participant = Participant::new(node, incarnation, ring.clone(), settings.clone())
                .map_err(Failure::of("no tables"))?;
            let rows = load(&workload, &participant).map_err(Failure::of("the tables are full"))?;
            Ok((Arc::new(participant), rows))
        };
        let built: Result<Vec<_>, Failure> = thread::scope(|scope| {
            let is_here = |node: &&NodeId| args.member.is_none_or(|member| member == node.0);
            let nodes = ring.nodes().iter().filter(is_here);
            let threads: Vec<_> = nodes.map(|node| scope.spawn(move || build(node))).collect();
            let join = |thread: thread::ScopedJoinHandle<'_, _>| {
                thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
            };
            threads.into_iter().map(join).collect()
        });
        let (participants, rows): (Vec<_>, Vec<u64>) = built?.into_iter().unzip();
        spinner.finish_and_clear();
        if args.member.is_none() {
            let (rows, secs) = (HumanCount(rows.iter().sum()), began.elapsed().as_secs_f64());
            eprintln!("loaded {rows} rows, those of backups included, in {secs:.1} s");
        }
        let limits = Limits::new().attempts(args.attempts).deadline(PATIENCE);
        let intervals = args.interval().map(|_| Arc::new(Intervals::new()));
        let (args, workload) = (args.clone(), Arc::new(workload));
        Ok(Self { args, workload, ring, participants, limits, intervals })
    }
}

/// What all lanes do now.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Stage {
    /// Transactions run, and are not counted.
    Warmup = 0,
    Measured = 1,
    /// No further transactions begin.
    Over = 2,
}

/// The stage, as all threads see it.
#[derive(Default)]
pub(super) struct Stages(AtomicU8);

impl Stages {
    pub(super) fn now(&self) -> Stage {
        // Orders nothing: each lane counts for itself.
        match self.0.load(Ordering::Relaxed) {
            0 => Stage::Warmup,
            1 => Stage::Measured,
            _ => Stage::Over,
        }
    }

    /// Goes on to a stage; never back.
    pub(super) fn advance(&self, to: Stage) {
        self.0.fetch_max(to as u8, Ordering::Relaxed);
    }
}

/// Time and progress of a run.
pub(super) struct Schedule {
    began: Instant,
    warmup: Duration,
    secs: Duration,
    bar: ProgressBar,
    watch: Option<Watch>,
    /// Why the run ends early.
    failure: Option<Failure>,
}

impl Schedule {
    /// The run of a plan begins now.
    pub(super) fn start<W>(plan: &Plan<W>) -> Self {
        let args = &plan.args;
        let mut schedule = Self::of(args);
        if let Some((intervals, length)) = plan.intervals.as_ref().zip(args.interval()) {
            let (intervals, participants) = (Arc::clone(intervals), plan.participants.clone());
            let measured = schedule.began + schedule.warmup;
            let lanes = args.lanes() as usize;
            // Rounded down, but for the error of the division.
            let count = (args.secs / length.as_secs_f64() + 1e-6) as u64;
            let watch = Watch::start(intervals, participants, lanes, measured, (length, count));
            schedule.watch = Some(watch);
            // The lines of intervals show the progress, too.
            schedule.bar = ProgressBar::hidden();
        }
        schedule
    }

    /// A run with these settings begins now.
    pub(super) fn of(args: &SettingsArgs) -> Self {
        let secs = args.secs();
        let warmup = (secs / 5).clamp(Duration::from_millis(50), LONGEST_WARMUP);
        let style = ProgressStyle::with_template("{bar:40} {msg}")
            .unwrap_or_else(|_| ProgressStyle::default_bar());
        let began = Instant::now();
        let bar = match args.member {
            Some(_) => ProgressBar::hidden(),
            None => ProgressBar::new((warmup + secs).as_millis() as u64).with_style(style),
        };
        Self { began, warmup, secs, bar, watch: None, failure: None }
    }

    /// Moves to the stage of the present time, and shows the progress.
    pub(super) fn tick(&mut self, stages: &Stages) {
        let passed = self.began.elapsed();
        let (stage, message) = match passed {
            _ if passed < self.warmup => (Stage::Warmup, "warming up"),
            _ if passed < self.warmup + self.secs => (Stage::Measured, "measuring"),
            _ => (Stage::Over, ""),
        };
        stages.advance(stage);
        if let Some(Err(failure)) = self.watch.as_mut().map(Watch::tick) {
            self.failure.get_or_insert(failure);
            stages.advance(Stage::Over);
        }
        self.bar.set_message(message);
        self.bar.set_position(passed.as_millis() as u64);
        if stages.now() == Stage::Over {
            self.bar.finish_and_clear();
        }
    }

    /// Whether some lanes have not told what they measured in an interval that is over. They do when
    /// they look, also after the run.
    pub(super) fn is_waiting(&self) -> bool {
        self.failure.is_none() && self.watch.as_ref().is_some_and(Watch::is_waiting)
    }

    /// What the run shows, if it was watched.
    pub(super) fn finish(self) -> Result<Option<Verdict>, Failure> {
        match self.failure {
            Some(failure) => Err(failure),
            None => Ok(self.watch.map(|watch| watch.verdict())),
        }
    }
}
