//! Three participants, and a coordinator that calls them directly.

use super::*;
use crate::cluster::Ring;
use crate::log::{Entry, LogError};

const TABLE: u16 = 7;
const EPOCH: u32 = 5;

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
    let member = |node| Participant::new(NodeId(node), ring.clone(), settings.clone());
    let members = (0..3).map(|node| member(node).expect("the table is small")).collect();
    Cluster { ring, members }
}

fn owner(id: u64) -> Owner {
    Owner::new(id).expect("the id is not 0")
}

fn place(key: u64) -> Place {
    Place { table: TABLE, key }
}

impl Cluster {
    fn replicas(&self, key: u64) -> Vec<&Participant> {
        let replicas = self.ring.replicas(self.ring.partition_of(key));
        replicas.iter().map(|node| &self.members[usize::from(node.0)]).collect()
    }

    fn access(&self, me: u64, key: u64, kind: Kind) -> Result<Found, LockError> {
        let accesses = [Access { place: place(key), kind }];
        let found = self.replicas(key)[0].execute(EPOCH, owner(me), &accesses);
        found.expect("the primary is asked").remove(0)
    }

    /// A record of one write by node 0.
    fn record(&self, me: u64, key: u64, found: &Found, operation: Operation<'_>) -> Vec<u8> {
        let partition = self.ring.partition_of(key);
        let base = found.read.version;
        let group = Group {
            table: TABLE,
            partition,
            bucket: found.bucket,
            base,
            new: base.next().expect("versions are left"),
            entries: vec![Entry { key, operation }],
        };
        let record = Record {
            epoch: EPOCH,
            coordinator: Coordinator { node: 0, thread: 0 },
            transaction: owner(me),
            partitions: vec![partition],
            groups: vec![group],
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes).expect("the record is consistent");
        bytes
    }

    /// Each phase comes twice.
    fn commit(&self, index: u64, key: u64, record: &[u8]) {
        for node in self.ring.log_replicas(NodeId(0)) {
            let log = &self.members[usize::from(node.0)];
            assert_eq!(log.append(Index(index), record), Ok(Appended::Now));
            assert_eq!(log.append(Index(index), record), Ok(Appended::Before));
        }
        let replicas = self.replicas(key);
        for backup in &replicas[1..] {
            assert_eq!(backup.commit(Role::Backup, record), Ok(Applied::Now));
            assert_eq!(backup.commit(Role::Backup, record), Ok(Applied::Before));
        }
        assert_eq!(replicas[0].commit(Role::Primary, record), Ok(Applied::Now));
        assert_eq!(replicas[0].commit(Role::Primary, record), Ok(Applied::Before));
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
            cluster.commit(key, key, &record);
        }
        let found = cluster.access(9, 2, Kind::Update).expect("the key is there");
        assert_eq!(found.read.value.as_deref(), Some(&b"one"[..]));
        for member in &cluster.members {
            let freed = member.acknowledge(EPOCH, Coordinator { node: 0, thread: 0 }, Index(4));
            let stores = cluster.ring.log_replicas(NodeId(0)).contains(&member.node());
            assert_eq!(freed.ok(), stores.then_some(4), "node {}", member.node());
        }
        let record = cluster.record(9, 2, &found, Operation::Delete);
        cluster.commit(4, 2, &record);
        cluster.assert_at_rest();
        assert_eq!(cluster.access(10, 2, Kind::Read).map(|found| found.read.value), Ok(None));
    }
}

#[test]
fn a_commit_that_comes_late_does_not_disturb_the_next_owner() {
    let cluster = cluster(0);
    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let late = cluster.record(1, 8, &found, Operation::Insert(b"one"));
    cluster.commit(0, 8, &late);
    let found = cluster.access(2, 8, Kind::Update).expect("the lock is free");
    let primary = cluster.replicas(8)[0];
    assert_eq!(primary.commit(Role::Primary, &late), Ok(Applied::Before));
    let record = cluster.record(2, 8, &found, Operation::Update(b"two"));
    assert_eq!(primary.commit(Role::Primary, &record), Ok(Applied::Now));
}

