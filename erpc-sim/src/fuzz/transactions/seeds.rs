//! The first inputs of the transaction store's targets.

use erpc_txn::lists::pack;
use erpc_txn::log::{Entry, Group, Operation, Partitions, Record};
use erpc_txn::participant::{Access, Kind, Participant, Place, Seen};
use erpc_txn::proto::{
    AppendRequest, CommitRequest, ExecuteRequest, FinishRequest, Introduction, UnlockRequest,
    ValidateRequest,
};
use erpc_txn::table::Version;

use super::super::seeds::{Seed, push};
use super::requests::{
    APPEND, BACKUP_OF, COMMIT_BACKUP, COMMIT_PRIMARY, COORDINATOR, EPOCH, EXECUTE, FINISH,
    INCARNATION, LOADED, MEET, OTHER, PRIMARY_OF, REPAIRED, TABLE, UNLOCK, VALIDATE, encoded, keys,
    owner, participant,
};

/// The sequence number of the requests' transaction.
const ME: u64 = 8;

pub(in super::super) fn seeds(seeds: &mut Vec<Seed>) {
    let (ring, participant) = participant();
    let own: Vec<_> = keys(&ring, PRIMARY_OF).take(LOADED + 2).collect();
    let backed: Vec<_> = keys(&ring, BACKUP_OF).take(LOADED).collect();
    let update = record(&[group(&participant, PRIMARY_OF, own[1], Operation::Update(b"new"))]);
    let insert = record(&[group(&participant, PRIMARY_OF, own[LOADED], Operation::Insert(b""))]);
    let groups = [
        group(&participant, PRIMARY_OF, own[1], Operation::Update(b"new")),
        group(&participant, BACKUP_OF, backed[1], Operation::Delete),
    ];
    let both = record(&groups);
    records(seeds, &[("update", &update), ("insert", &insert), ("two-partitions", &both)]);

    let all = |kind| own.iter().map(move |&key| (key, kind)).collect::<Vec<_>>();
    let read = execute(EPOCH, &all(Kind::Read));
    let lock = execute(EPOCH, &[(own[1], Kind::Update), (own[LOADED], Kind::Insert)]);
    let unlock = places(&own, false);
    let write = [request(APPEND, &append(0, &update)), request(COMMIT_PRIMARY, &commit(&update))];
    let finish = |floor, ended: &[u64], bury| request(FINISH, &finished(floor, ended, bury));
    let meet = participant.introduction();
    let mut push = |name: &str, requests: &[&[u8]]| {
        push(seeds, "txn_requests", name, requests.concat());
    };
    push("reads", &[&request(EXECUTE, &read), &request(VALIDATE, &seen(&own, 1))]);
    push("reads-of-other-versions", &[&request(VALIDATE, &seen(&own, 3))]);
    push("locks", &[&request(EXECUTE, &lock), &request(UNLOCK, &unlock)]);
    let done = finish(0, &[ME], false);
    push("commit", &[&request(EXECUTE, &lock), &write.concat(), &done]);
    push("floor", &[&request(APPEND, &append(0, &update)), &finish(ME + 1, &[], false)]);
    push(
        "buried",
        &[&finish(2, &[ME], true), &request(EXECUTE, &lock), &finish(ME + 1, &[], true)],
    );
    let bury = request(UNLOCK, &places(&own, true));
    push("unlocked-first", &[&bury, &request(EXECUTE, &lock)]);
    for (name, node, incarnation) in [("meets", 1, 7), ("restarted", 1, 8), ("no-member", 9, 7)] {
        let member = Introduction { node, incarnation, ..meet.into() };
        push(name, &[&request(MEET, &encoded(&member))]);
    }
    push("commit-without-lock", &[&write.concat()]);
    push("commit-of-two", &[&request(EXECUTE, &lock), &request(COMMIT_PRIMARY, &commit(&both))]);
    let deleted = record(&[group(&participant, BACKUP_OF, backed[1], Operation::Delete)]);
    let next = |base| {
        let mut group = group(&participant, BACKUP_OF, backed[1], Operation::Insert(b"again"));
        group.base = Version::new(base).expect("a low version");
        group.new = group.base.next().expect("a low version");
        record(&[group])
    };
    let at_backup = |record: &[u8]| request(COMMIT_BACKUP, &commit(record));
    push("backup", &[&at_backup(&deleted), &at_backup(&next(2))]);
    push("backup-with-a-gap", &[&at_backup(&next(5))]);
    let long = record(&[group(&participant, PRIMARY_OF, own[1], Operation::Update(&[7; 101]))]);
    push("too-long", &[&request(APPEND, &append(0, &long))]);
    let of_others = |sequence| {
        record_of(sequence, &[group(&participant, PRIMARY_OF, own[1], Operation::Delete)])
    };
    let stored = (1..8).map(of_others).map(|record| request(APPEND, &append(0, &record)));
    push("full-log", &[&stored.collect::<Vec<_>>().concat()]);
    push("ended-first", &[&request(APPEND, &append(ME + 1, &update))]);
    let mut broken = update.clone();
    *broken.last_mut().expect("a record has bytes") ^= 1;
    push("repaired", &[&request(REPAIRED | APPEND, &append(0, &broken))]);
    push("wrong-checksum", &[&request(APPEND, &append(0, &broken))]);
    push("other-epoch", &[&request(EXECUTE, &execute(EPOCH + 1, &all(Kind::Update)))]);
    let none = pack(&[Access { place: place(own[1]), kind: Kind::Read }]);
    let none = [&[0], &none[1..]].concat();
    push("no-kind", &[&request(EXECUTE, &execute_list(EPOCH, none))]);
    push("foreign-keys", &[&request(EXECUTE, &execute(EPOCH, &[(backed[0], Kind::Read)]))]);
    push("not-a-message", &[&request(EXECUTE, &[0xFF]), &request(APPEND, &[0x12, 0xFF])]);
}

