//! The protocol of a bucket under all schedules, with blocks of two slots; see `crate::sync`.

use loom::sync::Arc;
use loom::thread;

use super::{Bucket, Config, LockError, Owner, Table, Version, Write, WriteError};

fn owner(id: u64) -> Owner {
    Owner::new(id).expect("not 0")
}

fn table(buckets: u32, overflow: u32) -> Arc<Table> {
    let config = Config::new(0).inline(16).max_value(100).blocks(buckets, overflow);
    Arc::new(config.build().expect("memory"))
}

/// A value for a slot, with a number in both its words.
fn short(n: u8) -> [u8; 16] {
    [n; 16]
}

/// A value for a cell.
fn long(n: u8) -> [u8; 17] {
    [n; 17]
}

fn keys_of(table: &Table, bucket: u32) -> impl Iterator<Item = u64> {
    (0..).filter(move |&key| table.bucket(key) == Bucket::new(bucket))
}

/// Checks that all bytes are this.
#[track_caller]
fn assert_all(value: &[u8], n: u8) {
    assert!(value.iter().all(|&byte| byte == n), "all bytes should be {n}: {value:?}");
}

fn model(test: impl Fn() + Sync + Send + 'static) {
    loom::model::Builder::new().check(test);
}

/// For tests that have too many schedules of three preemptions.
fn model_with(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.map(|bound| bound.min(preemptions));
    builder.check(test);
}

#[test]
fn a_reader_sees_all_of_a_commit_or_nothing() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &short(1)).unwrap();
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.lock_for_update(1, owner(1)).unwrap();
                let value = short(2);
                let writes = [Write::put(1, &value), Write::put(2, &value)];
                table.commit(Bucket::new(0), owner(1), &writes).unwrap();
            })
        };
        if let Ok(read) = table.get(1, None) {
            assert_all(&read.value.unwrap(), read.version.get() as u8);
        }
        if let Ok(snapshot) = table.snapshot(Bucket::new(0)) {
            let snapshot = snapshot.unwrap();
            assert_eq!(snapshot.entries.len() as u64, snapshot.version.get(), "keys");
            for (_, value) in snapshot.entries {
                assert_all(&value, snapshot.version.get() as u8);
            }
        }
        writer.join().unwrap();
        assert_all(&table.get(1, None).unwrap().value.unwrap(), 2);
    });
}

#[test]
fn a_validated_pair_of_reads_is_of_one_moment() {
    model(|| {
        let table = table(2, 0);
        let keys = [0, 1].map(|bucket| keys_of(&table, bucket).next().unwrap());
        for key in keys {
            table.load(key, &short(1)).unwrap();
        }
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                for key in keys {
                    table.lock_for_update(key, owner(1)).unwrap();
                }
                for key in keys {
                    table
                        .commit(table.bucket(key), owner(1), &[Write::put(key, &short(2))])
                        .unwrap();
                }
            })
        };
        let reads = keys.map(|key| table.get(key, None).ok());
        let valid = |(key, read): (u64, &Option<super::Read>)| {
            read.as_ref()
                .is_some_and(|r| table.validate(table.bucket(key), r.version, None).is_ok())
        };
        if keys.into_iter().zip(&reads).all(valid) {
            let values = reads.map(|read| read.unwrap().value.unwrap());
            assert_eq!(values[0], values[1], "half of a transaction");
        }
        writer.join().unwrap();
    });
}

#[test]
fn no_update_is_lost() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &short(0)).unwrap();
        let increase = |table: &Table, id| {
            let Ok(read) = table.lock_for_update(1, owner(id)) else { return 0 };
            let next = short(read.value.unwrap()[0] + 1);
            table.commit(Bucket::new(0), owner(id), &[Write::put(1, &next)]).unwrap();
            1
        };
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || increase(&table, 2))
        };
        let increases = increase(&table, 1) + other.join().unwrap();
        let read = table.get(1, None).unwrap();
        assert_all(&read.value.unwrap(), increases);
        assert_eq!(read.version.get(), 1 + u64::from(increases));
        assert!(increases > 0, "one of two wins");
    });
}

