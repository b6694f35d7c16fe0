//! Three participants, and a coordinator that calls them directly.

use smallvec::smallvec;

use super::*;
use crate::cluster::Ring;
use crate::log::{Appended, Coordinator, Entry, Group, Operation, Record};
use crate::table::{Applied, Invalid, LockError, Owner, Table, WriteError};

const TABLE: u16 = 7;
const EPOCH: u32 = 5;
const COORDINATOR: Coordinator = Coordinator { node: 0, thread: 0 };

struct Cluster {
    ring: Arc<Ring>,
    members: Vec<Participant>,
}

fn cluster(f: usize) -> Cluster {
    let ring = Arc::new(Ring::new(EPOCH, (0..3).map(NodeId), f).expect("three nodes"));
    let settings = Settings {
        tables: [(TABLE, Config::new(100).max_value(100))].into(),
        threads: 1,
        log_bytes: 1000,
        log_records: 4,
    };
    let member = |node| {
        Participant::new(NodeId(node), incarnation(NodeId(node)), ring.clone(), settings.clone())
    };
    let members: Vec<_> = (0..3).map(|node| member(node).expect("the table is small")).collect();
    for (one, other) in (0..9).map(|pair| (&members[pair / 3], &members[pair % 3])) {
        one.meet(other.introduction()).expect("it has not restarted");
        other.accepted(one.introduction()).expect("it has not restarted");
    }
    Cluster { ring, members }
}

fn incarnation(node: NodeId) -> u32 {
    100 + u32::from(node.0)
}

fn target(of: &Participant) -> Target {
    Target { epoch: EPOCH, incarnation: incarnation(of.node()) }
}

/// A transaction of node 0.
fn owner(sequence: u64) -> Owner {
    COORDINATOR.transaction(sequence).expect("the number is in range")
}

fn place(key: u64) -> Place {
    Place { table: TABLE, key }
}

fn execute(
    at: &Participant,
    target: Target,
    me: u64,
    accesses: &[Access],
) -> Result<Vec<Found>, Refusal> {
    let mut found = Vec::new();
    at.execute(target, owner(me), accesses, |one| found.push(one)).map(|()| found)
}

impl Cluster {
    fn replicas(&self, key: u64) -> Vec<&Participant> {
        let replicas = self.ring.replicas(self.ring.partition_of(key));
        replicas.iter().map(|node| &self.members[usize::from(node.0)]).collect()
    }

    fn access(&self, me: u64, key: u64, kind: Kind) -> Result<(Bucket, Read), LockError> {
        let accesses = [Access { place: place(key), kind }];
        let primary = self.replicas(key)[0];
        let found = execute(primary, target(primary), me, &accesses);
        let Found { bucket, read } = found.expect("it is the primary").remove(0);
        Ok((bucket, read?))
    }

    /// A record of one write by node 0.
    fn record(
        &self,
        me: u64,
        key: u64,
        (bucket, read): &(Bucket, Read),
        operation: Operation<'_>,
    ) -> Vec<u8> {
        let partition = self.ring.partition_of(key);
        let base = read.version;
        let group = Group {
            table: TABLE,
            partition,
            bucket: *bucket,
            base,
            new: base.next().expect("versions are left"),
            entries: smallvec![Entry { key, operation }],
        };
        let record = Record {
            epoch: EPOCH,
            coordinator: COORDINATOR,
            transaction: owner(me),
            partitions: smallvec![partition],
            groups: smallvec![group],
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes).expect("the record is consistent");
        bytes
    }

    /// Each phase comes twice.
    fn commit(&self, key: u64, record: &[u8]) {
        for node in self.ring.log_replicas(NodeId(0)) {
            let log = &self.members[usize::from(node.0)];
            assert_eq!(log.append(target(log), record, 0, []), Ok(Appended::Now));
            assert_eq!(log.append(target(log), record, 0, []), Ok(Appended::Before));
        }
        let replicas = self.replicas(key);
        for backup in &replicas[1..] {
            assert_eq!(backup.commit(target(backup), Role::Backup, record), Ok(Applied::Now));
            assert_eq!(backup.commit(target(backup), Role::Backup, record), Ok(Applied::Before));
        }
        assert_eq!(
            replicas[0].commit(target(replicas[0]), Role::Primary, record),
            Ok(Applied::Now)
        );
        assert_eq!(
            replicas[0].commit(target(replicas[0]), Role::Primary, record),
            Ok(Applied::Before)
        );
    }

    fn assert_at_rest(&self) {
        for partition in 0..3 {
            let of = |node: &NodeId| {
                let member = &self.members[usize::from(node.0)];
                member.replica(TABLE, partition).expect("the replica is there")
            };
            let tables: Vec<_> = self.ring.replicas(partition).iter().map(of).collect();
            let contents = |table: &Table| {
                table.snapshots().collect::<Result<Vec<_>, _>>().expect("nobody writes")
            };
            for table in &tables {
                assert_eq!(table.locks().count(), 0, "locks of partition {partition}");
                assert_eq!(contents(table), contents(tables[0]), "partition {partition}");
            }
        }
    }
}

