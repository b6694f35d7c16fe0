//! Threads that change, read and scan one tree, and know what they must find.
//!
//! Each writer owns some keys. Nobody else writes them, so the writer knows every result. Permanent
//! keys are always there, and their values only grow. Some keys are never there.
//! `MASSTREE_STRESS_SECS` sets the time; by default it is short.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use erpc_test_tools::random::Random;

use crate::check::check;
use crate::{Masstree, pin};

const WRITERS: u64 = 3;
/// Numbers of keys. Their owner is the number modulo this.
const OWNERS: u64 = WRITERS + 2;
/// The owner of keys that are always there.
const PERMANENT: u64 = WRITERS;
/// The owner of keys that are never there.
const NEVER: u64 = WRITERS + 1;
const NUMBERS: u64 = 3_000;

/// The key with this number. Neighboring numbers share nodes and layers, so writers meet. Ascends
/// with the number.
fn key(number: u64) -> Vec<u8> {
    match number / 600 {
        // Ends in the first layer.
        0 => number.to_be_bytes().to_vec(),
        // Few keys per slice, in layers that come and go.
        1 => format!("layer{:03}{}", number / 7, number % 7 + 1).into_bytes(),
        // Many keys per slice, and deep.
        2 => format!("prefix of twenty-four by{number:05}").into_bytes(),
        // The lengths differ, and the bytes are zero.
        3 => {
            [b"r".as_slice(), &(number / 20).to_be_bytes(), &vec![0; number as usize % 20]].concat()
        }
        _ => format!("s{number:05}").into_bytes(),
    }
}

struct Stress {
    tree: Masstree<Box<u64>>,
    keys: Vec<Vec<u8>>,
    end: Instant,
    /// A thread has failed, so the others need not go on.
    is_over: AtomicBool,
}

/// Ends the other threads also if this one panics.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.0.store(true, Ordering::Relaxed);
        }
    }
}

impl Stress {
    fn goes_on(&self) -> bool {
        Instant::now() < self.end && !self.is_over.load(Ordering::Relaxed)
    }

    /// Puts and removes keys of this owner. Returns what is left, and the number of operations.
    fn write(&self, owner: u64) -> (BTreeMap<u64, u64>, u64) {
        let _ends = Ends(&self.is_over);
        let (mut own, mut random, mut count) = (BTreeMap::new(), Random::new(owner + 1), 0);
        while self.goes_on() {
            // A run of numbers is put or removed as a whole, so that nodes and layers come and go.
            let first = random.below(NUMBERS);
            let run = first..(first + 1 + random.below(200)).min(NUMBERS);
            let what = random.below(4);
            let mut guard = pin();
            for number in run.filter(|number| number % OWNERS == owner) {
                count += 1;
                let key = &self.keys[number as usize];
                let (expected, found) = match what {
                    0 | 1 => {
                        let old = self.tree.put(key, Box::new(count), &guard).unwrap();
                        (own.insert(number, count), old)
                    }
                    2 => (own.remove(&number), self.tree.remove(key, &guard)),
                    _ => (own.get(&number).copied(), self.tree.get(key, &guard)),
                };
                assert_eq!(
                    found.copied(),
                    expected,
                    "operation {what} of {number}, which is {key:?}"
                );
                let expected = own.get(&number).copied();
                assert_eq!(self.tree.get(key, &guard).copied(), expected, "own write of {number}");
                guard.repin();
            }
        }
        (own, count)
    }

    /// Increases values of permanent keys.
    fn increase(&self) -> u64 {
        let _ends = Ends(&self.is_over);
        let (mut random, mut count) = (Random::new(77), 0);
        while self.goes_on() {
            count += 1;
            let number = random.below(NUMBERS / OWNERS) * OWNERS + PERMANENT;
            let guard = pin();
            let old = self.tree.put(&self.keys[number as usize], Box::new(count), &guard).unwrap();
            let old = old.expect("a permanent key was absent");
            assert!(*old < count, "the value of {number} was {old}, and is {count}");
        }
        count
    }