#[test]
fn two_threads_with_one_owner_commit_once() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &long(1)).unwrap();
        table.lock_for_update(1, owner(1)).unwrap();
        let commit = |table: &Table, n| match table.commit(
            Bucket::new(0),
            owner(1),
            &[Write::put(1, &long(n))],
        ) {
            Ok(version) => {
                assert_eq!(version.get(), 2);
                Some(n)
            }
            Err(error) => {
                assert_eq!(error, WriteError::NotOwner(None));
                None
            }
        };
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || commit(&table, 3))
        };
        let mine = commit(&table, 2);
        let committed = mine.xor(other.join().unwrap()).expect("one of two");
        assert_all(&table.get(1, None).unwrap().value.unwrap(), committed);
        assert_eq!(table.usage().long_values, 1);
    });
}

#[test]
fn a_late_unlock_leaves_the_next_lock_alone() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &short(1)).unwrap();
        table.lock_for_update(1, owner(1)).unwrap();
        let first = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                assert!(table.unlock(Bucket::new(0), owner(1)));
                assert!(!table.unlock(Bucket::new(0), owner(1)));
            })
        };
        let locked = table.lock_for_update(1, owner(2)).is_ok();
        if locked {
            table.commit(Bucket::new(0), owner(2), &[Write::put(1, &short(2))]).unwrap();
        }
        first.join().unwrap();
        assert_eq!(table.locks().count(), 0);
        assert_all(&table.get(1, None).unwrap().value.unwrap(), 1 + u8::from(locked));
    });
}

#[test]
fn a_long_value_is_freed_after_its_last_reader() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &long(1)).unwrap();
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.load(1, &long(2)).unwrap();
                table.load(1, &short(3)).unwrap();
            })
        };
        if let Ok(read) = table.get(1, None) {
            assert_all(&read.value.unwrap(), read.version.get() as u8);
        }
        writer.join().unwrap();
        assert_eq!(table.usage().long_values, 0, "the last one to leave has swept");
    });
}

#[test]
fn a_snapshot_of_a_long_value_keeps_it() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &long(1)).unwrap();
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.load(1, &long(2)).unwrap();
            })
        };
        // Unlike `get`, this looks at nothing before it enters the window.
        if let Ok(snapshot) = table.snapshot(Bucket::new(0)) {
            let snapshot = snapshot.unwrap();
            assert_all(&snapshot.entries[0].1, snapshot.version.get() as u8);
        }
        writer.join().unwrap();
        assert_eq!(table.usage().long_values, 1);
    });
}

#[test]
fn readers_and_a_writer_hand_the_limbo_over() {
    model_with(2, || {
        let table = table(1, 0);
        table.load(1, &long(1)).unwrap();
        let threads: Vec<_> = (0..2)
            .map(|_| {
                let table = Arc::clone(&table);
                thread::spawn(move || {
                    if let Ok(snapshot) = table.snapshot(Bucket::new(0)) {
                        let snapshot = snapshot.unwrap();
                        assert_all(&snapshot.entries[0].1, snapshot.version.get() as u8);
                    }
                })
            })
            .collect();
        table.load(1, &long(2)).unwrap();
        table.load(1, &long(3)).unwrap();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(table.usage().long_values, 1);
    });
}

#[test]
fn a_commit_on_another_thread_sees_all_of_the_lock() {
    model(|| {
        let table = table(1, 1);
        table.load(1, &short(1)).unwrap();
        table.load(2, &short(1)).unwrap();
        let locker = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.lock_for_insert(3, owner(1)).unwrap();
            })
        };
        let committed = table.commit(Bucket::new(0), owner(1), &[Write::put(3, &short(2))]);
        locker.join().unwrap();
        match committed {
            Ok(version) => assert_eq!(version.get(), 3),
            Err(error) => {
                assert_eq!(error, WriteError::NotOwner(None));
                assert!(table.unlock(Bucket::new(0), owner(1)));
            }
        }
        let entries = table.snapshot(Bucket::new(0)).unwrap().unwrap().entries;
        assert_eq!(entries.len(), 2 + usize::from(committed.is_ok()));
        assert_eq!(table.usage().overflow_blocks, u64::from(committed.is_ok()));
    });
}

