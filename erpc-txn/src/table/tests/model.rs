//! Random operations, compared with a simple model: a sorted map, and a version and an owner per
//! bucket.

use std::collections::{BTreeMap, BTreeSet};

use proptest::collection::vec;
use proptest::prelude::*;

use super::*;
use crate::table::{Applied, Full, LockError, WriteError};

const BUCKETS: u32 = 3;
const OVERFLOW: u32 = 8;
const KEYS: u64 = 90;

#[derive(Clone, Debug)]
enum Step {
    Get {
        key: u64,
        me: u64,
    },
    LockForUpdate {
        key: u64,
        me: u64,
    },
    LockForInsert {
        key: u64,
        me: u64,
    },
    Unlock {
        key: u64,
        me: u64,
    },
    /// Commits to the key's bucket: puts of what is reserved, and these writes as far as they are of
    /// the bucket.
    Commit {
        key: u64,
        me: u64,
        writes: Vec<(u64, Option<u16>)>,
    },
    Load {
        key: u64,
        len: u16,
    },
    /// Repeats a commit of the past at the backup.
    Repeat {
        which: usize,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let key = || 0..KEYS;
    let me = || 1u64..4;
    let len = || prop_oneof![4 => 0u16..=16, 1 => 17u16..300];
    prop_oneof![
        2 => (key(), me()).prop_map(|(key, me)| Step::Get { key, me }),
        3 => (key(), me()).prop_map(|(key, me)| Step::LockForUpdate { key, me }),
        3 => (key(), me()).prop_map(|(key, me)| Step::LockForInsert { key, me }),
        1 => (key(), me()).prop_map(|(key, me)| Step::Unlock { key, me }),
        4 => (key(), me(), vec((key(), proptest::option::of(len())), 0..40))
            .prop_map(|(key, me, writes)| Step::Commit { key, me, writes }),
        2 => (key(), len()).prop_map(|(key, len)| Step::Load { key, len }),
        1 => any::<usize>().prop_map(|which| Step::Repeat { which }),
    ]
}

type Writes = Vec<(u64, Option<Vec<u8>>)>;

#[derive(Default)]
struct Model {
    entries: BTreeMap<u64, Vec<u8>>,
    versions: BTreeMap<Bucket, u64>,
    /// Of each locked bucket, the owner and the keys that are reserved.
    locks: BTreeMap<Bucket, (u64, BTreeSet<u64>)>,
    commits: Vec<(Bucket, u64, Writes)>,
    steps: u8,
}

struct Run {
    model: Model,
    primary: Table,
    backup: Table,
}

impl Run {
    fn version(&self, bucket: Bucket) -> Version {
        Version::new(self.model.versions.get(&bucket).copied().unwrap_or(0)).unwrap()
    }

    /// The owner of the bucket's lock, if it is not `me`.
    fn other(&self, bucket: Bucket, me: u64) -> Option<Owner> {
        let &(id, _) = self.model.locks.get(&bucket)?;
        (id != me).then(|| owner(id))
    }

    fn expect_conflict<T: std::fmt::Debug>(got: Result<T, LockError>, other: Owner) {
        match got {
            Err(LockError::Conflict(conflict)) => assert_eq!(conflict.owner, Some(other)),
            got => panic!("expected a conflict, got {got:?}"),
        }
    }

    /// A refusal for lack of room must be true.
    fn check_full(&self, full: Full) {
        assert_eq!(full, Full::Table);
        assert_eq!(self.primary.usage().overflow_blocks, u64::from(OVERFLOW));
    }

    fn step(&mut self, step: Step) {
        self.model.steps = self.model.steps.wrapping_add(1);
        match step {
            Step::Get { key, me } => {
                let bucket = self.primary.bucket(key);
                let got = self.primary.get(key, Some(owner(me)));
                match self.other(bucket, me) {
                    Some(other) => assert_eq!(got.unwrap_err().owner, Some(other)),
                    None => {
                        let got = got.unwrap();
                        assert_eq!(got.version, self.version(bucket));
                        assert_eq!(
                            got.value.as_deref(),
                            self.model.entries.get(&key).map(|v| &v[..])
                        );
                        let valid = self.primary.validate(bucket, got.version, Some(owner(me)));
                        assert_eq!(valid, Ok(()));
                    }
                }
            }
            Step::LockForUpdate { key, me } => {
                let bucket = self.primary.bucket(key);
                let got = self.primary.lock_for_update(key, owner(me));
                if let Some(other) = self.other(bucket, me) {
                    return Self::expect_conflict(got, other);
                }
                let version = self.version(bucket);
                let Some(value) = self.model.entries.get(&key) else {
                    return assert_eq!(got, Err(LockError::Absent(version)));
                };
                let got = got.unwrap();
                assert_eq!(got.version, version);
                assert_eq!(got.value.as_deref(), Some(&value[..]));
                self.model.locks.entry(bucket).or_insert((me, BTreeSet::new()));
            }
            Step::LockForInsert { key, me } => {
                let bucket = self.primary.bucket(key);
                let got = self.primary.lock_for_insert(key, owner(me));
                if let Some(other) = self.other(bucket, me) {
                    return Self::expect_conflict(got, other);
                }
                let version = self.version(bucket);
                match got {
                    Err(LockError::Full(full)) => return self.check_full(full),
                    got if self.model.entries.contains_key(&key) => {
                        return assert_eq!(got, Err(LockError::Present(version)));
                    }
                    got => assert_eq!(got, Ok(version)),
                }
                let lock = self.model.locks.entry(bucket).or_insert((me, BTreeSet::new()));
                lock.1.insert(key);
            }
            Step::Unlock { key, me } => {
                let bucket = self.primary.bucket(key);
                let held = self.model.locks.get(&bucket).is_some_and(|lock| lock.0 == me);
                assert_eq!(self.primary.unlock(bucket, owner(me)), held);
                if held {
                    self.model.locks.remove(&bucket);
                }
            }
            Step::Commit { key, me, writes } => self.commit(self.primary.bucket(key), me, &writes),
            Step::Load { key, len } => {
                let bucket = self.primary.bucket(key);
                let value = vec![self.model.steps; usize::from(len)];
                let got = self.primary.load(key, &value);
                if let Some(&(id, _)) = self.model.locks.get(&bucket) {
                    let conflict = super::super::Conflict { owner: Some(owner(id)) };
                    return assert_eq!(got, Err(WriteError::Conflict(conflict)));
                }
                match got {
                    Err(WriteError::Full(full)) => self.check_full(full),
                    got => {
                        assert_eq!(got.ok(), self.version(bucket).next());
                        self.committed(bucket, vec![(key, Some(value))]);
                    }
                }
            }
            Step::Repeat { which } => {
                if let Some((bucket, base, writes)) =
                    self.model.commits.get(which % self.model.commits.len().max(1))
                {
                    let base = Version::new(*base).unwrap();
                    let got = self.backup.apply(*bucket, base, &borrowed(writes));
                    assert_eq!(got, Ok(Applied::Before));
                }
            }
        }
    }