#[test]
fn repeated_phases_change_nothing() {
    for f in 0..=2 {
        let cluster = cluster(f);
        for key in 0..4 {
            let me = key + 1;
            let found = cluster.access(me, key, Kind::Insert).expect("the key is free");
            let record = cluster.record(me, key, &found, Operation::Insert(b"one"));
            cluster.commit(key, &record);
        }
        let found = cluster.access(9, 2, Kind::Update).expect("the key is there");
        assert_eq!(found.1.value.as_deref(), Some(&b"one"[..]));
        for member in &cluster.members {
            // The first two are below the floor.
            assert_eq!(member.finish(target(member), COORDINATOR, 3, [4], false), Ok(()));
            let stores = cluster.ring.log_replicas(NodeId(0)).contains(&member.node());
            let left = member.log(COORDINATOR).map(|log| log.len());
            assert_eq!(left, stores.then_some(1), "node {}", member.node());
        }
        let record = cluster.record(9, 2, &found, Operation::Delete);
        cluster.commit(2, &record);
        cluster.assert_at_rest();
        assert_eq!(cluster.access(10, 2, Kind::Read).map(|found| found.1.value), Ok(None));
    }
}

#[test]
fn a_commit_that_comes_late_does_not_disturb_the_next_owner() {
    let cluster = cluster(0);
    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let late = cluster.record(1, 8, &found, Operation::Insert(b"one"));
    cluster.commit(8, &late);
    let found = cluster.access(2, 8, Kind::Update).expect("the lock is free");
    let primary = cluster.replicas(8)[0];
    assert_eq!(primary.commit(target(primary), Role::Primary, &late), Ok(Applied::Before));
    let record = cluster.record(2, 8, &found, Operation::Update(b"two"));
    assert_eq!(primary.commit(target(primary), Role::Primary, &record), Ok(Applied::Now));
}

#[test]
fn nobody_commits_without_the_lock() {
    let cluster = cluster(0);
    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let record = cluster.record(2, 8, &found, Operation::Insert(b"one"));
    let refused = Refusal::Write(WriteError::NotOwner(Some(owner(1))));
    assert_eq!(
        cluster.replicas(8)[0].commit(target(cluster.replicas(8)[0]), Role::Primary, &record),
        Err(refused)
    );
    assert_eq!(
        cluster.replicas(8)[0].unlock(target(cluster.replicas(8)[0]), owner(2), &[place(8)], false),
        Ok(0)
    );
    assert_eq!(
        cluster.replicas(8)[0].unlock(target(cluster.replicas(8)[0]), owner(1), &[place(8)], false),
        Ok(1)
    );
    let refused = Refusal::Write(WriteError::NotOwner(None));
    assert_eq!(
        cluster.replicas(8)[0].commit(target(cluster.replicas(8)[0]), Role::Primary, &record),
        Err(refused)
    );
    cluster.assert_at_rest();
}

#[test]
fn a_phantom_fails_validation() {
    let cluster = cluster(1);
    let absent = cluster.access(1, 8, Kind::Read).expect("nobody holds the lock");
    let seen = [Seen { place: place(8), version: absent.1.version }];
    let validate = || {
        let primary = cluster.replicas(8)[0];
        primary.validate(target(primary), owner(1), &seen)
    };
    assert_eq!(validate(), Ok(Ok(())));
    let found = cluster.access(2, 8, Kind::Insert).expect("the key is free");
    assert!(matches!(validate(), Ok(Err((_, Invalid::Conflict(_))))));
    cluster.commit(8, &cluster.record(2, 8, &found, Operation::Insert(b"one")));
    assert!(matches!(validate(), Ok(Err((_, Invalid::Changed(_))))));
}

#[test]
fn foreign_requests_are_refused_and_change_nothing() {
    let cluster = cluster(1);
    let replicas = cluster.replicas(8);
    let (primary, backup) = (replicas[0], replicas[1]);
    let partition = cluster.ring.partition_of(8);
    let of = |place, kind| [Access { place, kind }];

    let write = of(place(8), Kind::Insert);
    let to = target(primary);
    let later = Target { epoch: EPOCH + 1, ..to };
    assert_eq!(execute(primary, later, 1, &write), Err(Refusal::Epoch(EPOCH)));
    let former = Target { incarnation: 1, ..to };
    assert_eq!(execute(primary, former, 1, &write), Err(Refusal::Incarnation));
    let unknown = of(Place { table: 1, key: 8 }, Kind::Read);
    assert_eq!(execute(primary, to, 1, &unknown), Err(Refusal::Table(1)));
    let refused = Refusal::Role { partition, role: Role::Primary };
    assert_eq!(execute(backup, target(backup), 1, &write), Err(refused));
    // One foreign key among others: none is locked.
    assert_eq!(execute(primary, to, 1, &[write[0], unknown[0]]), Err(Refusal::Table(1)));
    cluster.assert_at_rest();

    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let record = cluster.record(1, 8, &found, Operation::Insert(&[0; 101]));
    let long = Refusal::Write(WriteError::TooLong { key: 8, len: 101 });
    let logs = &cluster.members[0];
    assert_eq!(logs.append(target(logs), &record, 0, []), Err(long));
    let record = cluster.record(1, 8, &found, Operation::Insert(b"one"));
    let refused = Refusal::Role { partition, role: Role::Backup };
    assert_eq!(primary.commit(target(primary), Role::Backup, &record), Err(refused));
    let other = &cluster.members[2];
    let refused = Err(Refusal::Coordinator(COORDINATOR));
    assert_eq!(other.append(target(other), &record, 0, []), refused);
    let trailing = [&record[..], &[0]].concat();
    assert_eq!(primary.commit(target(primary), Role::Primary, &trailing), Err(Refusal::Trailing));
    assert!(matches!(
        primary.commit(target(primary), Role::Primary, &record[1..]),
        Err(Refusal::Record(_))
    ));
    assert_eq!(primary.commit(target(primary), Role::Primary, &record), Ok(Applied::Now));
}