#[test]
fn nobody_commits_without_the_lock() {
    let cluster = cluster(0);
    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let record = cluster.record(2, 8, &found, Operation::Insert(b"one"));
    let refused = Refusal::Write(WriteError::NotOwner(Some(owner(1))));
    assert_eq!(cluster.replicas(8)[0].commit(Role::Primary, &record), Err(refused));
    assert_eq!(cluster.replicas(8)[0].unlock(EPOCH, owner(2), &[place(8)]), Ok(0));
    assert_eq!(cluster.replicas(8)[0].unlock(EPOCH, owner(1), &[place(8)]), Ok(1));
    let refused = Refusal::Write(WriteError::NotOwner(None));
    assert_eq!(cluster.replicas(8)[0].commit(Role::Primary, &record), Err(refused));
    cluster.assert_at_rest();
}

#[test]
fn a_phantom_fails_validation() {
    let cluster = cluster(1);
    let absent = cluster.access(1, 8, Kind::Read).expect("nobody holds the lock");
    let seen = [Seen { place: place(8), version: absent.read.version }];
    let validate = || cluster.replicas(8)[0].validate(EPOCH, owner(1), &seen);
    assert_eq!(validate(), Ok(Ok(())));
    let found = cluster.access(2, 8, Kind::Insert).expect("the key is free");
    assert!(matches!(validate(), Ok(Err((_, Invalid::Conflict(_))))));
    cluster.commit(0, 8, &cluster.record(2, 8, &found, Operation::Insert(b"one")));
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
    assert_eq!(primary.execute(EPOCH + 1, owner(1), &write), Err(Refusal::Epoch(EPOCH)));
    let unknown = of(Place { table: 1, key: 8 }, Kind::Read);
    assert_eq!(primary.execute(EPOCH, owner(1), &unknown), Err(Refusal::Table(1)));
    let refused = Refusal::Role { partition, role: Role::Primary };
    assert_eq!(backup.execute(EPOCH, owner(1), &write), Err(refused));
    // One foreign key among others: none is locked.
    assert_eq!(primary.execute(EPOCH, owner(1), &[write[0], unknown[0]]), Err(Refusal::Table(1)));
    cluster.assert_at_rest();

    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let record = cluster.record(1, 8, &found, Operation::Insert(&[0; 101]));
    let long = Refusal::Write(WriteError::TooLong { key: 8, len: 101 });
    assert_eq!(cluster.members[0].append(Index(0), &record), Err(long));
    let record = cluster.record(1, 8, &found, Operation::Insert(b"one"));
    let refused = Refusal::Role { partition, role: Role::Backup };
    assert_eq!(primary.commit(Role::Backup, &record), Err(refused));
    let gap = Refusal::Log(LogError::Gap(Index(0)));
    assert_eq!(cluster.members[0].append(Index(1), &record), Err(gap));
    assert_eq!(
        cluster.members[2].append(Index(0), &record),
        Err(Refusal::Coordinator(Coordinator { node: 0, thread: 0 }))
    );
    let trailing = [&record[..], &[0]].concat();
    assert_eq!(primary.commit(Role::Primary, &trailing), Err(Refusal::Trailing));
    assert!(matches!(primary.commit(Role::Primary, &record[1..]), Err(Refusal::Record(_))));
    assert_eq!(primary.commit(Role::Primary, &record), Ok(Applied::Now));
}

#[test]
fn a_backup_reports_a_missed_commit() {
    let cluster = cluster(1);
    let (primary, backup) = (cluster.replicas(8)[0], cluster.replicas(8)[1]);
    let found = cluster.access(1, 8, Kind::Insert).expect("the key is free");
    let first = cluster.record(1, 8, &found, Operation::Insert(b"one"));
    assert_eq!(primary.commit(Role::Primary, &first), Ok(Applied::Now));
    let found = cluster.access(2, 8, Kind::Update).expect("the lock is free");
    let second = cluster.record(2, 8, &found, Operation::Update(b"two"));
    let missed = Refusal::Write(WriteError::Missed(Version::ZERO));
    assert_eq!(backup.commit(Role::Backup, &second), Err(missed));
    assert_eq!(backup.commit(Role::Backup, &first), Ok(Applied::Now));
    assert_eq!(backup.commit(Role::Backup, &second), Ok(Applied::Now));
}
