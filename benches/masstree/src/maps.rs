//! The maps that are compared, with keys and values of 8 bytes.

use std::collections::BTreeMap;
use std::hint::black_box;
use std::ops::Bound;
use std::sync::RwLock;

use concurrent_map::ConcurrentMap;
use crossbeam_skiplist::SkipMap;
use erpc_masstree::{Masstree, pin};

/// A map as a thread uses it.
pub(crate) trait Map: Send {
    fn put(&mut self, key: u64, value: u64);

    fn get(&mut self, key: u64) -> Option<u64>;

    /// The sum of the values of the keys.
    fn get_all(&mut self, keys: &[u64]) -> u64 {
        keys.iter().filter_map(|&key| self.get(key)).fold(0, u64::wrapping_add)
    }

    /// The number and the sum of the values of the first `count` keys from this one.
    fn scan(&mut self, from: u64, count: usize) -> (usize, u64);

    /// A handle for another thread.
    fn handle(&self) -> Box<dyn Map + '_>;
}

/// Adds up.
fn sum(values: impl Iterator<Item = u64>) -> (usize, u64) {
    values.fold((0, 0), |(count, sum), value| (count + 1, sum.wrapping_add(value)))
}

impl Map for &Masstree<u64> {
    fn put(&mut self, key: u64, value: u64) {
        Masstree::put(self, &key.to_be_bytes(), value, &pin()).expect("a short key");
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        Masstree::get(self, &key.to_be_bytes(), &pin())
    }

    fn get_all(&mut self, keys: &[u64]) -> u64 {
        let (guard, mut sum) = (pin(), 0_u64);
        for keys in keys.chunks(erpc_masstree::BATCH) {
            let mut bytes = [[0; 8]; erpc_masstree::BATCH];
            for (bytes, key) in bytes.iter_mut().zip(keys) {
                *bytes = key.to_be_bytes();
            }
            self.get_many(&bytes[..keys.len()], &guard, |_, value| {
                sum = sum.wrapping_add(value.unwrap_or_default());
            });
        }
        sum
    }

    fn scan(&mut self, from: u64, count: usize) -> (usize, u64) {
        let (guard, from) = (pin(), from.to_be_bytes());
        let (mut found, mut sum) = (0, 0_u64);
        let mut scan = Masstree::scan(self, from.as_slice().., &guard);
        while found < count
            && let Some((key, value)) = scan.next()
        {
            black_box(u64::from_be_bytes(key.try_into().expect("a key of 8 bytes")));
            (found, sum) = (found + 1, sum.wrapping_add(value));
        }
        (found, sum)
    }

    fn handle(&self) -> Box<dyn Map + '_> {
        Box::new(*self)
    }
}

impl Map for ConcurrentMap<u64, u64> {
    fn put(&mut self, key: u64, value: u64) {
        self.insert(key, value);
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        ConcurrentMap::get(self, &key)
    }

    fn scan(&mut self, from: u64, count: usize) -> (usize, u64) {
        sum(self.range(from..).take(count).map(|(key, value)| {
            black_box(key);
            value
        }))
    }

    fn handle(&self) -> Box<dyn Map + '_> {
        Box::new(self.clone())
    }
}

impl Map for &SkipMap<u64, u64> {
    fn put(&mut self, key: u64, value: u64) {
        self.insert(key, value);
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        SkipMap::get(self, &key).map(|entry| *entry.value())
    }

    fn scan(&mut self, from: u64, count: usize) -> (usize, u64) {
        sum(self.range(from..).take(count).map(|entry| {
            black_box(entry.key());
            *entry.value()
        }))
    }

    fn handle(&self) -> Box<dyn Map + '_> {
        Box::new(*self)
    }
}

impl Map for &RwLock<BTreeMap<u64, u64>> {
    fn put(&mut self, key: u64, value: u64) {
        self.write().expect("no panic").insert(key, value);
    }

    fn get(&mut self, key: u64) -> Option<u64> {
        self.read().expect("no panic").get(&key).copied()
    }

    fn scan(&mut self, from: u64, count: usize) -> (usize, u64) {
        let map = self.read().expect("no panic");
        let range = map.range((Bound::Included(from), Bound::Unbounded));
        sum(range.take(count).map(|(key, &value)| {
            black_box(key);
            value
        }))
    }

    fn handle(&self) -> Box<dyn Map + '_> {
        Box::new(*self)
    }
}
