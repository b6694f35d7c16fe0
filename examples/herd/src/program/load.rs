//! The load: calls in a closed loop, whose answers are all checked. The cache may forget a value. It
//! may not return another one than was written last.

use std::cell::{Cell, RefCell};
use std::collections::HashSet;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use erpc::{CallError, Transport};
use erpc_test_tools::random::{Random, mix};
use erpc_test_tools::zipf::Zipf;

use crate::cache::Key;
use crate::client::Partitions;
use crate::proto::{
    GetReplyView, GetRequest, LocalSequencerClient, NextReply, NextRequest, PutReply,
    PutRequestView, StatsReply, StatsRequest,
};

/// The key with this number.
pub(super) fn key(number: u64) -> Key {
    (u128::from(mix(number)) << 64 | u128::from(number)).to_le_bytes()
}

/// A value of so many bytes, at least 16, of the key with this number.
pub(super) fn value(number: u64, version: u32, len: usize) -> Vec<u8> {
    let mut value = Vec::with_capacity(len + 16);
    while value.len() < len {
        value.extend_from_slice(&number.to_le_bytes());
        value.extend_from_slice(&u64::from(version).to_le_bytes());
    }
    value.truncate(len);
    value
}

/// Which operations, and on which keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Mix {
    /// Of 100 calls.
    pub(super) puts: u32,
    pub(super) is_zipf: bool,
}

impl Mix {
    /// Those of HERD's evaluation.
    pub(super) const ALL: [Self; 4] = [
        Self { puts: 5, is_zipf: false },
        Self { puts: 50, is_zipf: false },
        Self { puts: 5, is_zipf: true },
        Self { puts: 50, is_zipf: true },
    ];
}

impl fmt::Display for Mix {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let keys = if self.is_zipf { "Zipf .99" } else { "uniform" };
        f.pad(&format!("{} % PUT, {keys}", self.puts))
    }
}

/// What a run has done.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Tally {
    pub(super) elapsed: Duration,
    pub(super) reads: u64,
    pub(super) hits: u64,
    writes: u64,
}

impl Tally {
    pub(super) fn calls(&self) -> u64 {
        self.reads + self.writes
    }

    /// Calls per second.
    pub(super) fn rate(&self) -> f64 {
        self.calls() as f64 / self.elapsed.as_secs_f64()
    }
}

/// The load of one client.
pub(super) struct Load<T: Transport> {
    partitions: Partitions<T>,
    random: Random,
    zipf: Zipf,
    shared: Rc<Shared>,
}

struct Shared {
    /// Of each key, the version of the value that was written last; 0: none.
    versions: RefCell<Vec<u32>>,
    /// Keys with a call in flight. They get no other call, so that each answer is known.
    busy: RefCell<HashSet<u64>>,
    tally: Cell<Tally>,
    failure: RefCell<Option<String>>,
    len: usize,
}

