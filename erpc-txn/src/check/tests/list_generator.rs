//! Histories of lists in a store that runs one transaction after the other.

use std::collections::BTreeMap;

use crate::check::Outcome;
use crate::check::lists::{Operation, Transaction};
use erpc_test_tools::random::Random;

#[derive(Clone, Debug)]
pub(super) struct Lists {
    pub(super) random: Random,
    pub(super) history: Vec<Transaction>,
    keys: u64,
    overlap: u64,
    store: BTreeMap<u64, Vec<u64>>,
    pub(super) now: u64,
    next_element: u64,
}

impl Lists {
    pub(super) fn new(seed: u64, keys: u64, overlap: u64) -> Self {
        let (random, store) = (Random::new(seed), BTreeMap::new());
        Self {
            random,
            history: vec![],
            keys,
            overlap,
            store,
            now: 1_000 + overlap,
            next_element: 1,
        }
    }

    pub(super) fn any_key(&mut self) -> u64 {
        self.random.below(self.keys)
    }

    pub(super) fn two_keys(&mut self) -> (u64, u64) {
        let first = self.any_key();
        (first, (first + 1 + self.random.below(self.keys - 1)) % self.keys)
    }

    pub(super) fn list(&self, key: u64) -> Vec<u64> {
        self.store.get(&key).cloned().unwrap_or_default()
    }

    /// Reads a list now.
    pub(super) fn read(&self, key: u64) -> Operation {
        Operation::Read { key, list: self.list(key) }
    }

    /// An append that could be done now.
    pub(super) fn intend(&mut self, key: u64) -> Operation {
        self.next_element += 1;
        Operation::Append { key, element: self.next_element }
    }

    /// Appends an element now.
    pub(super) fn append(&mut self, key: u64) -> Operation {
        let append = self.intend(key);
        self.store.entry(key).or_default().push(self.next_element);
        append
    }

    /// Records a transaction that runs now, and lets some time pass.
    pub(super) fn record(&mut self, outcome: Outcome, operations: Vec<Operation>) -> u64 {
        let id = self.history.len() as u64 + 1;
        self.now += 10;
        let began = self.now - self.random.below(self.overlap + 1);
        let ended = self.now + self.random.below(self.overlap + 1);
        self.history.push(Transaction { id, began, ended, outcome, operations });
        id
    }

    /// As [`record`](Self::record), at the same time as the transaction before it.
    pub(super) fn record_beside(&mut self, operations: Vec<Operation>) -> u64 {
        let id = self.record(Outcome::Committed, operations);
        let now = self.now;
        for transaction in self.history.iter_mut().rev().take(2) {
            transaction.began = transaction.began.min(now - 20);
            transaction.ended = transaction.ended.max(now + 20);
        }
        id
    }

    /// Runs random transactions. Some abort, and the outcome of some is unknown.
    pub(super) fn random(&mut self, transactions: usize) {
        for _ in 0..transactions {
            let (outcome, is_done) = match self.random.below(10) {
                0 => (Outcome::Aborted, false),
                1 => (Outcome::Unknown, self.random.percent(50)),
                _ => (Outcome::Committed, true),
            };
            let before = self.store.clone();
            let operations = (0..=self.random.below(4)).map(|_| {
                let key = self.any_key();
                if self.random.percent(50) { self.append(key) } else { self.read(key) }
            });
            let operations = operations.collect();
            if !is_done {
                self.store = before;
            }
            self.record(outcome, operations);
        }
    }
}