    fn commit(&mut self, bucket: Bucket, me: u64, wanted: &[(u64, Option<u16>)]) {
        let lock = self.model.locks.get(&bucket);
        let reserved = lock.map(|lock| lock.1.clone()).unwrap_or_default();
        let mut all: BTreeMap<u64, Option<Vec<u8>>> = BTreeMap::new();
        for &(key, len) in wanted.iter().filter(|(key, _)| self.primary.bucket(*key) == bucket) {
            all.insert(key, len.map(|len| vec![self.model.steps; usize::from(len)]));
        }
        for &key in &reserved {
            all.insert(key, Some(vec![self.model.steps; 20]));
        }
        let is_reserved = all.iter().all(|(key, value)| {
            value.is_none() || self.model.entries.contains_key(key) || reserved.contains(key)
        });
        let writes: Writes = all.into_iter().collect();
        let held = lock.is_some_and(|lock| lock.0 == me);
        let got = self.primary.commit(bucket, owner(me), &borrowed(&writes));
        if !held {
            let id = lock.map(|lock| owner(lock.0));
            return assert_eq!(got, Err(WriteError::NotOwner(id)));
        }
        match got {
            Err(WriteError::Full(full)) if !is_reserved => self.check_full(full),
            got => {
                assert_eq!(got.ok(), self.version(bucket).next());
                self.committed(bucket, writes);
                self.model.locks.remove(&bucket);
            }
        }
    }

    /// Does in the model and at the backup what the primary has committed.
    fn committed(&mut self, bucket: Bucket, writes: Writes) {
        let base = self.version(bucket);
        // The primary had room, so the backup has.
        assert_eq!(self.backup.apply(bucket, base, &borrowed(&writes)), Ok(Applied::Now));
        for (key, value) in &writes {
            match value {
                Some(value) => self.model.entries.insert(*key, value.clone()),
                None => self.model.entries.remove(key),
            };
        }
        self.model.versions.insert(bucket, base.get() + 1);
        self.model.commits.push((bucket, base.get(), writes));
    }

    /// At the end, with all locks given up.
    fn check(&mut self) {
        assert_eq!(self.primary.locks().count(), self.model.locks.len());
        assert_eq!(self.primary.unlock_all(|_| true), self.model.locks.len());
        let expected: Vec<_> =
            self.model.versions.keys().map(|&bucket| self.expected(bucket)).collect();
        for (name, table) in [("primary", &self.primary), ("backup", &self.backup)] {
            let got = snapshots(table);
            let got: Vec<_> = got
                .iter()
                .map(|s| {
                    let entries = s.entries.iter().map(|(key, value)| (*key, value.to_vec()));
                    (s.bucket, s.version, entries.collect::<Vec<_>>())
                })
                .collect();
            assert_eq!(got, expected, "{name}");
            let blocks: usize = expected.iter().map(|e| e.2.len().max(1).div_ceil(7) - 1).sum();
            let long = || self.model.entries.values().filter(|value| value.len() > 16);
            let usage = table.usage();
            assert_eq!(usage.overflow_blocks, blocks as u64, "{name}");
            assert_eq!(usage.long_values, long().count() as u64, "{name}");
            assert_eq!(usage.long_bytes, long().map(|v| v.len() as u64).sum::<u64>(), "{name}");
        }
    }

    fn expected(&self, bucket: Bucket) -> (Bucket, Version, Vec<(u64, Vec<u8>)>) {
        let entries =
            self.model.entries.iter().filter(|(key, _)| self.primary.bucket(**key) == bucket);
        let entries = entries.map(|(key, value)| (*key, value.clone())).collect();
        (bucket, self.version(bucket), entries)
    }
}

fn borrowed(writes: &Writes) -> Vec<Write<'_>> {
    fn write((key, value): &(u64, Option<Vec<u8>>)) -> Write<'_> {
        match value {
            Some(value) => Write::put(*key, value),
            None => Write::delete(*key),
        }
    }
    writes.iter().map(write).collect()
}

proptest! {
    #[test]
    fn the_table_does_what_the_model_does(steps in vec(step(), 1..if cfg!(miri) { 60 } else { 400 })) {
        let mut run = Run {
            model: Model::default(),
            primary: crowded(BUCKETS, OVERFLOW),
            backup: crowded(BUCKETS, OVERFLOW),
        };
        for step in steps {
            run.step(step);
        }
        run.check();
    }
}
