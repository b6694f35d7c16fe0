//! The load: calls in a closed loop, whose answers are all checked.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use erpc::{CallError, Transport};
use erpc_test_tools::random::Random;
use erpc_test_tools::zipf::Zipf;
use hdrhistogram::Histogram;

use crate::data::{Order, is_value, key, value};
use crate::proto::{
    GetReply, GetRequest, LocalIndexClient, PutReply, PutRequest, ScanReply, ScanRequest,
};

/// Keys of a scan of the thesis.
const SCAN: u32 = 128;

/// Which operations, and on which keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub(crate) enum Mix {
    /// Only reads, of uniform keys.
    Get,
    /// 99 % reads, 1 % scans that sum up 128 values, of uniform keys (Kalia's thesis, 6.6.2).
    Thesis,
    /// YCSB A: 50 % reads, 50 % updates.
    A,
    /// YCSB B: 95 % reads, 5 % updates.
    B,
    /// YCSB C: reads.
    C,
    /// YCSB D: 95 % reads of the latest keys, 5 % insertions.
    D,
    /// YCSB E: 95 % scans of 1 to 100 keys, 5 % insertions.
    E,
    /// YCSB F: 50 % reads, 50 % reads with an update of the same key.
    F,
}

enum Operation {
    Get(u64),
    Update(u64),
    Insert,
    Scan { from: u64, count: u32 },
    ReadModifyWrite(u64),
}

/// What a run has measured.
#[derive(Debug)]
pub(crate) struct Tally {
    pub(crate) elapsed: Duration,
    /// Latencies in ns.
    pub(crate) gets: Histogram<u64>,
    pub(crate) scans: Histogram<u64>,
    pub(crate) writes: Histogram<u64>,
}

impl Tally {
    fn new() -> Self {
        let histogram = || Histogram::new_with_max(60_000_000_000, 3).expect("valid bounds");
        Self { elapsed: Duration::ZERO, gets: histogram(), scans: histogram(), writes: histogram() }
    }

    pub(crate) fn calls(&self) -> u64 {
        self.gets.len() + self.scans.len() + self.writes.len()
    }
}

/// A client's calls.
pub(crate) struct Load<T: Transport> {
    clients: Vec<LocalIndexClient<T>>,
    shared: Rc<Shared>,
    mix: Mix,
    keys: u64,
    random: Random,
    zipf: Zipf,
    /// Distinguishes the keys that this load inserts from those of other loads.
    inserts_from: u64,
    next_client: usize,
}

/// Scans that a load remembers: 6 MB.
const MOST_SCANS: usize = 1 << 18;

struct Shared {
    tally: RefCell<Tally>,
    in_flight: Cell<usize>,
    failure: RefCell<Option<String>>,
    /// Answers to scans, if no call of the load writes.
    order: Option<Order>,
    /// Scans to compare with `order` when the load has ended: a comparison misses the caches, and
    /// would delay the calls in flight. Those beyond [`MOST_SCANS`] are compared at once.
    scanned: RefCell<Vec<Scanned>>,
    inserted: Cell<u64>,
}

/// A scan that was answered.
struct Scanned {
    from: u64,
    asked: u32,
    count: u32,
    sum: u64,
}

