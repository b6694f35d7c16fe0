//! Many threads at once, and what must hold all the time and at the end.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use super::*;
use crate::table::{LockError, Value};

const ACCOUNTS: u64 = 40;
const START: u64 = 1000;
/// Of each pair of keys from here, one is present.
const PAIRS_FROM: u64 = 1000;
const PAIRS: u64 = 20;
const WRITERS: u64 = 3;
const READERS: u64 = 2;
const ROUNDS: u64 = if cfg!(miri) { 30 } else { 20_000 };

struct Bank {
    primary: Table,
    backup: Table,
    next_owner: AtomicU64,
    done: AtomicBool,
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    *state
}

/// A balance, many times: twice is short enough for a slot, more often is not.
fn encode(balance: u64, times: usize) -> Vec<u8> {
    balance.to_ne_bytes().repeat(times)
}

/// The balance, which must be the same in all words.
fn decode(value: &Value) -> u64 {
    let words: Vec<_> =
        value.chunks(8).map(|word| u64::from_ne_bytes(word.try_into().unwrap())).collect();
    assert!(words.iter().all(|word| *word == words[0]), "a torn value: {words:?}");
    words[0]
}

impl Bank {
    fn new() -> Self {
        let table = || crowded(16, 40);
        let bank = Self {
            primary: table(),
            backup: table(),
            next_owner: AtomicU64::new(1),
            done: AtomicBool::new(false),
        };
        for table in [&bank.primary, &bank.backup] {
            for key in 0..ACCOUNTS {
                table.load(key, &encode(START, 2)).unwrap();
            }
            for pair in 0..PAIRS {
                table.load(PAIRS_FROM + 2 * pair, b"").unwrap();
            }
        }
        bank
    }

    fn owner(&self) -> Owner {
        owner(self.next_owner.fetch_add(1, Ordering::Relaxed))
    }

