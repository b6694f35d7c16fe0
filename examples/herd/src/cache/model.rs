//! A partition beside a model: it may forget, and may not lie.

use std::cell::Cell;
use std::collections::HashMap;

use super::log::POSITIONS;
use super::{Config, Counts, Hash, Key, MAX_VALUE, MIN_LOG, Partition};

/// The key with this number.
pub(super) fn key(number: u64) -> Key {
    u128::from(number).to_le_bytes()
}

/// The value of a key, if the partition has one.
pub(super) fn read(cache: &Partition, key: &Key, now: u64) -> Option<Vec<u8>> {
    let mut value = Vec::new();
    cache.get(key, || now, &mut value).then_some(value)
}

/// A partition, and what was last written to each key: value and expiry.
pub(super) struct Model<C> {
    cache: Partition,
    written: HashMap<Key, (Vec<u8>, Option<u64>)>,
    /// Chooses a number below a bound.
    choose: C,
    now: u64,
    longest: u64,
    deleted: u64,
    inserted: u64,
}

impl<C: FnMut(u64) -> u64> Model<C> {
    /// For values of at most `longest` bytes.
    pub(super) fn new(cache: Partition, longest: u64, choose: C) -> Self {
        Self { cache, written: HashMap::new(), choose, now: 1, longest, deleted: 0, inserted: 0 }
    }

    #[cfg(test)]
    pub(super) fn counts(&self) -> Counts {
        self.cache.counts()
    }

    fn below(&mut self, bound: u64) -> u64 {
        (self.choose)(bound)
    }

    /// What the model has now.
    fn expected(&self, key: &Key) -> Option<&Vec<u8>> {
        let (value, expiry) = self.written.get(key)?;
        expiry.is_none_or(|expiry| self.now < expiry).then_some(value)
    }

    /// Checks what a read returned.
    fn check(&self, key: &Key, got: Option<&Vec<u8>>) {
        if got.is_some() {
            assert_eq!(got, self.expected(key), "a lie about {key:?} at {}", self.now);
        }
    }

    /// One operation.
    pub(super) fn step(&mut self, keys: u64) {
        let key = key(self.below(keys));
        self.now += self.below(3);
        match self.below(100) {
            0..50 => self.put(key),
            50..60 => {
                let before = self.cache.counts().values;
                let existed = self.cache.delete(&key, || self.now);
                self.deleted += u64::from(existed);
                assert!(!existed || self.expected(&key).is_some(), "a deleted key was there");
                assert!(!existed || self.cache.counts().values == before - 1);
                self.written.remove(&key);
            }
            60..80 => {
                // As in a burst: other operations come between the two steps.
                let hash = Hash::of(&key);
                self.cache.prefetch(hash);
                let hint = self.cache.locate(hash);
                for _ in 0..self.below(4) {
                    let other = self::key(self.below(keys));
                    self.put(other);
                }
                let mut value = Vec::new();
                let found =
                    hint.is_some_and(|hint| self.cache.get_at(hint, &key, || self.now, &mut value));
                self.check(&key, found.then_some(&value));
            }
            _ => {
                let got = read(&self.cache, &key, self.now);
                self.check(&key, got.as_ref());
            }
        }
    }

    fn put(&mut self, key: Key) {
        let len = self.below(self.longest + 1);
        let before = self.cache.counts();
        // Values of successive writes differ, unless they are too short.
        let first = before.puts.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let value: Vec<u8> =
            (0..len).map(|at| (first >> (at % 8 * 8)).wrapping_add(at) as u8).collect();
        let expiry = (self.below(100) < 20).then(|| self.now + (self.choose)(200));
        let forgotten =
            u64::from(self.cache.put(&key, &value, expiry).expect("it is not too long"));
        let after = self.cache.counts();
        let lost = after.overwritten + after.displaced - before.overwritten - before.displaced;
        assert_eq!(forgotten, lost, "the reply says what was forgotten");
        self.inserted += after.values + lost - before.values;
        self.written.insert(key, (value, expiry));
        if expiry.is_none() {
            let got = read(&self.cache, &key, self.now);
            assert!(got.is_some(), "a value that was just written is there");
            self.check(&key, got.as_ref());
        }
    }

    /// All values are accounted for.
    pub(super) fn settle(&mut self) {
        let counts = self.cache.counts();
        let Counts { values, overwritten, displaced, expired, .. } = counts;
        let gone = overwritten + displaced + expired + self.deleted;
        assert_eq!(self.inserted, values + gone, "{counts:?}");
        let found = self.written.keys().filter(|key| read(&self.cache, key, 0).is_some()).count();
        assert_eq!(found as u64, values, "{counts:?}");
    }
}

/// Operations on a partition, for fuzzers: the bytes choose its sizes and the operations. The largest
/// input that makes sense has a few thousand bytes.
///
/// # Panics
///
/// If the partition returns a value that is not the last one of its key, or loses one that no counter
/// counts.
pub fn operations(data: &[u8]) {
    let taken = Cell::new(0);
    let choose = |bound: u64| {
        let bytes = if bound <= 256 { 1 } else { 2 };
        let rest = data.get(taken.get()..).unwrap_or_default();
        taken.set(taken.get() + bytes);
        let number = rest.iter().take(bytes).fold(0, |number, byte| number << 8 | u64::from(*byte));
        number % bound
    };
    let config = Config::new(MIN_LOG).buckets(1 << choose(8));
    let origin = [0, POSITIONS - 1, POSITIONS - 100, POSITIONS - 5000][choose(4) as usize];
    let longest = [0, 8, 200, MAX_VALUE as u64][choose(4) as usize];
    let keys = 1 << choose(9);
    let cache = Partition::starting_at(config, origin).expect("the sizes are valid");
    let mut model = Model::new(cache, longest, choose);
    while taken.get() < data.len() {
        model.step(keys);
    }
    model.settle();
}
