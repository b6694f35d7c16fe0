//! The load: programs outside of the cluster, which live on when their coordinator dies.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use erpc::transport::udp::UdpRoute;
use erpc::{Channel, Endpoint, UdpConfig};
use erpc_txn::check::Outcome;
use erpc_txn::check::lists::{self, Operation};
use erpc_txn::client::{Cluster, Transaction};
use erpc_txn::coordinator::{Abort, Limits, Reason, TransactError};
use erpc_txn::workloads::Random;

use crate::member::{self, LISTS};

/// Callers of each member.
const CALLERS: u64 = 2;
/// Lists that get most transactions, and all lists, of each half second.
const POPULAR: u64 = 8;
const KEYS: u64 = 48;

/// The time that a transaction may take.
pub(crate) const DEADLINE: Duration = Duration::from_secs(1);
/// The time after which a caller must have an outcome: its member has then noticed, or the caller has,
/// that somebody is dead. Wide, for busy machines.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// What all callers learned.
pub(crate) struct Learned {
    pub(crate) history: Vec<lists::Transaction>,
    /// What must not have happened.
    pub(crate) wrong: Vec<String>,
}

/// What the thread of the callers and the test share.
#[derive(Default)]
pub(crate) struct Signals {
    pub(crate) stop: AtomicBool,
    pub(crate) commits: AtomicU64,
}

struct Callers {
    history: RefCell<Vec<lists::Transaction>>,
    wrong: RefCell<Vec<String>>,
    signals: Arc<Signals>,
    running: Cell<usize>,
    element: Cell<u64>,
    /// The clock of the history.
    began: Instant,
}

/// Runs callers of all members in the calling thread, until they are stopped.
pub(crate) fn run(
    members: &[SocketAddr],
    seed: u64,
    signals: Arc<Signals>,
) -> Result<Learned, String> {
    let endpoint = endpoint();
    let callers = Rc::new(Callers {
        history: RefCell::default(),
        wrong: RefCell::default(),
        signals: Arc::clone(&signals),
        running: Cell::new(0),
        element: Cell::new(0),
        began: Instant::now(),
    });
    for (member, &address) in (0u64..).zip(members) {
        let cluster = connect(&endpoint, address)?;
        for caller in 0..CALLERS {
            callers.running.set(callers.running.get() + 1);
            let random = Random::of_row(seed, member * CALLERS + caller);
            let (callers, cluster) = (Rc::clone(&callers), cluster.clone());
            drop(endpoint.spawn(async move { callers.call(cluster, random).await }));
        }
    }
    while !signals.stop.load(Ordering::Acquire) {
        endpoint.run_for(Duration::from_millis(5));
    }
    let end = Instant::now() + PATIENCE;
    while callers.running.get() > 0 {
        endpoint.run_for(Duration::from_millis(5));
        if Instant::now() > end {
            let running = callers.running.get();
            return Err(format!("{running} callers have no outcome after {PATIENCE:?}"));
        }
    }
    Ok(Learned { history: callers.history.take(), wrong: callers.wrong.take() })
}

/// An endpoint outside of the cluster.
pub(crate) fn endpoint() -> Endpoint {
    Endpoint::udp_with(&UdpConfig::new(), member::config()).expect("there are sockets")
}

/// A way to one member.
pub(crate) fn connect(endpoint: &Endpoint, address: SocketAddr) -> Result<Cluster, String> {
    let channel = Channel::to(endpoint, vec![UdpRoute::from(address)]).build();
    let connected = endpoint.block_on(endpoint.timeout(PATIENCE, Cluster::connect(channel)));
    let connected = connected.map_err(|_| format!("{address} does not answer"))?;
    connected.map_err(|error| format!("{address}: {error}"))
}

impl Callers {
    async fn call(&self, cluster: Cluster, mut random: Random) {
        while !self.signals.stop.load(Ordering::Acquire) {
            let outcome = self.transact(&cluster, random.word()).await;
            match outcome {
                Outcome::Committed => {
                    self.signals.commits.fetch_add(1, Ordering::Release);
                }
                // Its member may be dead.
                _ => erpc::sleep(Duration::from_millis(20)).await,
            }
            // Some pauses are so long that the coordinator tells others that transactions have ended.
            let pause = if random.percent(20) { 12_000 } else { 2000 };
            erpc::sleep(Duration::from_micros(random.below(pause))).await;
        }
        self.running.set(self.running.get() - 1);
    }