    /// Reads permanent keys and such that are never there, one by one and together.
    fn read(&self) -> u64 {
        let _ends = Ends(&self.is_over);
        let (mut random, mut count) = (Random::new(99), 0);
        let mut last = vec![0; NUMBERS as usize];
        while self.goes_on() {
            let numbers: Vec<u64> = (0..20).map(|_| random.below(NUMBERS)).collect();
            let keys: Vec<_> = numbers.iter().map(|&number| &self.keys[number as usize]).collect();
            let guard = pin();
            self.tree.get_many(&keys, &guard, |index, value| {
                let number = numbers[index];
                match number % OWNERS {
                    PERMANENT => {
                        let value = *value.expect("a permanent key was absent");
                        let last = &mut last[number as usize];
                        assert!(
                            value >= *last,
                            "the value of {number} went from {last} to {value}"
                        );
                        *last = value;
                    }
                    NEVER => assert_eq!(value, None, "{number} was never there"),
                    _ => {}
                }
            });
            count += numbers.len() as u64;
        }
        count
    }

    /// Scans parts of the tree in either direction.
    fn scan(&self, is_forward: bool) -> u64 {
        let _ends = Ends(&self.is_over);
        let (mut random, mut count) = (Random::new(55), 0);
        while self.goes_on() {
            let first = random.below(NUMBERS);
            let range = first..(first + random.below(500)).min(NUMBERS - 1) + 1;
            let last = range.end - 1;
            let bounds = self.keys[first as usize].as_slice()..=&self.keys[last as usize];
            let guard = pin();
            let mut scan = if is_forward {
                self.tree.scan(bounds, &guard)
            } else {
                self.tree.scan_back(bounds, &guard)
            };
            let mut found: Vec<u64> = Vec::new();
            while let Some((key, _)) = scan.next() {
                let number = self.keys.binary_search_by(|k| k.as_slice().cmp(key));
                found.push(number.expect("a key that nobody has put") as u64);
            }
            if !is_forward {
                found.reverse();
            }
            count += found.len() as u64;
            assert!(found.is_sorted_by(|a, b| a < b), "not in order: {found:?}");
            assert!(found.iter().all(|number| range.contains(number)), "{range:?}: {found:?}");
            assert!(found.iter().all(|number| number % OWNERS != NEVER), "never there: {found:?}");
            let permanent = |number: &u64| number % OWNERS == PERMANENT;
            let (expected, seen) = (
                range.clone().filter(permanent).collect::<Vec<_>>(),
                found.iter().copied().filter(permanent).collect::<Vec<_>>(),
            );
            assert_eq!(seen, expected, "permanent keys in {range:?}, forward: {is_forward}");
        }
        count
    }
}

#[test]
fn threads_find_what_they_must() {
    let seconds = std::env::var("MASSTREE_STRESS_SECS").ok();
    let seconds = seconds.map_or(1.0, |seconds| seconds.parse().expect("a number of seconds"));
    let stress = Stress {
        tree: Masstree::new(),
        keys: (0..NUMBERS).map(key).collect(),
        end: Instant::now() + Duration::from_secs_f64(seconds),
        is_over: AtomicBool::new(false),
    };
    assert!(stress.keys.is_sorted_by(|a, b| a < b), "numbers ascend with their keys");
    let permanent = || (0..NUMBERS).filter(|number| number % OWNERS == PERMANENT);
    for number in permanent() {
        stress.tree.put(&stress.keys[number as usize], Box::new(0), &pin()).unwrap();
    }
    let mut left: Vec<u64> = permanent().collect();
    std::thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|owner| {
                let stress = &stress;
                scope.spawn(move || stress.write(owner))
            })
            .collect();
        let increaser = scope.spawn(|| stress.increase());
        let reader = scope.spawn(|| stress.read());
        let scanners = [true, false].map(|is_forward| {
            let stress = &stress;
            scope.spawn(move || stress.scan(is_forward))
        });
        let mut writes = 0;
        for writer in writers {
            let (own, count) = writer.join().expect("a writer failed");
            left.extend(own.into_keys());
            writes += count;
        }
        println!("{writes} writes, {} replacements", increaser.join().expect("a writer failed"));
        println!("{} reads", reader.join().expect("a reader failed"));
        for scanner in scanners {
            println!("{} keys scanned", scanner.join().expect("a scan failed"));
        }
    });
    assert_eq!(check(&stress.tree).keys, left.len(), "keys that are left");
    let guard = pin();
    left.sort_unstable();
    let mut scan = stress.tree.scan(.., &guard);
    for &number in &left {
        assert_eq!(scan.next().map(|(key, _)| key), Some(stress.keys[number as usize].as_slice()));
    }
    assert_eq!(scan.next().map(|(key, _)| key), None);
}
