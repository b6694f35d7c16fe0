use std::collections::BTreeMap;

use proptest::collection::vec;
use proptest::prelude::*;
use smallvec::smallvec;

use super::*;
use crate::cluster::MAX_NODES;
use crate::table::{Applied, Bucket, Config, Owner, Snapshot, Table, Version, Write};

/// A group with owned values.
type OwnedGroup = (u16, u16, u32, u64, Vec<(u64, u8, Vec<u8>)>);

fn group() -> impl Strategy<Value = OwnedGroup> {
    let entry = (any::<u64>(), 0u8..3, vec(any::<u8>(), 0..50));
    (any::<u16>(), 0u16..6, any::<u32>(), 0..Version::MAX.get(), vec(entry, 1..5))
}

fn record<'a>(ids: (u32, u16, u16, u64), groups: &'a [OwnedGroup]) -> Record<'a> {
    let mut groups: Groups<'_> = groups
        .iter()
        .map(|(table, partition, bucket, base, entries)| Group {
            table: *table,
            partition: *partition,
            bucket: Bucket::new(*bucket),
            base: Version::new(*base).unwrap(),
            new: Version::new(base + 1).unwrap(),
            entries: entries.iter().map(|(key, kind, value)| entry(*key, *kind, value)).collect(),
        })
        .collect();
    let bucket = |group: &Group<'_>| (group.table, group.partition, group.bucket);
    groups.sort_by_key(bucket);
    groups.dedup_by_key(|group| bucket(group));
    for group in &mut groups {
        group.entries.sort_by_key(|entry| entry.key);
        group.entries.dedup_by_key(|entry| entry.key);
    }
    let mut partitions: Partitions = groups.iter().map(|group| group.partition).collect();
    partitions.sort_unstable();
    partitions.dedup();
    Record {
        epoch: ids.0,
        coordinator: Coordinator { node: ids.1, thread: ids.2 },
        transaction: Owner::new(ids.3.max(1)).unwrap(),
        partitions,
        groups,
    }
}

fn entry(key: u64, kind: u8, value: &[u8]) -> Entry<'_> {
    let operation = match kind {
        0 => Operation::Insert(value),
        1 => Operation::Update(value),
        _ => Operation::Delete,
    };
    Entry { key, operation }
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut bytes).expect("a good record");
    bytes
}

/// A record with one update of this length.
fn simple(transaction: u64, len: usize) -> Vec<u8> {
    let groups = [(1, 2, 3, transaction, vec![(transaction, 1, vec![transaction as u8; len])])];
    encoded(&record((7, 1, 2, transaction), &groups))
}

/// Writes the checksum that the bytes should have.
fn seal(bytes: &mut [u8]) {
    let checksum = crc32c::crc32c(&bytes[8..]);
    bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
}