    async fn transact(&self, cluster: &Cluster, seed: u64) -> Outcome {
        let began = self.now();
        let mine = RefCell::new(Vec::new());
        let done = cluster.transact_within(Limits::new().deadline(DEADLINE), async |tx| {
            let at = self.begin();
            mine.borrow_mut().push(at);
            self.operate(&tx, at, Random::new(seed)).await
        });
        let done = done.await;
        let ended = self.now();
        let took = Duration::from_nanos(ended - began);
        if took > DEADLINE + PATIENCE {
            self.wrong.borrow_mut().push(format!("a transaction took {took:?}: {done:?}"));
        }
        let outcome = match done {
            Ok(()) => Outcome::Committed,
            Err(TransactError::Unknown { .. }) => Outcome::Unknown,
            Err(TransactError::Aborted(reason)) => {
                if !is_expected(&reason) {
                    self.wrong.borrow_mut().push(format!("aborted: {reason}"));
                }
                Outcome::Aborted
            }
            Err(other) => {
                self.wrong.borrow_mut().push(other.to_string());
                Outcome::Unknown
            }
        };
        let mut history = self.history.borrow_mut();
        let mine = mine.into_inner();
        let (last, others) = mine.split_last().expect("there was an attempt");
        for &at in others {
            history[at].outcome = Outcome::Aborted;
            history[at].ended = ended;
        }
        history[*last].outcome = outcome;
        history[*last].ended = ended;
        outcome
    }

    fn now(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Notes an attempt. Returns its place.
    fn begin(&self) -> usize {
        let mut history = self.history.borrow_mut();
        let id = history.len() as u64 + 1;
        history.push(lists::Transaction {
            id,
            began: self.now(),
            ended: u64::MAX,
            outcome: Outcome::Unknown,
            operations: Vec::new(),
        });
        history.len() - 1
    }

    /// Appends to lists, and reads lists.
    async fn operate(&self, tx: &Transaction, at: usize, mut random: Random) -> Result<(), Abort> {
        let note = |operation| self.history.borrow_mut()[at].operations.push(operation);
        // Other lists each half second, so that they stay short.
        let first = self.now() / 500_000_000 * KEYS;
        for _ in 0..random.between(1, 3) {
            let range = if random.percent(60) { POPULAR } else { KEYS };
            let key = first + random.below(range);
            if random.percent(40) {
                // Some locks are taken for nothing.
                let list = match random.percent(30) {
                    true => tx.read_for_update(LISTS, key).await?,
                    false => tx.read(LISTS, key).await?,
                };
                note(Operation::Read { key, list: elements(&list.unwrap_or_default()) });
                continue;
            }
            let element = self.element.get() + 1;
            self.element.set(element);
            // Before the append: an attempt that fails may have done it.
            note(Operation::Append { key, element });
            append(tx, key, element).await?;
        }
        Ok(())
    }
}

/// Appends an element to a list.
pub(crate) async fn append(tx: &Transaction, key: u64, element: u64) -> Result<(), Abort> {
    let element = element.to_le_bytes();
    match tx.read_for_update(LISTS, key).await? {
        Some(mut list) => {
            list.extend_from_slice(&element);
            tx.write(LISTS, key, &list)
        }
        None => tx.insert(LISTS, key, &element.to_vec()).await,
    }
}

/// Whether a transaction may be aborted for this reason while a member is dead or paused.
pub(crate) fn is_expected(reason: &Reason) -> bool {
    matches!(
        reason,
        Reason::Conflict(_)
            | Reason::Changed(_)
            | Reason::Present(_)
            | Reason::Unavailable(_)
            | Reason::NotReady(_)
            | Reason::Deadline
            | Reason::Disconnected(_)
    )
}

pub(crate) fn elements(list: &[u8]) -> Vec<u64> {
    list.as_chunks().0.iter().map(|&element| u64::from_le_bytes(element)).collect()
}
