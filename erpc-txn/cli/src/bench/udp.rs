//! One thread per lane, over sockets on loopback.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Barrier, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

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

/// What the lanes' threads share.
struct Shared {
    stages: Arc<Stages>,
    addresses: Addresses,
    /// All lanes.
    opened: Barrier,
    /// Lanes whose node has met all others, or has failed. All serve until then: a node may have met
    /// the others before they have met it.
    met: AtomicUsize,
    /// Lanes without transactions. All serve until all others are without.
    over: AtomicUsize,
    lanes: usize,
    /// To wake the lanes' threads.
    handles: Mutex<Vec<Handle>>,
}

pub(super) fn run<W: Workload>(plan: &Plan<W>) -> Result<(Vec<Ran>, Option<Verdict>), Failure> {
    let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
    let threads = usize::from(plan.args.threads.get());
    let bind = |_: &_| Nexus::bind(loopback, threads, UdpConfig::new());
    let nexuses: Result<Vec<_>, _> = plan.participants.iter().map(bind).collect();
    let nexuses = nexuses.map_err(Failure::of("no sockets"))?;
    let addresses = plan.participants.iter().zip(&nexuses);
    let lanes = plan.args.lanes() as usize;
    let shared = Shared {
        stages: Arc::default(),
        addresses: addresses.map(|(of, nexus)| (of.node(), nexus.local_addr())).collect(),
        opened: Barrier::new(lanes),
        met: AtomicUsize::new(0),
        over: AtomicUsize::new(0),
        lanes,
        handles: Mutex::default(),
    };
    let seats = nexuses.into_iter().zip(&plan.participants).flat_map(|(nexus, participant)| {
        let seats = nexus.into_seats().into_iter().zip(0..);
        seats.map(move |(seat, thread)| (seat, participant, thread))
    });
    thread::scope(|scope| {
        let shared = &shared;
        let run = |(number, (seat, participant, thread)): (usize, (Seat, _, u16))| {
            scope.spawn(move || lane(seat, participant, thread, number as u64, plan, shared))
        };
        let threads: Vec<_> = seats.enumerate().map(run).collect();
        while shared.met.load(Ordering::Acquire) < lanes {
            thread::sleep(TICK);
        }
        let mut schedule = Schedule::start(plan);
        while shared.stages.now() != Stage::Over {
            thread::sleep(TICK);
            schedule.tick(&shared.stages);
        }
        shared.wake();
        let join = |thread: thread::ScopedJoinHandle<'_, _>| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("a thread panicked")))
        };
        let lanes: Result<_, _> = threads.into_iter().map(join).collect();
        Ok((lanes?, schedule.finish()?))
    })
}

/// A lane that has not ended. The others wait for it, also if it panics.
struct Running<'s>(&'s Shared);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.stages.advance(Stage::Over);
        if self.0.over.fetch_add(1, Ordering::AcqRel) + 1 == self.0.lanes {
            self.0.wake();
        }
    }
}

/// The thread of a lane. The others do not wait for one that fails.
fn lane<W: Workload>(
    seat: Seat,
    participant: &Arc<Participant>,
    thread: u16,
    number: u64,
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
    shared.wake();
    let (endpoint, node) = met?;
    endpoint.run_until(|| shared.met.load(Ordering::Acquire) == shared.lanes);
    let mut lane = Lane::start(&endpoint, node, number, plan, &shared.stages);
    endpoint.run_until(|| {
        lane.look();
        if running.is_some() && lane.is_over() {
            running = None;
        }
        shared.over.load(Ordering::Acquire) == shared.lanes
    });
    Ok(lane.finish())
}

impl Shared {
    fn wake(&self) {
        let handles = self.handles.lock().unwrap_or_else(PoisonError::into_inner);
        handles.iter().for_each(Handle::wake);
    }
}
