//! One operation after the other.

use super::*;
use crate::table::{
    Applied, ConfigError, Conflict, Full, Invalid, LockError, MAX_INLINE, MAX_VALUE, Usage,
    WriteError,
};

const EMPTY: Usage = Usage { overflow_blocks: 0, long_values: 0, long_bytes: 0 };

fn version(n: u64) -> Version {
    Version::new(n).expect("small")
}

fn conflict_with(id: u64) -> Conflict {
    Conflict { owner: Some(owner(id)) }
}

#[test]
fn an_insert_invalidates_the_read_of_an_absent_key() {
    let table = crowded(1, 1);
    let read = table.get(5, None).unwrap();
    assert_eq!((read.version, &read.value), (Version::ZERO, &None));
    let bucket = table.bucket(5);
    assert_eq!(table.validate(bucket, read.version, None), Ok(()));

    table.lock_for_insert(5, owner(1)).unwrap();
    let conflict = Invalid::Conflict(conflict_with(1));
    assert_eq!(table.validate(bucket, read.version, Some(owner(2))), Err(conflict));
    assert_eq!(table.validate(bucket, read.version, Some(owner(1))), Ok(()), "my own lock");

    table.commit(bucket, owner(1), &[Write::put(5, b"five")]).unwrap();
    assert_eq!(table.validate(bucket, read.version, None), Err(Invalid::Changed(version(1))));
    assert_eq!(&*table.get(5, None).unwrap().value.unwrap(), b"five");
}

#[test]
fn only_commits_change_versions_and_deletes_do_too() {
    let table = crowded(1, 1);
    let bucket = table.bucket(5);
    for (commits, write) in
        [Write::put(5, b"a"), Write::delete(5), Write::put(5, b"a")].iter().enumerate()
    {
        table.lock_for_insert(6, owner(1)).unwrap();
        assert!(table.unlock(bucket, owner(1)));
        assert_eq!(table.get(5, None).unwrap().version, version(commits as u64), "after an abort");
        let locked = match table.lock_for_update(5, owner(2)) {
            Ok(read) => read.version,
            Err(LockError::Absent(_)) => table.lock_for_insert(5, owner(2)).unwrap(),
            Err(error) => panic!("{error}"),
        };
        assert_eq!(locked, version(commits as u64));
        assert_eq!(table.commit(bucket, owner(2), &[*write]), Ok(version(commits as u64 + 1)));
    }
}

#[test]
fn a_locked_bucket_cannot_be_read_or_locked_by_others() {
    let table = crowded(1, 1);
    table.load(1, b"one").unwrap();
    table.lock_for_update(1, owner(7)).unwrap();
    let conflict = conflict_with(7);
    assert_eq!(table.get(1, None), Err(conflict));
    assert_eq!(table.get(2, Some(owner(8))), Err(conflict));
    assert_eq!(table.lock_for_update(1, owner(8)), Err(LockError::Conflict(conflict)));
    assert_eq!(table.lock_for_insert(2, owner(8)), Err(LockError::Conflict(conflict)));
    assert_eq!(table.load(1, b"uno"), Err(WriteError::Conflict(conflict)));
    let bucket = table.bucket(1);
    assert_eq!(table.apply(bucket, version(1), &[]), Err(WriteError::Conflict(conflict)));

    assert_eq!(&*table.get(1, Some(owner(7))).unwrap().value.unwrap(), b"one");
    assert_eq!(table.snapshot(bucket).unwrap().unwrap().entries.len(), 1, "what is committed");
    assert_eq!(table.locks().collect::<Vec<_>>(), [(bucket, owner(7))]);
}

#[test]
fn a_lock_that_fails_leaves_the_bucket_as_it_was() {
    let table = crowded(1, 1);
    table.load(1, b"one").unwrap();
    let absent = Err(LockError::Absent(version(1)));
    let present = Err(LockError::Present(version(1)));

    assert_eq!(table.lock_for_update(2, owner(1)), absent);
    assert_eq!(table.lock_for_insert(1, owner(1)), present);
    assert_eq!(table.locks().count(), 0, "not locked before, nor after");

    table.lock_for_update(1, owner(1)).unwrap();
    assert_eq!(table.lock_for_update(2, owner(1)), absent);
    assert_eq!(table.lock_for_insert(1, owner(1)), present);
    assert_eq!(table.locks().count(), 1, "locked before, and after");
    assert_eq!(table.lock_for_insert(2, owner(1)), Ok(version(1)), "a second key");
    let writes = [Write::put(2, b"two"), Write::delete(1)];
    assert_eq!(table.commit(table.bucket(1), owner(1), &writes), Ok(version(2)), "one commit");
    assert_eq!(table.locks().count(), 0);
}