#[test]
fn a_block_that_moves_to_another_bucket_misleads_no_reader() {
    model(|| {
        let table = table(2, 1);
        let [a, b] = [0, 1].map(|bucket| keys_of(&table, bucket).take(3).collect::<Vec<_>>());
        a.iter().chain(&b[..2]).for_each(|&key| assert!(table.load(key, &short(1)).is_ok()));
        let last = a[2];
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                let version = Version::new(3).unwrap();
                table.apply(Bucket::new(0), version, &[Write::delete(last)]).unwrap();
                table.load(b[2], &short(2)).unwrap();
            })
        };
        if let Ok(read) = table.get(last, None) {
            match read.value {
                Some(value) => {
                    assert_eq!(read.version.get(), 3);
                    assert_all(&value, 1);
                }
                None => assert_eq!(read.version.get(), 4),
            }
        }
        writer.join().unwrap();
        assert_eq!(table.usage().overflow_blocks, 1);
    });
}

#[test]
fn a_reserved_block_misleads_no_reader_of_its_old_bucket() {
    model_with(1, || {
        let table = table(2, 2);
        let a: Vec<_> = keys_of(&table, 0).take(5).collect();
        let b: Vec<_> = keys_of(&table, 1).take(3).collect();
        a.iter().chain(&b[..2]).for_each(|&key| assert!(table.load(key, &short(1)).is_ok()));
        let last = a[4];
        let reader = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                if let Ok(read) = table.get(last, None) {
                    assert_eq!(read.value.is_some(), read.version.get() == 5, "{read:?}");
                }
            })
        };
        let inserter = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                if table.lock_for_insert(b[2], owner(1)).is_ok() {
                    assert!(table.unlock(Bucket::new(1), owner(1)));
                }
            })
        };
        for (version, &key) in (5..).zip(a[2..].iter().rev()) {
            let version = Version::new(version).unwrap();
            table.apply(Bucket::new(0), version, &[Write::delete(key)]).unwrap();
        }
        reader.join().unwrap();
        inserter.join().unwrap();
        assert_eq!(table.usage().overflow_blocks, 0);
    });
}

#[test]
fn two_transactions_reserve_different_blocks() {
    model(|| {
        let table = table(2, 1);
        for bucket in 0..2 {
            keys_of(&table, bucket).take(2).for_each(|key| assert!(table.load(key, &[]).is_ok()));
        }
        let insert = |table: &Table, bucket: u32, abort| {
            let key = keys_of(table, bucket).nth(2).unwrap();
            let me = owner(u64::from(bucket) + 1);
            match table.lock_for_insert(key, me) {
                Ok(_) if abort => assert!(table.unlock(Bucket::new(bucket), me)),
                Ok(_) => {
                    let value = short(9);
                    let writes = [Write::put(key, &value)];
                    table.commit(Bucket::new(bucket), me, &writes).unwrap();
                    return true;
                }
                Err(error) => assert!(matches!(error, LockError::Full(_)), "{error}"),
            }
            false
        };
        let other = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                insert(&table, 1, true);
                insert(&table, 1, false)
            })
        };
        let inserts = u64::from(insert(&table, 0, false)) + u64::from(other.join().unwrap());
        assert_eq!(table.usage().overflow_blocks, inserts);
        for bucket in 0..2 {
            let entries = table.snapshot(Bucket::new(bucket)).unwrap().unwrap().entries;
            let inserted = entries.iter().skip(2).map(|(_, value)| assert_all(value, 9)).count();
            assert!(inserted <= 1);
        }
    });
}

#[test]
fn a_snapshot_under_a_lock_is_what_is_committed() {
    model(|| {
        let table = table(1, 0);
        table.load(1, &short(1)).unwrap();
        table.lock_for_update(1, owner(1)).unwrap();
        let writer = {
            let table = Arc::clone(&table);
            thread::spawn(move || {
                table.commit(Bucket::new(0), owner(1), &[Write::put(1, &short(2))]).unwrap();
            })
        };
        if let Ok(snapshot) = table.snapshot(Bucket::new(0)) {
            let snapshot = snapshot.unwrap();
            assert_all(&snapshot.entries[0].1, snapshot.version.get() as u8);
        }
        writer.join().unwrap();
    });
}