impl<T: Transport + 'static> Load<T> {
    /// A load of so many keys with values of `len` bytes, at least 16. No key has a value yet.
    pub(super) fn new(partitions: Partitions<T>, keys: u64, len: usize) -> Self {
        let shared = Shared {
            versions: RefCell::new(vec![0; keys as usize]),
            busy: RefCell::default(),
            tally: Cell::default(),
            failure: RefCell::default(),
            len,
        };
        let (random, zipf) = (Random::new(1), Zipf::new(keys));
        Self { partitions, random, zipf, shared: Rc::new(shared) }
    }

    /// Writes all keys once.
    pub(super) fn fill(&mut self, window: usize, turn: impl FnMut()) -> Result<Tally, String> {
        let keys = self.shared.versions.borrow().len() as u64;
        let mut next = 0..keys;
        let call = |load: &mut Self| next.next().map(|number| load.put(number)).is_some();
        self.calls(window, turn, call)
    }

    /// Makes calls for a time.
    pub(super) fn run(
        &mut self,
        mix: Mix,
        window: usize,
        time: Duration,
        turn: impl FnMut(),
    ) -> Result<Tally, String> {
        let start = Instant::now();
        self.calls(window, turn, |load| {
            if start.elapsed() >= time {
                return false;
            }
            load.call(mix);
            true
        })
    }

    /// Keeps `window` calls in flight until `call` makes none.
    fn calls(
        &mut self,
        window: usize,
        mut turn: impl FnMut(),
        mut call: impl FnMut(&mut Self) -> bool,
    ) -> Result<Tally, String> {
        let start = Instant::now();
        self.shared.tally.take();
        let mut goes_on = true;
        while goes_on && self.shared.failure.borrow().is_none() {
            while goes_on && self.shared.busy.borrow().len() < window {
                goes_on = call(self);
            }
            turn();
        }
        while !self.shared.busy.borrow().is_empty() {
            turn();
        }
        match self.shared.failure.take() {
            Some(failure) => Err(failure),
            None => Ok(Tally { elapsed: start.elapsed(), ..self.shared.tally.get() }),
        }
    }

    fn call(&mut self, mix: Mix) {
        let keys = self.shared.versions.borrow().len() as u64;
        let is_put = self.random.percent(mix.puts);
        let number = loop {
            let number = match mix.is_zipf {
                true => self.zipf.number(&mut self.random),
                false => self.random.below(keys),
            };
            // With few keys, all may be busy.
            if !self.shared.busy.borrow().contains(&number) {
                break number;
            }
            if self.shared.busy.borrow().len() as u64 == keys {
                return;
            }
        };
        if is_put { self.put(number) } else { self.get(number) }
    }

    fn put(&self, number: u64) {
        let version = self.shared.versions.borrow()[number as usize] + 1;
        let (key, value) = (key(number), value(number, version, self.shared.len));
        let shared = self.shared.begin(number);
        let request = PutRequestView { key: &key, value: &value, ttl_ms: 0 };
        self.partitions.of(&key).put_with(request, move |reply: Result<&PutReply, CallError>| {
            shared.end(number, |tally| tally.writes += 1);
            match reply {
                Ok(_) => shared.versions.borrow_mut()[number as usize] = version,
                Err(error) => shared.fail(format!("put of key {number}: {error}")),
            }
        });
    }

    fn get(&self, number: u64) {
        let key = key(number);
        let shared = self.shared.begin(number);
        let request = GetRequest::new().with_key(key);
        self.partitions.of(&key).get_with(
            request,
            move |reply: Result<GetReplyView<'_>, CallError>| {
                let version = shared.versions.borrow()[number as usize];
                let is_hit = matches!(&reply, Ok(GetReplyView { value: Some(_) }));
                shared.end(number, |tally| {
                    tally.reads += 1;
                    tally.hits += u64::from(is_hit);
                });
                match reply {
                    Ok(GetReplyView { value: Some(got) })
                        if got == value(number, version, shared.len) => {}
                    Ok(GetReplyView { value: None }) => {}
                    other => shared.fail(format!(
                        "get of key {number}, of which version {version} was written: {other:?}"
                    )),
                }
            },
        );
    }

    /// The counters of all partitions, added up.
    pub(super) async fn counts(&self) -> Result<StatsReply, CallError> {
        let mut all = StatsReply::default();
        for client in self.partitions.all() {
            let of = client.stats(StatsRequest {}).await?;
            all.values += of.values;
            all.hits += of.hits;
            all.misses += of.misses;
            all.puts += of.puts;
            all.overwritten += of.overwritten;
            all.displaced += of.displaced;
            all.expired += of.expired;
        }
        Ok(all)
    }
}

impl Shared {
    fn begin(self: &Rc<Self>, number: u64) -> Rc<Self> {
        self.busy.borrow_mut().insert(number);
        Rc::clone(self)
    }

    fn end(&self, number: u64, count: impl FnOnce(&mut Tally)) {
        self.busy.borrow_mut().remove(&number);
        let mut tally = self.tally.get();
        count(&mut tally);
        self.tally.set(tally);
    }

    fn fail(&self, failure: String) {
        self.failure.borrow_mut().get_or_insert(failure);
    }
}

/// Takes numbers for a time, and checks that none comes twice. Returns the calls per second.
pub(super) fn numbers<T: Transport + 'static>(
    sequencer: &LocalSequencerClient<T>,
    window: usize,
    time: Duration,
    mut turn: impl FnMut(),
) -> Result<f64, String> {
    let start = Instant::now();
    let taken: Rc<RefCell<Vec<(u64, u64)>>> = Rc::default();
    let failure: Rc<RefCell<Option<String>>> = Rc::default();
    let in_flight = Rc::new(Cell::new(0));
    let mut made = 0;
    while start.elapsed() < time && failure.borrow().is_none() {
        while in_flight.get() < window {
            made += 1;
            let count = 1 + made % 3;
            let (taken, failure) = (Rc::clone(&taken), Rc::clone(&failure));
            in_flight.set(in_flight.get() + 1);
            let in_flight = Rc::clone(&in_flight);
            let request = NextRequest::new().with_count(count);
            sequencer.next_with(request, move |reply: Result<&NextReply, CallError>| {
                in_flight.set(in_flight.get() - 1);
                match reply {
                    Ok(reply) => taken.borrow_mut().push((reply.first(), count.into())),
                    Err(error) => drop(failure.borrow_mut().replace(format!("next: {error}"))),
                }
            });
        }
        turn();
    }
    let elapsed = start.elapsed();
    while in_flight.get() > 0 {
        turn();
    }
    if let Some(failure) = failure.take() {
        return Err(failure);
    }
    let mut taken = taken.take();
    taken.sort_unstable();
    match taken.windows(2).find(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
        Some(pair) => Err(format!("the sequencer has given {} twice", pair[1].0)),
        None => Ok(taken.len() as f64 / elapsed.as_secs_f64()),
    }
}