#[test]
fn the_bytes_of_a_record_are_these() {
    let groups =
        [(0x0102, 0x0304, 0x0506_0708, 9, vec![(10, 0, b"abc".to_vec()), (11, 2, vec![])])];
    let bytes = encoded(&record((0x2122_2324, 0x3132, 0x4142, 0x51), &groups));
    let mut expected = Vec::new();
    expected.extend_from_slice(b"eTXl");
    expected.extend_from_slice(&bytes[4..8]);
    expected.extend_from_slice(&[99, 0, 0, 0, 1, 0, 1, 0, 1, 0, 0, 0]);
    expected.extend_from_slice(&[0x24, 0x23, 0x22, 0x21, 0x32, 0x31, 0x42, 0x41]);
    expected.extend_from_slice(&[0x51, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    expected.extend_from_slice(&[0x04, 0x03]);
    expected.extend_from_slice(&[0x02, 0x01, 0x04, 0x03, 0x08, 0x07, 0x06, 0x05]);
    expected.extend_from_slice(&[9, 0, 0, 0, 0, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0]);
    expected.extend_from_slice(&[10, 0, 0, 0, 0, 0, 0, 0, 1, 3, 0, 0, 0, b'a', b'b', b'c']);
    expected.extend_from_slice(&[11, 0, 0, 0, 0, 0, 0, 0, 3, 0, 0, 0, 0]);
    assert_eq!(bytes, expected);
    seal(&mut expected);
    assert_eq!(bytes, expected, "the checksum");
}

#[test]
fn records_that_break_a_rule_are_neither_written_nor_read() {
    let groups = [(1, 2, 3, 4, vec![(5, 1, vec![6])]), (1, 3, 3, 4, vec![(5, 1, vec![6])])];
    let good = record((1, 1, 1, 1), &groups);
    type Break = fn(&mut Record<'_>);
    let break_it: [(Rule, Break); 9] = [
        (Rule::PartitionsAscend, |record| record.partitions.swap(0, 1)),
        (Rule::PartitionsOfGroups, |record| record.partitions.push(9)),
        (Rule::PartitionsOfGroups, |record| record.partitions.truncate(1)),
        (Rule::NotEmpty, |record| record.groups[0].entries.clear()),
        (Rule::NotEmpty, |record| record.groups.clear()),
        (Rule::NextVersion, |record| record.groups[1].new = Version::ZERO),
        (Rule::GroupsAscend, |record| record.groups.swap(0, 1)),
        (Rule::GroupsAscend, |record| {
            record.groups[0].partition = 3;
            record.partitions = smallvec![3];
        }),
        (Rule::KeysOnce, |record| {
            let entry = record.groups[1].entries[0];
            record.groups[1].entries.push(entry);
        }),
    ];
    for (rule, break_it) in break_it {
        let mut bad = good.clone();
        break_it(&mut bad);
        let mut out = vec![1];
        assert_eq!(bad.encode(&mut out), Err(EncodeError::Inconsistent(rule)));
        assert_eq!(out, [1], "unchanged");
    }

    // The new version of the first group, and the second of two partitions.
    for (at, rule) in [(44 + 16, Rule::NextVersion), (42, Rule::PartitionsOfGroups)] {
        let mut bytes = encoded(&good);
        bytes[at] += 1;
        assert_eq!(Record::decode(&bytes), Err(DecodeError::Checksum));
        seal(&mut bytes);
        assert_eq!(Record::decode(&bytes), Err(DecodeError::Inconsistent(rule)));
    }
}

#[test]
fn errors_say_what_is_wrong() {
    let good = simple(1, 10);
    let with = |at: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[at] = byte;
        seal(&mut bytes);
        Record::decode(&bytes).map(|_| ()).unwrap_err()
    };
    assert_eq!(with(0, 0), DecodeError::Magic);
    assert_eq!(with(8, 39), DecodeError::Length(39));
    assert_eq!(with(11, 0xff), DecodeError::Length(0xff00_0000 + good.len()));
    assert_eq!(with(12, 2), DecodeError::Format(2));
    assert_eq!(with(13, 1), DecodeError::Malformed, "a reserved byte");
    assert_eq!(with(19, 0xff), DecodeError::Malformed, "too many groups");
    assert_eq!(with(28, 0), DecodeError::Malformed, "no transaction");
    let mut longer = [&good[..], &[0]].concat();
    longer[8..12].copy_from_slice(&(good.len() as u32 + 1).to_le_bytes());
    seal(&mut longer);
    assert_eq!(Record::decode(&longer), Err(DecodeError::Malformed), "a byte too many");
    assert_eq!(Record::decode(&good[..good.len() - 1]), Err(DecodeError::Incomplete(good.len())));
    assert_eq!(Record::decode(&[]), Err(DecodeError::Incomplete(40)));
}

#[test]
fn a_log_keeps_its_bounds() {
    let size = simple(1, 60).len();
    let mut log = Log::new(3 * size + size / 2, 10);
    for sequence in [3, 1, 2] {
        assert_eq!(log.append(sequence, &simple(sequence, 60)), Ok(Appended::Now));
    }
    assert_eq!(log.append(4, &simple(4, 60)), Err(LogError::Full));
    assert_eq!(log.append(2, &simple(2, 60)), Ok(Appended::Before));
    assert_eq!(log.append(2, &simple(3, 60)), Err(LogError::Different));
    let long = simple(4, 4 * size);
    assert_eq!(log.append(4, &long), Err(LogError::TooLong(long.len())));

    assert!(log.free(2) && !log.free(2));
    assert_eq!(log.append(4, &simple(4, 60)), Ok(Appended::Now));
    assert_eq!((log.len(), log.bytes()), (3, 3 * size));
    let mut few = Log::new(1 << 20, 2);
    few.append(1, &simple(1, 0)).unwrap();
    few.append(2, &simple(2, 0)).unwrap();
    assert_eq!(few.append(3, &simple(3, 0)), Err(LogError::Full));
}

#[test]
fn no_record_comes_back_below_the_floor() {
    let mut log = Log::new(1 << 20, 10);
    for sequence in 1..=4 {
        log.append(sequence, &simple(sequence, 9)).unwrap();
    }
    log.raise_floor(4);
    assert_eq!((log.len(), log.bytes()), (1, simple(4, 9).len()));
    assert_eq!(log.append(2, &simple(2, 9)), Ok(Appended::Before), "a late repetition");
    log.raise_floor(1);
    assert_eq!((log.floor(), log.record(2)), (4, None));
    assert_eq!(log.record(4), Some(&simple(4, 9)[..]));
}

#[test]
fn the_id_of_a_transaction_names_its_coordinator() {
    let coordinator = Coordinator { node: MAX_NODES - 1, thread: MAX_THREADS - 1 };
    let last = coordinator.transaction(MAX_SEQUENCE).expect("all numbers are in range");
    assert_eq!(last.get(), u64::MAX);
    assert_eq!(Coordinator::of(last), (coordinator, MAX_SEQUENCE));
    let first = Coordinator { node: 0, thread: 0 }.transaction(1).expect("all are in range");
    assert_eq!(first.get(), 1);
    assert_eq!(coordinator.transaction(0), None);
    assert_eq!(coordinator.transaction(MAX_SEQUENCE + 1), None);
    assert_eq!(Coordinator { node: MAX_NODES, thread: 0 }.transaction(1), None);
    assert_eq!(Coordinator { node: 0, thread: MAX_THREADS }.transaction(1), None);
}

fn snapshots(table: &Table) -> Vec<Snapshot> {
    table.snapshots().map(|snapshot| snapshot.expect("nobody commits")).collect()
}

/// Transactions over one table with one partition, logged. Then the table is lost, and rebuilt from
/// its contents in the middle and the records after that, in whatever order they come.
#[test]
fn a_lost_table_is_rebuilt_from_a_copy_and_the_log() {
    let build = || Config::new(200).inline(8).build().expect("memory");
    let (lost, copy) = (build(), build());
    let mut log = Log::new(1 << 20, 1000);
    let mut state = 88172645463325252u64;
    let mut random = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below
    };
    let count = if cfg!(miri) { 40 } else { 600 };
    for transaction in 1..=count {
        let me = Owner::new(transaction).unwrap();
        let mut groups = BTreeMap::new();
        let value = vec![transaction as u8; random(20) as usize];
        for _ in 0..1 + random(3) {
            let key = random(120);
            let (operation, base) = match lost.lock_for_update(key, me) {
                Ok(read) if random(3) == 0 => (Operation::Delete, read.version),
                Ok(read) => (Operation::Update(&value), read.version),
                Err(_) => (Operation::Insert(&value), lost.lock_for_insert(key, me).unwrap()),
            };
            let entries = groups.entry(lost.bucket(key)).or_insert((base, BTreeMap::new()));
            entries.1.insert(key, operation);
        }
        // A `BTreeMap` has them in ascending order.
        let groups = groups.into_iter().map(|(bucket, (base, entries))| Group {
            table: 1,
            partition: 0,
            bucket,
            base,
            new: base.next().unwrap(),
            entries: entries.into_iter().map(|(key, operation)| Entry { key, operation }).collect(),
        });
        let record = Record {
            epoch: 1,
            coordinator: Coordinator { node: 0, thread: 0 },
            transaction: me,
            partitions: smallvec![0],
            groups: groups.collect(),
        };
        log.append(transaction, &encoded(&record)).unwrap();
        for group in &record.groups {
            let writes: Vec<Write<'_>> = group.entries.iter().map(Entry::write).collect();
            assert_eq!(lost.commit(group.bucket, me, &writes), Ok(group.new));
        }
        if transaction == count / 2 {
            for snapshot in snapshots(&lost) {
                copy.install(&snapshot).unwrap();
            }
            // A few records more than needed stay.
            log.raise_floor(count / 2 - 10);
        }
    }

    // Newest first. A record that comes too early waits for the next round.
    let mut rounds = 0;
    let mut waiting = true;
    while waiting {
        waiting = false;
        rounds += 1;
        assert!(rounds <= count, "replay does not end");
        let mut records: Vec<_> = log.records().map(Result::unwrap).collect();
        records.reverse();
        for group in records.iter().flat_map(|record| &record.groups) {
            let writes: Vec<Write<'_>> = group.entries.iter().map(Entry::write).collect();
            match copy.apply(group.bucket, group.base, &writes) {
                Ok(Applied::Now | Applied::Before) => {}
                Err(crate::table::WriteError::Missed(_)) => waiting = true,
                Err(error) => panic!("{error}"),
            }
        }
    }
    assert_eq!(snapshots(&copy), snapshots(&lost));
    assert_eq!(copy.usage(), lost.usage());
}

proptest! {
    #[test]
    fn what_is_encoded_is_decoded(
        ids in any::<(u32, u16, u16, u64)>(),
        groups in vec(group(), 1..5),
        more in vec(any::<u8>(), 0..20),
    ) {
        // Before the record: the two that are compared must be of values that live as long.
        let bytes = [encoded(&record(ids, &groups)), more.clone()].concat();
        let record = record(ids, &groups);
        let len = bytes.len() - more.len();
        prop_assert_eq!(len, record.encoded_len());
        let of_groups = record.groups.iter().map(|of| (of.table, of.partition, of.bucket));
        let of_groups: Vec<_> = of_groups.collect();
        prop_assert_eq!(buckets(&bytes).collect::<Vec<_>>(), of_groups);
        prop_assert_eq!(Record::decode(&bytes), Ok((record, len)));
    }

    #[test]
    fn a_changed_byte_is_noticed(groups in vec(group(), 1..4), at: usize, change in 1u8..) {
        let mut bytes = encoded(&record((1, 2, 3, 4), &groups));
        let at = at % bytes.len();
        bytes[at] ^= change;
        prop_assert!(Record::decode(&bytes).is_err(), "byte {}", at);
    }

    /// Records from an attacker, who can make checksums.
    #[test]
    fn whatever_decodes_encodes_to_the_same_bytes(
        groups in vec(group(), 1..4),
        changes in vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        cut in any::<prop::sample::Index>(),
        is_cut: bool,
    ) {
        let mut bytes = encoded(&record((1, 2, 3, 4), &groups));
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if is_cut {
            bytes.truncate(8 + cut.index(bytes.len() - 8));
            let len = bytes.len() as u32;
            if let Some(field) = bytes.get_mut(8..12) {
                field.copy_from_slice(&len.to_le_bytes());
            }
        }
        seal(&mut bytes);
        if let Ok((record, len)) = Record::decode(&bytes) {
            prop_assert_eq!(encoded(&record), &bytes[..len]);
        }
    }

    #[test]
    fn noise_is_no_record(mut bytes in vec(any::<u8>(), 0..200), begins_well: bool) {
        if begins_well && bytes.len() >= 12 {
            bytes[..4].copy_from_slice(b"eTXl");
            let len = bytes.len() as u32;
            bytes[8..12].copy_from_slice(&len.to_le_bytes());
            seal(&mut bytes);
        }
        if let Ok((record, len)) = Record::decode(&bytes) {
            prop_assert_eq!(encoded(&record), &bytes[..len]);
        }
    }

    /// What a log does, compared with a map.
    #[test]
    fn a_log_is_a_bounded_map(steps in vec((1u64..30, 0usize..200, 0u8..4), 1..100)) {
        let mut log = Log::new(1000, 8);
        let mut map: BTreeMap<u64, Vec<u8>> = BTreeMap::new();
        let mut floor = 0;
        for (sequence, len, step) in steps {
            match step {
                0 => {
                    prop_assert_eq!(log.free(sequence), map.remove(&sequence).is_some());
                }
                1 if sequence < floor + 5 => {
                    log.raise_floor(sequence);
                    floor = floor.max(sequence);
                    map.retain(|&of, _| of >= floor);
                }
                _ => {
                    let bytes = simple(sequence, len);
                    let used: usize = map.values().map(Vec::len).sum();
                    let expected = match map.get(&sequence) {
                        _ if sequence < floor => Ok(Appended::Before),
                        Some(stored) if *stored == bytes => Ok(Appended::Before),
                        Some(_) => Err(LogError::Different),
                        None if map.len() == 8 || used + bytes.len() > 1000 => Err(LogError::Full),
                        None => Ok(Appended::Now),
                    };
                    prop_assert_eq!(log.append(sequence, &bytes), expected);
                    if expected == Ok(Appended::Now) {
                        map.insert(sequence, bytes);
                    }
                }
            }
            prop_assert_eq!((log.len(), log.floor()), (map.len(), floor));
            prop_assert_eq!(log.bytes(), map.values().map(Vec::len).sum::<usize>());
            for (&sequence, bytes) in &map {
                prop_assert_eq!(log.record(sequence), Some(&bytes[..]));
            }
        }
    }
}