#[test]
fn a_backup_reports_a_missed_commit() {
    let cluster = cluster(1);
    let (primary, backup) = (cluster.replicas(8)[0], cluster.replicas(8)[1]);
    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let first = cluster.record(1, 8, &found, Operation::Insert(b"one"));
    assert_eq!(primary.commit(target(primary), Role::Primary, &first), Ok(Applied::Now));
    let found = cluster.access(2, 8, Kind::Update).expect("the lock is free");
    let second = cluster.record(2, 8, &found, Operation::Update(b"two"));
    let missed = Refusal::Write(WriteError::Missed(Version::ZERO));
    assert_eq!(backup.commit(target(backup), Role::Backup, &second), Err(missed));
    assert_eq!(backup.commit(target(backup), Role::Backup, &first), Ok(Applied::Now));
    assert_eq!(backup.commit(target(backup), Role::Backup, &second), Ok(Applied::Now));
}

#[test]
fn a_buried_transaction_locks_nothing() {
    let cluster = cluster(0);
    let primary = cluster.replicas(8)[0];
    let insert = [Access { place: place(8), kind: Kind::Insert }];
    assert_eq!(primary.unlock(target(primary), owner(3), &[place(8)], true), Ok(0));
    assert_eq!(execute(primary, target(primary), 3, &insert), Err(Refusal::Ended));
    let read = [Access { place: place(8), kind: Kind::Read }];
    assert!(execute(primary, target(primary), 3, &read).is_ok(), "reads need no lock");
    assert_eq!(primary.buried(), 1);
    // The floor stands for all that it passes.
    assert_eq!(primary.finish(target(primary), COORDINATOR, 4, [], false), Ok(()));
    assert_eq!(primary.buried(), 0);
    assert_eq!(execute(primary, target(primary), 3, &insert), Err(Refusal::Ended));
    assert!(execute(primary, target(primary), 4, &insert).is_ok());
    assert_eq!(primary.unlock(target(primary), owner(4), &[place(8)], false), Ok(1));
    cluster.assert_at_rest();
}

#[test]
fn a_member_serves_when_all_others_have_accepted_it() {
    let ring = Arc::new(Ring::new(EPOCH, (0..3).map(NodeId), 1).expect("three nodes"));
    let settings = |threads| Settings {
        tables: [(TABLE, Config::new(100))].into(),
        threads,
        log_bytes: 1000,
        log_records: 4,
    };
    let member = |node, incarnation, threads| {
        Participant::new(NodeId(node), incarnation, ring.clone(), settings(threads))
    };
    let one = member(0, 7, 1).expect("a member");
    let others = [1, 2].map(|node| member(node, 8, 1).expect("a member"));
    let read = [Access { place: place(1), kind: Kind::Read }];
    for other in &others {
        assert_eq!(execute(&one, one.target(), 1, &read), Err(Refusal::NotActive));
        other.meet(one.introduction()).expect("it has not restarted");
        assert_eq!(one.accepted(other.introduction()), Ok(()));
    }
    assert!(one.is_active() && one.has_met(NodeId(2)));
    assert_ne!(execute(&one, one.target(), 1, &read), Err(Refusal::NotActive));

    // It has restarted: nobody accepts it, so it does not serve.
    let again = member(0, 9, 1).expect("a member");
    let refused = Err(Refusal::Restarted(NodeId(0)));
    assert!(others.iter().all(|other| other.meet(again.introduction()) == refused));
    assert_eq!(one.meet(again.introduction()), refused);
    let different = member(1, 8, 2).expect("a member");
    let refused = Err(Refusal::Configuration(NodeId(1)));
    assert_eq!(one.meet(different.introduction()), refused);
    let newer = Introduction { version: VERSION + 1, ..others[0].introduction() };
    let refused = Err(Refusal::Version { node: NodeId(1), version: VERSION + 1 });
    assert_eq!(one.meet(newer), refused);
    assert!(matches!(member(3, 1, 1), Err(BuildError::NotMember(NodeId(3)))));
    assert!(matches!(member(1, 1, 0), Err(BuildError::Threads(0))));
}