impl<T: Transport + 'static> Load<T> {
    /// A load on an index that began with `keys` keys. `seed` differs between loads.
    pub(crate) fn new(clients: Vec<LocalIndexClient<T>>, mix: Mix, keys: u64, seed: u64) -> Self {
        let order = (mix == Mix::Thesis).then(|| Order::new(keys));
        let room = if order.is_some() { MOST_SCANS } else { 0 };
        let shared = Shared {
            tally: RefCell::new(Tally::new()),
            in_flight: Cell::new(0),
            failure: RefCell::default(),
            order,
            scanned: RefCell::new(Vec::with_capacity(room)),
            inserted: Cell::new(0),
        };
        Self {
            clients,
            shared: Rc::new(shared),
            mix,
            keys,
            random: Random::new(seed),
            zipf: Zipf::new(keys),
            inserts_from: keys + (seed << 32),
            next_client: 0,
        }
    }

    /// Keeps `window` calls in flight for this time. `turn` runs the endpoints once.
    ///
    /// # Errors
    ///
    /// A call failed, or its answer was wrong.
    pub(crate) fn run(
        &mut self,
        window: usize,
        time: Duration,
        mut turn: impl FnMut(),
    ) -> Result<Tally, String> {
        let start = Instant::now();
        *self.shared.tally.borrow_mut() = Tally::new();
        while start.elapsed() < time && self.shared.failure.borrow().is_none() {
            while self.shared.in_flight.get() < window {
                self.call();
            }
            turn();
        }
        let elapsed = start.elapsed();
        while self.shared.in_flight.get() > 0 {
            turn();
        }
        self.shared.check_scans();
        if let Some(failure) = self.shared.failure.take() {
            return Err(failure);
        }
        let mut tally = self.shared.tally.replace(Tally::new());
        tally.elapsed = elapsed;
        Ok(tally)
    }

    fn call(&mut self) {
        self.next_client = (self.next_client + 1) % self.clients.len();
        match self.choose() {
            Operation::Get(number) => self.get(number, |_, _| ()),
            Operation::Update(number) => put(self.client(), &self.shared, number, true),
            Operation::Insert => {
                let inserted = self.shared.inserted.get();
                self.shared.inserted.set(inserted + 1);
                put(self.client(), &self.shared, self.inserts_from + inserted, false);
            }
            Operation::Scan { from, count } => self.scan(from, count),
            Operation::ReadModifyWrite(number) => {
                self.get(number, move |client, shared| put(client, shared, number, true));
            }
        }
    }

    fn choose(&mut self) -> Operation {
        let percent = self.random.below(100);
        match self.mix {
            Mix::Get => Operation::Get(self.random.below(self.keys)),
            Mix::Thesis if percent < 1 => {
                Operation::Scan { from: self.random.below(self.keys), count: SCAN }
            }
            Mix::Thesis => Operation::Get(self.random.below(self.keys)),
            Mix::A if percent < 50 => Operation::Update(self.zipf.number(&mut self.random)),
            Mix::B if percent < 5 => Operation::Update(self.zipf.number(&mut self.random)),
            Mix::D | Mix::E if percent < 5 => Operation::Insert,
            Mix::D => Operation::Get(self.keys - 1 - self.zipf.rank(&mut self.random)),
            Mix::E => {
                let from = self.zipf.number(&mut self.random);
                Operation::Scan { from, count: 1 + self.random.below(100) as u32 }
            }
            Mix::F if percent < 50 => {
                Operation::ReadModifyWrite(self.zipf.number(&mut self.random))
            }
            Mix::A | Mix::B | Mix::C | Mix::F => Operation::Get(self.zipf.number(&mut self.random)),
        }
    }

    fn client(&self) -> &LocalIndexClient<T> {
        &self.clients[self.next_client]
    }

    fn get(&self, number: u64, then: impl FnOnce(&LocalIndexClient<T>, &Rc<Shared>) + 'static) {
        let (client, shared) = (self.client().clone(), Rc::clone(&self.shared));
        let start = shared.begin();
        let request = GetRequest { key: key(number).to_vec() };
        self.client().get_with(request, move |reply: Result<GetReply, CallError>| {
            shared.end(start, |tally| &mut tally.gets);
            match reply {
                Ok(reply) if is_value(number, reply.value) => then(&client, &shared),
                other => shared.fail(format!("get of key {number}: {other:?}")),
            }
        });
    }

    fn scan(&self, number: u64, count: u32) {
        let shared = Rc::clone(&self.shared);
        let start = shared.begin();
        let mut request = ScanRequest { from: key(number).to_vec(), count, ..Default::default() };
        request.entries = self.mix == Mix::E;
        self.client().scan_with(request, move |reply: Result<ScanReply, CallError>| {
            shared.end(start, |tally| &mut tally.scans);
            let is_right = reply.as_ref().is_ok_and(|reply| {
                if shared.order.is_some() {
                    let &ScanReply { count: returned, sum, .. } = reply;
                    let scanned = Scanned { from: number, asked: count, count: returned, sum };
                    return shared.note(scanned);
                }
                // Others insert. But the first key is there, and keys ascend.
                let entries = &reply.entries;
                entries.len() == reply.count as usize
                    && (1..=count).contains(&reply.count)
                    && entries[0].key == key(number)
                    && entries.is_sorted_by(|a, b| a.key < b.key)
            });
            if !is_right {
                shared.fail(format!("scan of {count} from key {number}: {reply:?}"));
            }
        });
    }
}

/// Writes the key with this number, which exists or not.
fn put<T: Transport + 'static>(
    client: &LocalIndexClient<T>,
    shared: &Rc<Shared>,
    number: u64,
    exists: bool,
) {
    let start = shared.begin();
    let shared = Rc::clone(shared);
    let request = PutRequest { key: key(number).to_vec(), value: value(number, number as u32 ^ 1) };
    client.put_with(request, move |reply: Result<PutReply, CallError>| {
        shared.end(start, |tally| &mut tally.writes);
        match reply {
            Ok(reply) if reply.replaced == exists => {}
            other => shared.fail(format!("put of key {number}: {other:?}")),
        }
    });
}

impl Shared {
    fn begin(&self) -> Instant {
        self.in_flight.set(self.in_flight.get() + 1);
        Instant::now()
    }

    fn end(&self, start: Instant, of: fn(&mut Tally) -> &mut Histogram<u64>) {
        self.in_flight.set(self.in_flight.get() - 1);
        let latency = start.elapsed().as_nanos().try_into().unwrap_or(u64::MAX);
        of(&mut self.tally.borrow_mut()).saturating_record(latency);
    }

    /// Remembers an answer, or compares it. Returns whether it may be right.
    fn note(&self, scanned: Scanned) -> bool {
        let mut all = self.scanned.borrow_mut();
        if all.len() < MOST_SCANS {
            all.push(scanned);
            return true;
        }
        self.is_right(&scanned)
    }

    fn is_right(&self, scanned: &Scanned) -> bool {
        let &Scanned { from, asked, count, sum } = scanned;
        let expected = self.order.as_ref().map(|order| order.scan(from, asked as usize));
        expected.is_none_or(|expected| expected == (count, sum))
    }

    fn check_scans(&self) {
        let wrong = self.scanned.take().into_iter().find(|scanned| !self.is_right(scanned));
        if let (Some(Scanned { from, asked, count, sum }), Some(order)) = (wrong, &self.order) {
            let expected = order.scan(from, asked as usize);
            self.fail(format!(
                "scan of {asked} from key {from}: {count} keys with the sum {sum}, and not \
                 {expected:?}"
            ));
        }
    }

    fn fail(&self, failure: String) {
        self.failure.borrow_mut().get_or_insert(failure);
    }
}