#[test]
fn only_the_owner_unlocks_and_commits_and_only_once() {
    let table = crowded(2, 1);
    table.load(1, b"one").unwrap();
    let bucket = table.bucket(1);
    let write = [Write::put(1, b"uno")];
    assert_eq!(table.commit(bucket, owner(1), &write), Err(WriteError::NotOwner(None)));
    table.lock_for_update(1, owner(1)).unwrap();
    assert!(!table.unlock(bucket, owner(2)));
    assert_eq!(table.commit(bucket, owner(2), &write), Err(WriteError::NotOwner(Some(owner(1)))));
    assert!(!table.unlock(Bucket::new(2), owner(1)), "no such bucket");
    table.commit(bucket, owner(1), &write).unwrap();
    assert_eq!(table.commit(bucket, owner(1), &write), Err(WriteError::NotOwner(None)));

    table.lock_for_update(1, owner(3)).unwrap();
    assert!(!table.unlock(bucket, owner(1)), "a late abort of the first");
    assert!(table.unlock(bucket, owner(3)));
}

#[test]
fn a_commit_that_does_not_fit_changes_nothing_and_keeps_the_lock() {
    let table = crowded(2, 1);
    let bucket = table.bucket(1);
    let elsewhere = (2..).find(|&key| table.bucket(key) != bucket).unwrap();
    table.lock_for_insert(1, owner(1)).unwrap();
    let long = [0; 1001];
    let good = Write::put(1, b"one");
    for (writes, error) in [
        (
            vec![good, Write::put(elsewhere, b"")],
            WriteError::Foreign { key: elsewhere, bucket: table.bucket(elsewhere) },
        ),
        (vec![Write::put(1, &long)], WriteError::TooLong { key: 1, len: 1001 }),
        (vec![good, Write::delete(1)], WriteError::Repeated(1)),
    ] {
        assert_eq!(table.commit(bucket, owner(1), &writes), Err(error));
        assert_eq!(table.apply(bucket, Version::ZERO, &writes), Err(error));
    }
    let nowhere = Bucket::new(2);
    assert_eq!(table.commit(nowhere, owner(1), &[]), Err(WriteError::NoBucket(nowhere)));
    assert_eq!(table.snapshot(nowhere), Ok(None));
    assert_eq!(table.usage(), EMPTY);
    assert_eq!(table.commit(bucket, owner(1), &[good]), Ok(version(1)));
}

#[test]
fn many_writes_to_one_bucket_with_a_repeated_key_are_refused() {
    let table = crowded(1, 4);
    let mut writes: Vec<_> = (0..20).map(|key| Write::put(key, b"")).collect();
    writes.push(Write::delete(13));
    assert_eq!(table.apply(Bucket::new(0), Version::ZERO, &writes), Err(WriteError::Repeated(13)));
    writes.pop();
    assert_eq!(table.apply(Bucket::new(0), Version::ZERO, &writes), Ok(Applied::Now));
}

#[test]
fn a_reserved_insert_succeeds_even_when_the_table_is_full() {
    let table = crowded(2, 1);
    let (a, b) = (Bucket::new(0), Bucket::new(1));
    for key in keys_of(&table, a).take(7).chain(keys_of(&table, b).take(7)) {
        table.load(key, b"x").unwrap();
    }
    let mut more_a = keys_of(&table, a).skip(7);
    let mut more_b = keys_of(&table, b).skip(7);
    let reserved = more_a.next().unwrap();
    table.lock_for_insert(reserved, owner(1)).unwrap();
    assert_eq!(table.usage().overflow_blocks, 1);

    let refused = more_b.next().unwrap();
    assert_eq!(table.lock_for_insert(refused, owner(2)), Err(LockError::Full(Full::Table)));
    assert_eq!(table.load(refused, b"x"), Err(WriteError::Full(Full::Table)));
    assert_eq!(table.locks().count(), 1);

    table.commit(a, owner(1), &[Write::put(reserved, b"x")]).unwrap();
    assert_eq!(table.usage().overflow_blocks, 1);
    table.apply(a, version(8), &[Write::delete(reserved)]).unwrap();
    assert_eq!(table.usage().overflow_blocks, 0);
    table.load(refused, b"x").unwrap();
}

