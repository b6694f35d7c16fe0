//! The nodes of this process, one thread per lane, over sockets on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use erpc::{Handle, IdlePolicy, Nexus, Seat, UdpConfig};
use erpc_txn::participant::Participant;
use erpc_txn::workloads::Workload;

use super::intervals::Verdict;
use super::lane::{Lane, Ran};
use super::mem::endpoint_config;
use super::plan::{MEETING, Plan, Schedule, Stage, Stages};
use crate::failure::Failure;
use crate::member::{self, Addresses};

/// How often the main thread looks at the clock.
const TICK: Duration = Duration::from_millis(10);

/// The time in which the lanes tell what they measured in the last interval.
const LAST_INTERVAL: Duration = Duration::from_secs(10);

/// The nodes that this process does not run.
pub(super) trait Others {
    /// Adds the addresses of the other nodes to those of this process.
    fn exchange(&mut self, own: Addresses) -> Result<Addresses, Failure>;

    /// Waits until the other nodes have come as far as those of this process.
    fn wait(&mut self, until: Point) -> Result<(), Failure>;
}

/// How far the nodes of a process have come.
#[derive(Clone, Copy)]
pub(super) enum Point {
    /// Each lane's node has met all others, or has failed. All serve until then: a node may have met
    /// the others before they have met it.
    Met,
    /// No lane has transactions. All serve until all others are without.
    Over,
}

/// This process runs all nodes.
pub(super) struct NoOthers;

impl Others for NoOthers {
    fn exchange(&mut self, own: Addresses) -> Result<Addresses, Failure> {
        Ok(own)
    }

    fn wait(&mut self, _: Point) -> Result<(), Failure> {
        Ok(())
    }
}

/// What the lanes' threads share.
struct Shared {
    stages: Arc<Stages>,
    addresses: Addresses,
    /// All lanes.
    opened: Barrier,
    /// Lanes that have come to [`Point::Met`] and [`Point::Over`].
    met: AtomicUsize,
    over: AtomicUsize,
    /// Whether all nodes have, those of other processes included.
    have_met: AtomicBool,
    are_over: AtomicBool,
    lanes: usize,
    /// To wake the lanes' threads.
    handles: Mutex<Vec<Handle>>,
}

pub(super) fn run<W: Workload>(
    plan: &Plan<W>,
    others: &mut impl Others,
) -> Result<(Vec<Ran>, Option<Verdict>), Failure> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let threads = usize::from(plan.args.threads.get());
    let bind = |_: &_| Nexus::bind(loopback, threads, UdpConfig::new());
    let nexuses: Result<Vec<_>, _> = plan.participants.iter().map(bind).collect();
    let nexuses = nexuses.map_err(Failure::of("no sockets"))?;
    let own = plan.participants.iter().zip(&nexuses);
    let own = own.map(|(of, nexus)| (of.node(), nexus.local_addr())).collect();
    let lanes = threads * plan.participants.len();
    let shared = Shared {
        stages: Arc::default(),
        addresses: others.exchange(own)?,
        opened: Barrier::new(lanes),
        met: AtomicUsize::new(0),
        over: AtomicUsize::new(0),
        have_met: AtomicBool::new(false),
        are_over: AtomicBool::new(false),
        lanes,
        handles: Mutex::default(),
    };
    let seats = nexuses.into_iter().zip(&plan.participants).flat_map(|(nexus, participant)| {
        let seats = nexus.into_seats().into_iter().zip(0..);
        seats.map(move |(seat, thread)| (seat, participant, thread))
    });
    thread::scope(|scope| {
        let shared = &shared;
        let run = |(seat, participant, thread): (Seat, _, u16)| {
            scope.spawn(move || lane(seat, participant, thread, plan, shared))
        };
        let threads: Vec<_> = seats.map(run).collect();
        let verdict = conduct(plan, shared, others);
        // The lanes also end if another process has failed.
        shared.stages.advance(Stage::Over);
        shared.have_met.store(true, Ordering::Release);
        shared.are_over.store(true, Ordering::Release);
        shared.wake();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
        };
        let lanes: Result<_, _> = threads.into_iter().map(join).collect();
        Ok((lanes?, verdict?))
    })
}

/// Takes the lanes through the stages of the run.
fn conduct<W: Workload>(
    plan: &Plan<W>,
    shared: &Shared,
    others: &mut impl Others,
) -> Result<Option<Verdict>, Failure> {
    shared.wait_for(&shared.met);
    others.wait(Point::Met)?;
    shared.have_met.store(true, Ordering::Release);
    shared.wake();
    let mut schedule = Schedule::start(plan);
    while shared.stages.now() != Stage::Over {
        thread::sleep(TICK);
        schedule.tick(&shared.stages);
    }
    shared.wake();
    shared.wait_for(&shared.over);
    // A lane that has failed tells nothing.
    let over = Instant::now();
    while schedule.is_waiting() && over.elapsed() < LAST_INTERVAL {
        shared.wake();
        thread::sleep(TICK);
        schedule.tick(&shared.stages);
    }
    others.wait(Point::Over)?;
    schedule.finish()
}

/// A lane that has not ended. The others wait for it, also if it panics.
struct Running<'s>(&'s Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.stages.advance(Stage::Over);
        self.0.over.fetch_add(1, Ordering::AcqRel);
    }
}

/// The thread of a lane. The others do not wait for one that fails.
fn lane<W: Workload>(
    seat: Seat,
    participant: &Arc<Participant>,
    thread: u16,
    plan: &Plan<W>,
    shared: &Shared,
) -> Result<Ran, Failure> {
    let mut running = Some(Running(shared));
    let opened = member::open(seat, endpoint_config(), participant, thread, &shared.addresses);
    shared.opened.wait();
    let met = opened.and_then(|(endpoint, node)| {
        // There may be more threads than cores.
        endpoint.set_idle_policy(IdlePolicy::YieldThenSleep { spin: IdlePolicy::DEFAULT_SPIN });
        let handle = endpoint.handle();
        shared.handles.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
        let ready = endpoint.block_on(endpoint.timeout(MEETING, node.ready()));
        let ready = ready.map_err(|_| Failure::new("the nodes do not meet"))?;
        ready.map_err(Failure::of("the nodes do not meet"))?;
        Ok((endpoint, node))
    });
    shared.met.fetch_add(1, Ordering::AcqRel);
    let (endpoint, node) = met?;
    endpoint.run_until(|| shared.have_met.load(Ordering::Acquire));
    let number = u64::from(participant.node().0) * u64::from(plan.args.threads.get());
    let number = number + u64::from(thread);
    let mut lane = Lane::start(&endpoint, node, number, plan, &shared.stages);
    endpoint.run_until(|| {
        lane.look();
        if running.is_some() && lane.is_over() {
            running = None;
        }
        shared.are_over.load(Ordering::Acquire)
    });
    Ok(lane.finish())
}

impl Shared {
    /// Waits until all lanes of this process have come to a point.
    fn wait_for(&self, count: &AtomicUsize) {
        while count.load(Ordering::Acquire) < self.lanes {
            thread::sleep(TICK);
        }
    }

    fn wake(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().for_each(Handle::wake);
    }
}
