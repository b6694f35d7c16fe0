//! Histories of a store that runs one transaction after the other.

use std::collections::BTreeMap;

use erpc_test_tools::random::Random;

use crate::check::{History, Item, Observed, Outcome, Transaction, Written};

/// How a history is generated.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) items: u32,
    /// Keys of each item.
    pub(super) keys: u64,
    /// Items that a transaction uses at most.
    pub(super) accesses: u64,
    /// Different values; with few of them, they say little about who wrote them.
    pub(super) values: u64,
    /// How long before and after its commit a transaction may begin and end. Commits are 10 apart.
    pub(super) overlap: u64,
    /// Percentages of transactions that abort, and whose outcome is unknown.
    pub(super) aborted: u64,
    pub(super) unknown: u64,
}

impl Shape {
    pub(super) const USUAL: Self = Self {
        items: 6,
        keys: 3,
        accesses: 4,
        values: u64::MAX,
        overlap: 60,
        aborted: 10,
        unknown: 10,
    };
}

/// A store, and the history of what it has done.
#[derive(Clone, Debug)]
pub(super) struct Run {
    pub(super) random: Random,
    pub(super) history: History,
    shape: Shape,
    store: BTreeMap<Item, (u64, BTreeMap<u64, u64>)>,
    pub(super) now: u64,
    next_id: u64,
}

impl Run {
    pub(super) fn new(seed: u64, shape: Shape) -> Self {
        let mut run = Self {
            random: Random::new(seed),
            history: History::new(),
            shape,
            store: BTreeMap::new(),
            now: 1_000 + shape.overlap,
            next_id: 1,
        };
        for at in (0..shape.items).filter(|at| at % 3 != 0) {
            let version = run.random.below(4);
            let entries = [(run.key(run.item(at)), run.value())];
            run.history.set_initial(run.item(at), version, entries);
            run.store.insert(run.item(at), (version, entries.into()));
        }
        run
    }

    pub(super) fn item(&self, at: u32) -> Item {
        Item { table: (at % 2) as u16, partition: (at % 3) as u16, bucket: at }
    }

    pub(super) fn any_item(&mut self) -> Item {
        let at = self.random.below(self.shape.items.into()) as u32;
        self.item(at)
    }

    /// Two different items.
    pub(super) fn two_items(&mut self) -> (Item, Item) {
        let first = self.any_item();
        loop {
            let second = self.any_item();
            if second != first {
                return (first, second);
            }
        }
    }

    /// The first key of an item.
    pub(super) fn key(&self, item: Item) -> u64 {
        u64::from(item.bucket) * 100
    }

    /// A new value.
    pub(super) fn value(&mut self) -> u64 {
        match self.shape.values {
            u64::MAX => self.random.word(),
            values => self.random.below(values),
        }
    }

    pub(super) fn version(&self, item: Item) -> u64 {
        self.store.get(&item).map_or(0, |(version, _)| *version)
    }

    /// Reads a key now.
    pub(super) fn read(&self, item: Item, key: u64) -> Observed {
        let value = self.store.get(&item).and_then(|(_, entries)| entries.get(&key).copied());
        Observed { item, key, version: self.version(item), value }
    }

    /// Writes that could be applied now.
    pub(super) fn intend(&self, item: Item, entries: &[(u64, Option<u64>)]) -> Written {
        Written { item, base: self.version(item), entries: entries.to_vec() }
    }

    /// Applies writes now.
    pub(super) fn write(&mut self, item: Item, entries: &[(u64, Option<u64>)]) -> Written {
        let written = self.intend(item, entries);
        let (version, contents) = self.store.entry(item).or_default();
        *version += 1;
        for &(key, value) in entries {
            match value {
                Some(value) => contents.insert(key, value),
                None => contents.remove(&key),
            };
        }
        written
    }

    /// Writes a new value to the first key of an item.
    pub(super) fn put(&mut self, item: Item) -> Written {
        let entries = [(self.key(item), Some(self.value()))];
        self.write(item, &entries)
    }

    /// Records a transaction that runs now, and lets some time pass.
    pub(super) fn record(
        &mut self,
        outcome: Outcome,
        reads: Vec<Observed>,
        writes: Vec<Written>,
    ) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.now += 10;
        let began = self.now - self.random.below(self.shape.overlap + 1);
        let ended = self.now + self.random.below(self.shape.overlap + 1);
        self.history.push(Transaction { id, began, ended, outcome, reads, writes });
        id
    }

    /// As [`record`](Self::record), at the same time as the transaction before it.
    pub(super) fn record_beside(&mut self, reads: Vec<Observed>, writes: Vec<Written>) -> u64 {
        let id = self.record(Outcome::Committed, reads, writes);
        let now = self.now;
        for transaction in self.history.transactions.iter_mut().rev().take(2) {
            transaction.began = transaction.began.min(now - 20);
            transaction.ended = transaction.ended.max(now + 20);
        }
        id
    }

    /// As [`record`](Self::record), after all transactions that have begun.
    pub(super) fn record_later(&mut self, reads: Vec<Observed>, writes: Vec<Written>) -> u64 {
        self.now += 1_000;
        self.record(Outcome::Committed, reads, writes)
    }

    /// Runs random transactions.
    pub(super) fn random(&mut self, transactions: usize) {
        for _ in 0..transactions {
            self.random_transaction();
        }
    }

    fn random_transaction(&mut self) {
        let roll = self.random.below(100);
        let (outcome, is_done) = match roll {
            roll if roll < self.shape.aborted => (Outcome::Aborted, false),
            roll if roll < self.shape.aborted + self.shape.unknown => {
                (Outcome::Unknown, self.random.percent(50))
            }
            _ => (Outcome::Committed, true),
        };
        let mut items: Vec<_> =
            (0..=self.random.below(self.shape.accesses)).map(|_| self.any_item()).collect();
        items.sort_unstable();
        items.dedup();
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for &item in &items {
            let is_written = self.random.percent(50);
            for key in 0..self.shape.keys {
                if self.random.percent(if is_written { 30 } else { 60 }) {
                    let mut read = self.read(item, self.key(item) + key);
                    if outcome == Outcome::Aborted && self.random.percent(30) {
                        // Its reads need not be consistent.
                        read.version = self.random.below(read.version + 1);
                    }
                    reads.push(read);
                }
            }
            if is_written {
                writes.push(item);
            }
        }
        let writes = writes.into_iter().map(|item| {
            let mut entries = Vec::new();
            for key in 0..=self.random.below(self.shape.keys) {
                // An earlier value for the same key, which nobody sees.
                if self.random.percent(10) {
                    entries.push((self.key(item) + key, Some(self.value())));
                }
                let value = self.random.percent(80).then(|| self.value());
                entries.push((self.key(item) + key, value));
            }
            if is_done { self.write(item, &entries) } else { self.intend(item, &entries) }
        });
        let writes = writes.collect();
        self.record(outcome, reads, writes);
    }
}