#[test]
fn an_abort_gives_reserved_blocks_back() {
    let table = crowded(1, 4);
    for key in 0..30 {
        table.lock_for_insert(key, owner(1)).unwrap();
    }
    assert_eq!(table.usage().overflow_blocks, 4, "30 entries need 5 blocks");
    assert!(table.unlock(Bucket::new(0), owner(1)));
    assert_eq!(table.usage(), EMPTY);
    assert_eq!(table.memory.reserved(0), 0);
}

#[test]
fn a_bucket_has_a_limit() {
    let table = crowded(1, 100);
    let slots = 7 * 33;
    for key in 0..slots {
        table.load(key, b"").unwrap();
    }
    assert_eq!(table.load(slots, b""), Err(WriteError::Full(Full::Bucket)));
    assert_eq!(table.lock_for_insert(slots, owner(1)), Err(LockError::Full(Full::Bucket)));
    table.load(3, b"updates work").unwrap();
    assert_eq!(table.get(slots - 1, None).unwrap().value.as_deref(), Some(&b""[..]));
    for key in 0..slots {
        let version = table.get(key, None).unwrap().version;
        table.apply(Bucket::new(0), version, &[Write::delete(key)]).unwrap();
    }
    assert_eq!(table.usage(), EMPTY);
}

#[test]
fn the_last_version_is_not_left() {
    let table = crowded(1, 1);
    let bucket = Bucket::new(0);
    let entries = table.get(0, None).map(|_| Vec::new()).unwrap();
    let snapshot = Snapshot { bucket, version: Version::MAX, entries };
    assert_eq!(table.install(&snapshot), Ok(Applied::Now));
    let full = Full::Versions;
    assert_eq!(table.lock_for_insert(0, owner(1)), Err(LockError::Full(full)));
    assert_eq!(table.lock_for_update(0, owner(1)), Err(LockError::Full(full)));
    assert_eq!(table.load(0, b""), Err(WriteError::Full(full)));
    assert_eq!(table.apply(bucket, Version::MAX, &[]), Err(WriteError::Full(full)));
    assert_eq!(table.locks().count(), 0);
}

#[test]
fn a_backup_applies_commits_once_and_in_order() {
    let table = crowded(1, 1);
    let bucket = Bucket::new(0);
    let first = [Write::put(1, b"1")];
    let second = [Write::put(1, b"2")];
    assert_eq!(table.apply(bucket, version(1), &second), Err(WriteError::Missed(version(0))));
    assert_eq!(table.apply(bucket, version(0), &first), Ok(Applied::Now));
    assert_eq!(table.apply(bucket, version(1), &second), Ok(Applied::Now));
    assert_eq!(table.apply(bucket, version(0), &first), Ok(Applied::Before));
    assert_eq!(table.apply(bucket, version(1), &second), Ok(Applied::Before));
    assert_eq!(&*table.get(1, None).unwrap().value.unwrap(), b"2");
}

#[test]
fn a_long_value_lives_as_long_as_it_is_read() {
    let table = crowded(1, 1);
    let (old, new) = ([1; 1000], [2; 17]);
    table.load(1, &old).unwrap();
    assert_eq!(table.usage(), Usage { long_values: 1, long_bytes: 1000, ..EMPTY });
    let read = table.get(1, None).unwrap().value.unwrap();
    let copy = read.clone();
    table.load(1, &new).unwrap();
    assert_eq!(table.usage(), Usage { long_values: 2, long_bytes: 1017, ..EMPTY });
    assert_eq!((&*read, &*copy), (&old[..], &old[..]));
    drop((read, copy));
    assert_eq!(table.usage(), Usage { long_values: 1, long_bytes: 17, ..EMPTY });
    table.load(1, b"short").unwrap();
    assert_eq!(table.usage(), EMPTY);
    table.load(1, &old).unwrap();
    let kept = table.lock_for_update(1, owner(1)).unwrap().value.unwrap();
    drop(table);
    assert_eq!(&*kept, old, "the table is gone");
}