    /// Commits writes whose buckets `me` has locked, first at the backup.
    fn commit(&self, me: Owner, writes: &[Write<'_>]) {
        let mut buckets: Vec<_> =
            writes.iter().map(|write| self.primary.bucket(write.key)).collect();
        buckets.sort();
        buckets.dedup();
        for at_backup in [true, false] {
            for &bucket in &buckets {
                let of: Vec<_> = writes
                    .iter()
                    .filter(|w| self.primary.bucket(w.key) == bucket)
                    .copied()
                    .collect();
                if at_backup {
                    let base = self.primary.get(of[0].key, Some(me)).expect("my lock").version;
                    self.backup.apply(bucket, base, &of).expect("in order");
                } else {
                    self.primary.commit(bucket, me, &of).expect("my lock");
                }
            }
        }
    }

    fn abort(&self, me: Owner, keys: &[u64]) {
        for &key in keys {
            self.primary.unlock(self.primary.bucket(key), me);
        }
    }

    fn transfer(&self, from: u64, to: u64, amount: u64, times: usize) -> bool {
        let me = self.owner();
        let lock =
            |key| self.primary.lock_for_update(key, me).map(|read| read.value.expect("loaded"));
        match (lock(from), lock(to)) {
            (Ok(a), Ok(b)) => {
                let (a, b) = (decode(&a), decode(&b));
                let amount = amount.min(a);
                let (a, b) = (encode(a - amount, times), encode(b + amount, times));
                self.commit(me, &[Write::put(from, &a), Write::put(to, &b)]);
                true
            }
            (a, b) => {
                assert!(!matches!(
                    (a, b),
                    (Err(LockError::Absent(_)), _) | (_, Err(LockError::Absent(_)))
                ));
                self.abort(me, &[from, to]);
                false
            }
        }
    }

    /// Deletes the present key of a pair and inserts the absent one.
    fn flip(&self, pair: u64, len: usize) -> bool {
        let me = self.owner();
        let (even, odd) = (PAIRS_FROM + 2 * pair, PAIRS_FROM + 2 * pair + 1);
        for (old, new) in [(even, odd), (odd, even)] {
            if self.primary.lock_for_update(old, me).is_ok() {
                if self.primary.lock_for_insert(new, me).is_ok() {
                    self.commit(me, &[Write::delete(old), Write::put(new, &vec![1; len])]);
                    return true;
                }
                self.abort(me, &[old]);
            }
        }
        false
    }

    /// Reads keys as a transaction: none if it must be tried again.
    fn read_all(&self, keys: &[u64]) -> Option<Vec<Option<Value>>> {
        let reads: Option<Vec<_>> =
            keys.iter().map(|&key| self.primary.get(key, None).ok()).collect();
        let reads = reads?;
        for (&key, read) in keys.iter().zip(&reads) {
            self.primary.validate(self.primary.bucket(key), read.version, None).ok()?;
        }
        Some(reads.into_iter().map(|read| read.value).collect())
    }
}

#[test]
fn transactions_of_many_threads_keep_what_must_hold() {
    let bank = Bank::new();
    let (mut transfers, mut audits, mut pairs) = (0, 0, 0);
    thread::scope(|scope| {
        let writers: Vec<_> = (0..WRITERS)
            .map(|seed| {
                let bank = &bank;
                scope.spawn(move || {
                    let (mut state, mut successes) = (seed + 1, 0);
                    for _ in 0..ROUNDS {
                        let (a, b) = (random(&mut state) % ACCOUNTS, random(&mut state) % ACCOUNTS);
                        if a != b {
                            let times = if random(&mut state).is_multiple_of(4) { 20 } else { 2 };
                            successes +=
                                u64::from(bank.transfer(a, b, random(&mut state) % 100, times));
                        }
                        let len = if random(&mut state).is_multiple_of(4) { 100 } else { 10 };
                        bank.flip(random(&mut state) % PAIRS, len);
                    }
                    successes
                })
            })
            .collect();
        let readers: Vec<_> = (0..READERS)
            .map(|seed| {
                let bank = &bank;
                scope.spawn(move || {
                    let (mut state, mut audits, mut pairs) = (seed + 99, 0, 0);
                    while !bank.done.load(Ordering::Relaxed) {
                        let all: Vec<_> = (0..ACCOUNTS).collect();
                        if let Some(values) = bank.read_all(&all) {
                            let total: u64 =
                                values.iter().map(|value| decode(value.as_ref().unwrap())).sum();
                            assert_eq!(total, ACCOUNTS * START, "money");
                            audits += 1;
                        }
                        for _ in 0..20 {
                            let even = PAIRS_FROM + 2 * (random(&mut state) % PAIRS);
                            if let Some(values) = bank.read_all(&[even, even + 1]) {
                                let present = values.iter().flatten().count();
                                assert_eq!(present, 1, "of a pair, one key is present");
                                pairs += 1;
                            }
                            if let Ok(read) = bank.primary.get(random(&mut state) % ACCOUNTS, None)
                            {
                                decode(&read.value.unwrap());
                            }
                            let bucket = Bucket::new((random(&mut state) % 16) as u32);
                            if let Ok(snapshot) = bank.primary.snapshot(bucket) {
                                let entries = snapshot.unwrap().entries;
                                for (_, value) in entries.iter().filter(|entry| entry.0 < ACCOUNTS)
                                {
                                    decode(value);
                                }

                                assert!(
                                    entries.windows(2).all(|pair| pair[0].0 < pair[1].0),
                                    "twice"
                                );
                            }
                        }
                    }
                    (audits, pairs)
                })
            })
            .collect();
        for writer in writers {
            transfers += writer.join().expect("a writer");
        }
        bank.done.store(true, Ordering::Relaxed);
        for reader in readers {
            let (a, p) = reader.join().expect("a reader");
            (audits, pairs) = (audits + a, pairs + p);
        }
    });
    println!("{transfers} transfers, {audits} audits of all accounts, {pairs} reads of pairs");
    assert!(transfers > 0);

    assert_eq!(bank.primary.locks().count() + bank.backup.locks().count(), 0);
    let (primary, backup) = (snapshots(&bank.primary), snapshots(&bank.backup));
    assert_eq!(primary, backup, "the backup equals the primary");
    let keys = primary.iter().map(|snapshot| snapshot.entries.len() as u64).sum::<u64>();
    assert_eq!(keys, ACCOUNTS + PAIRS);
    let blocks: usize = primary.iter().map(|s| s.entries.len().max(1).div_ceil(7) - 1).sum();
    let long =
        primary.iter().flat_map(|s| &s.entries).filter(|(_, value)| value.len() > 16).count();
    drop((primary.clone(), backup));
    for table in [&bank.primary, &bank.backup] {
        assert_eq!(table.usage().overflow_blocks, blocks as u64);
        assert_eq!(table.usage().long_values, long as u64);
    }
}
