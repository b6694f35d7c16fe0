//! The phases of one transaction as calls between nodes, in a network that loses and repeats packets.
#![cfg(not(loom))]

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use erpc::testing::VirtualNetwork;
use erpc::transport::fault::Faults;
use erpc_txn::cluster::{NodeId, Placement, Ring};
use erpc_txn::log::{Coordinator, Entry, Group, Operation, Record};
use erpc_txn::participant::{Participant, Settings};
use erpc_txn::proto::{
    Access, AcknowledgeRequest, AppendRequest, CommitRequest, ExecuteRequest, Kind,
    LocalParticipantClient, Place, Seen, UnlockRequest, ValidateRequest, Verdict,
};
use erpc_txn::service::Member;
use erpc_txn::table::{Bucket, Config, Owner, Version};

const TABLE: u16 = 3;
const EPOCH: u32 = 9;
const KEY: u64 = 8;

fn execute(transaction: u64, kind: Kind) -> ExecuteRequest {
    let access = Access { table: TABLE.into(), key: KEY, kind: kind.into() };
    ExecuteRequest { epoch: EPOCH, transaction, accesses: vec![access] }
}

fn transaction_commits(seed: u64) -> Result<(), Box<dyn Error>> {
    let network = VirtualNetwork::new(seed);
    let ms = Duration::from_millis(1);
    network.set_faults(Faults::none().drop(0.1).duplicate(0.2, 2, ms).reorder(0.2, ms));
    let ring = Arc::new(Ring::new(EPOCH, (0..3).map(NodeId), 2)?);
    let settings = Settings {
        tables: [(TABLE, Config::new(100))].into(),
        threads: 1,
        log_bytes: 1000,
        log_records: 4,
    };
    let member = |&node: &NodeId| Participant::new(node, ring.clone(), settings.clone());
    let members: Vec<_> = ring
        .nodes()
        .iter()
        .map(member)
        .map(|m| Ok(Arc::new(m?)))
        .collect::<Result<_, Box<dyn Error>>>()?;
    let servers: Vec<_> = members.iter().map(|m| network.serve(Member::new(m.clone()))).collect();
    let endpoint = network.endpoint();
    let clients: Vec<_> = servers
        .iter()
        .map(|server| LocalParticipantClient::connect(&endpoint, server.route()))
        .collect::<Result<_, _>>()?;
    let partition = ring.partition_of(KEY);
    let replicas = ring.replicas(partition);
    let primary = &clients[usize::from(replicas[0].0)];

    endpoint.block_on(async {
        // Another transaction sees that the key is absent.
        let read = primary.execute(execute(2, Kind::Read)).await?;
        let absent = &read.accesses[0];
        assert!(absent.verdict() == Verdict::Done && !absent.present);
        let seen = Seen { table: TABLE.into(), key: KEY, version: absent.version };

        let locked = primary.execute(execute(1, Kind::Insert)).await?;
        let locked = &locked.accesses[0];
        assert_eq!(locked.verdict(), Verdict::Done);
        let refused = primary.execute(execute(2, Kind::Insert)).await?;
        assert_eq!(refused.accesses[0].verdict(), Verdict::Conflict);
        // It cannot unlock what it does not hold.
        let keys = vec![Place { table: TABLE.into(), key: KEY }];
        let unlock = UnlockRequest { epoch: EPOCH, transaction: 2, keys };
        assert_eq!(primary.unlock(&unlock).await?.verdict(), Verdict::Done);

        let base = Version::new(locked.version).ok_or("the version is too high")?;
        let group = Group {
            table: TABLE,
            partition,
            bucket: Bucket::new(locked.bucket),
            base,
            new: base.next().ok_or("versions are left")?,
            entries: vec![Entry { key: KEY, operation: Operation::Insert(b"eight") }],
        };
        let record = Record {
            epoch: EPOCH,
            coordinator: Coordinator { node: 0, thread: 0 },
            transaction: Owner::new(1).ok_or("the id is 0")?,
            partitions: vec![partition],
            groups: vec![group],
        };
        let mut bytes = Vec::new();
        record.encode(&mut bytes)?;
        let record = Bytes::from(bytes);
        for node in ring.log_replicas(NodeId(0)) {
            let append = AppendRequest { index: 0, record: record.clone() };
            let reply = clients[usize::from(node.0)].append(&append).await?;
            assert_eq!(reply.verdict(), Verdict::Done, "{}", reply.reason);
        }
        let commit = CommitRequest { record };
        for node in &replicas[1..] {
            let reply = clients[usize::from(node.0)].commit_backup(&commit).await?;
            assert_eq!(reply.verdict(), Verdict::Done, "{}", reply.reason);
        }
        for _ in 0..2 {
            let reply = primary.commit_primary(&commit).await?;
            assert_eq!(reply.verdict(), Verdict::Done, "{}", reply.reason);
        }
        for client in &clients {
            let all = AcknowledgeRequest { epoch: EPOCH, node: 0, thread: 0, next: 1 };
            assert_eq!(client.acknowledge(all).await?.verdict(), Verdict::Done);
        }

        let reads = vec![seen];
        let validate = ValidateRequest { epoch: EPOCH, transaction: 2, reads };
        assert_eq!(primary.validate(&validate).await?.verdict(), Verdict::Changed);
        let read = primary.execute(execute(2, Kind::Read)).await?;
        assert_eq!(read.accesses[0].value, &b"eight"[..]);

        let foreign = ExecuteRequest { epoch: EPOCH + 1, ..execute(3, Kind::Update) };
        let refused = primary.execute(&foreign).await?;
        assert_eq!((refused.verdict(), refused.epoch), (Verdict::Epoch, EPOCH));
        let nobody = execute(0, Kind::Read);
        assert_eq!(primary.execute(&nobody).await?.verdict(), Verdict::Refused);
        let kindless = execute(3, Kind::Unspecified);
        assert_eq!(primary.execute(&kindless).await?.verdict(), Verdict::Refused);
        Ok::<(), Box<dyn Error>>(())
    })?;

    let contents = |member: &Arc<Participant>| {
        let table = member.replica(TABLE, partition).expect("f = 2: each node has a replica");
        assert_eq!(table.locks().count(), 0);
        table.snapshots().collect::<Result<Vec<_>, _>>()
    };
    let first = contents(&members[0])?;
    assert_eq!(first.len(), 1);
    for member in &members {
        assert_eq!(contents(member)?, first, "node {}", member.node());
        let log = member.log(Coordinator { node: 0, thread: 0 }).ok_or("f = 2: all nodes log")?;
        assert!(log.is_empty());
    }
    // The faults have acted, or the test shows nothing.
    let faults = network.fault_counts();
    assert!(faults.dropped + faults.duplicated > 0);
    Ok(())
}

#[test]
fn a_transaction_commits_over_a_faulty_network() -> Result<(), Box<dyn Error>> {
    for seed in 0..20 {
        transaction_commits(seed).map_err(|error| format!("seed {seed}: {error}"))?;
    }
    Ok(())
}