fn records(seeds: &mut Vec<Seed>, records: &[(&str, &Vec<u8>)]) {
    for (name, record) in records {
        push(seeds, "txn_record", *name, [&[0], &record[..]].concat());
        let mut changed = [&[super::REPAIRED], &record[..]].concat();
        // In the first group.
        changed[47] ^= 1;
        push(seeds, "txn_record", format!("{name}-repaired"), &*changed);
        let mut reserved = [&[super::REPAIRED], &record[..]].concat();
        reserved[14] = 1;
        push(seeds, "txn_record", format!("{name}-reserved"), reserved);
        // A byte too many, which the length and the checksum include.
        let longer = [&[super::REPAIRED], &record[..], &[0]].concat();
        push(seeds, "txn_record", format!("{name}-longer"), longer);
        changed.truncate(record.len() - 2);
        push(seeds, "txn_record", format!("{name}-short"), changed);
        push(seeds, "txn_record", format!("{name}-trailing"), [&[0], &record[..], &[0]].concat());
    }
}

fn group<'a>(
    participant: &Participant,
    partition: u16,
    key: u64,
    operation: Operation<'a>,
) -> Group<'a> {
    let table = participant.replica(TABLE, partition).expect("node 0 holds it");
    let bucket = table.bucket(key);
    let snapshot = table.snapshot(bucket).expect("the bucket is not locked");
    let base = snapshot.map_or(Version::ZERO, |snapshot| snapshot.version);
    let new = base.next().expect("a low version");
    Group { table: TABLE, partition, bucket, base, new, entries: [Entry { key, operation }].into() }
}

fn record(groups: &[Group<'_>]) -> Vec<u8> {
    record_of(ME, groups)
}

fn record_of(sequence: u64, groups: &[Group<'_>]) -> Vec<u8> {
    let mut partitions: Partitions = groups.iter().map(|group| group.partition).collect();
    partitions.dedup();
    let record = Record {
        epoch: EPOCH,
        coordinator: COORDINATOR,
        transaction: owner(sequence),
        partitions,
        groups: groups.iter().cloned().collect(),
    };
    let mut bytes = Vec::new();
    record.encode(&mut bytes).expect("the record is consistent");
    bytes
}

/// A request as the target reads it.
fn request(method: u8, body: &[u8]) -> Vec<u8> {
    let len = u16::try_from(body.len()).expect("a short request");
    [&[method], &len.to_le_bytes()[..], body].concat()
}

fn place(key: u64) -> Place {
    Place { table: TABLE, key }
}

fn execute(epoch: u32, accesses: &[(u64, Kind)]) -> Vec<u8> {
    let access = |&(key, kind): &(u64, Kind)| Access { place: place(key), kind };
    let accesses: Vec<_> = accesses.iter().map(access).collect();
    execute_list(epoch, pack(&accesses).to_vec())
}

fn execute_list(epoch: u32, accesses: Vec<u8>) -> Vec<u8> {
    let accesses = accesses.into();
    let (incarnation, transaction) = (INCARNATION, owner(ME).get());
    encoded(&ExecuteRequest { epoch, incarnation, transaction, accesses })
}

fn seen(keys: &[u64], version: u64) -> Vec<u8> {
    let version = Version::new(version).expect("a low version");
    let reads: Vec<_> = keys.iter().map(|&key| Seen { place: place(key), version }).collect();
    let reads = pack(&reads);
    let (incarnation, transaction) = (INCARNATION, owner(OTHER).get());
    encoded(&ValidateRequest { epoch: EPOCH, incarnation, transaction, reads })
}

fn places(keys: &[u64], bury: bool) -> Vec<u8> {
    let keys: Vec<_> = keys.iter().copied().map(place).collect();
    let keys = pack(&keys);
    let (incarnation, transaction) = (INCARNATION, owner(ME).get());
    encoded(&UnlockRequest { epoch: EPOCH, incarnation, transaction, keys, bury })
}

fn append(floor: u64, record: &[u8]) -> Vec<u8> {
    let (record, ended) = (record.to_vec().into(), 3u64.to_le_bytes().to_vec().into());
    encoded(&AppendRequest { incarnation: INCARNATION, record, floor, ended })
}

fn commit(record: &[u8]) -> Vec<u8> {
    encoded(&CommitRequest { incarnation: INCARNATION, record: record.to_vec().into() })
}

fn finished(floor: u64, ended: &[u64], bury: bool) -> Vec<u8> {
    let (node, thread) = (COORDINATOR.node.into(), COORDINATOR.thread.into());
    let (incarnation, ended) = (INCARNATION, ended.to_vec());
    encoded(&FinishRequest { epoch: EPOCH, incarnation, node, thread, floor, ended, bury })
}