#[test]
fn values_have_any_length() {
    for inline in [0, 1, 7, 8, 16, 40, 63, MAX_INLINE] {
        let table = Config::new(10).inline(inline).max_value(100).build().unwrap();
        for round in 0..2 {
            for len in 0..=100 {
                let value: Vec<_> = (0..len).map(|i| (i + round) as u8).collect();
                table.load(1, &value).unwrap();
                assert_eq!(&*table.get(1, None).unwrap().value.unwrap(), value, "inline {inline}");
                let long = u64::from(len > inline);
                assert_eq!(table.usage().long_values, long, "{len} bytes, {inline} of them inline");
            }
        }
    }
}

#[test]
fn a_replica_is_rebuilt_from_snapshots() {
    let table = crowded(5, 20);
    for key in 0..60 {
        table.load(key, &vec![key as u8; key as usize]).unwrap();
    }
    let replica = crowded(5, 20);
    // What is there is replaced.
    for key in 50..80 {
        replica.load(key, &[9; 30]).unwrap();
    }
    let expected = snapshots(&table);
    for snapshot in &expected {
        let newer = replica.get(snapshot.entries[0].0, None).unwrap().version < snapshot.version;
        let applied = if newer { Applied::Now } else { Applied::Before };
        assert_eq!(replica.install(snapshot), Ok(applied));
        assert_eq!(replica.install(snapshot), Ok(Applied::Before));
    }
    assert_eq!(snapshots(&replica), expected);
    drop(expected);
    assert_eq!(replica.usage(), table.usage());
}

#[test]
fn an_old_snapshot_does_not_replace_newer_contents() {
    let table = crowded(1, 1);
    table.load(1, b"old").unwrap();
    let old = snapshots(&table);
    table.load(1, b"new").unwrap();
    let new = snapshots(&table);
    assert_eq!(table.install(&old[0]), Ok(Applied::Before));
    assert_eq!(snapshots(&table), new);
}

#[test]
fn recovery_unlocks_what_the_dead_held() {
    let table = crowded(64, 1);
    let mut locked = std::collections::HashSet::new();
    for key in 0..20 {
        if locked.insert(table.bucket(key)) {
            table.lock_for_insert(key, owner(key + 1)).unwrap();
        }
    }
    let dead = table.locks().filter(|(_, owner)| owner.get() % 2 == 0).count();
    assert_eq!(table.unlock_all(|owner| owner.get() % 2 == 0), dead);
    assert!(table.locks().all(|(_, owner)| owner.get() % 2 == 1));
    assert_eq!(table.locks().count(), locked.len() - dead);
}

#[test]
fn a_table_holds_its_capacity_and_not_much_more() {
    let capacity = if cfg!(miri) { 300 } else { 100_000 };
    for (name, key) in [("counted", (|i| i) as fn(u64) -> u64), ("spread", |i| (i << 32) | (i % 3))]
    {
        let table = Config::new(capacity).inline(8).seed(0xabc).build().unwrap();
        for i in 0..capacity as u64 {
            table.load(key(i), &i.to_ne_bytes()).unwrap_or_else(|e| panic!("{name} {i}: {e}"));
        }
        for i in 0..capacity as u64 {
            let value = table.get(key(i), None).unwrap().value;
            assert_eq!(value.as_deref(), Some(&i.to_ne_bytes()[..]), "{name} {i}");
        }
        let more = (capacity as u64..).find(|&i| table.load(key(i), &[]).is_err()).unwrap();
        assert_eq!(table.load(key(more), &[]), Err(WriteError::Full(Full::Table)));
        println!("{name}: full at {more} of {capacity}, {table:?}");
    }
}

#[test]
fn configurations_are_checked() {
    let build = |config: Config| config.build().map(|_| ()).unwrap_err();
    assert_eq!(build(Config::new(1).inline(65)), ConfigError::Inline(65));
    assert_eq!(
        build(Config::new(1).max_value(MAX_VALUE + 1)),
        ConfigError::MaxValue(MAX_VALUE + 1)
    );
    assert_eq!(build(Config::new(usize::MAX)), ConfigError::Capacity(usize::MAX));
    assert_eq!(build(Config::new(1 << 40)), ConfigError::Capacity(1 << 40));
    let empty = Config::new(0).build().unwrap();
    empty.load(1, b"a small table has some room").unwrap();
}
