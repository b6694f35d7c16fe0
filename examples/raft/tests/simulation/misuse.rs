//! Wrong calls, and nodes that are not where they belong. The cluster answers, and goes on.

use std::time::Duration;

use erpc::{Channel, Code};
use erpc_raft::client::{ClientError, Patience};
use erpc_raft::proto::{
    self, LocalPeerClient, LocalStoreClient, Member, Parcel, Piece, PutRequest,
};

use crate::cluster::{Algorithm, Cluster, Options};
use erpc_test_tools::random::Random;

fn cluster() -> Cluster {
    let algorithm = Algorithm::Raft;
    let options = Options { algorithm, lease: false, snapshot_every: u64::MAX, keep: 0 };
    let cluster = Cluster::start(3, 3, 0, options).expect("the disks are empty");
    cluster.driver.run_for(Duration::from_millis(500));
    cluster
}

/// Writes and reads a key.
fn serves(cluster: &Cluster) {
    let (endpoint, nodes) = cluster.clients(Patience::default());
    endpoint.block_on(async {
        let session = nodes.open().await.expect("the cluster serves");
        session.put(b"key", b"value").await.expect("the cluster serves");
        let value = nodes.get(b"key").await.expect("the cluster serves");
        assert_eq!(value.as_deref(), Some(&b"value"[..]));
    });
    assert_eq!(cluster.failure(), None);
}

#[test]
fn oversized_keys_and_values_are_refused() {
    let cluster = cluster();
    let (endpoint, nodes) = cluster.clients(Patience::default());
    endpoint.block_on(async {
        let session = nodes.open().await.expect("the cluster serves");
        for (key, value, text) in [
            (vec![], vec![], "the key has 0 bytes"),
            (vec![1; 1025], vec![], "the key has 1025 bytes"),
            (vec![1], vec![1; 65_537], "the value has 65537 bytes"),
        ] {
            let error = session.put(&key, &value).await.expect_err("it is too long or too short");
            let ClientError::Invalid(why) = &error else { panic!("{error}") };
            assert!(why.contains(text), "{why}");
        }
        session.put(&[1; 1024], &[1; 65_536]).await.expect("the longest are possible");
        // The nodes check for themselves.
        for host in &cluster.hosts {
            let channel = Channel::to(&endpoint, vec![host.server.route()]).build();
            let request = PutRequest { key: vec![1; 2000].into(), ..PutRequest::default() };
            let error =
                LocalStoreClient::new(channel).put(request).await.expect_err("it is too long");
            assert_eq!(error.code(), Code::InvalidArgument);
        }
    });
    serves(&cluster);
}

#[test]
fn transfers_to_nodes_that_cannot_lead_are_refused() {
    let options =
        Options { algorithm: Algorithm::Raft, lease: true, snapshot_every: u64::MAX, keep: 0 };
    let cluster = Cluster::start(3, 3, 1, options).expect("the disks are empty");
    cluster.driver.run_for(Duration::from_millis(500));
    let leader = cluster.leader().expect("half a second has passed").id;
    let (endpoint, nodes) = cluster.clients(Patience::default());
    let learner = Member { id: 4, address: "4".into(), learner: true };
    let change = proto::ChangeRequest { add: vec![learner], remove: Vec::new() };
    endpoint.block_on(nodes.change(&change)).expect("a node joins without a vote");
    for to in [4, 77] {
        let begun = endpoint.now();
        let error = endpoint.block_on(nodes.transfer(to)).expect_err("it cannot lead");
        let ClientError::Refused(why) = &error else { panic!("{error}") };
        assert!(why.contains(&format!("node {to} cannot take over")), "{why}");
        assert!(endpoint.now() - begun < Duration::from_secs(1), "the client tries again");
    }
    endpoint.block_on(nodes.transfer(leader)).expect("it leads");
    assert_eq!(cluster.leader().map(|host| host.id), Some(leader));
    let next = leader % 3 + 1;
    endpoint.block_on(nodes.transfer(next)).expect("it has a vote");
    cluster.driver.run_for(Duration::from_millis(500));
    assert_eq!(cluster.leader().map(|host| host.id), Some(next));
    serves(&cluster);
}

#[test]
fn a_leader_that_would_leave_says_so() {
    let cluster = cluster();
    let leader = cluster.leader().expect("half a second has passed").id;
    let (endpoint, nodes) = cluster.clients(Patience::default());
    let member = Member { id: leader, address: leader.to_string(), learner: true };
    let remove = proto::ChangeRequest { add: Vec::new(), remove: vec![leader] };
    let demote = proto::ChangeRequest { add: vec![member], remove: Vec::new() };
    for change in [&remove, &demote] {
        let begun = endpoint.now();
        let error = endpoint.block_on(nodes.change(change)).expect_err("the leader stays");
        let ClientError::Refused(why) = &error else { panic!("{error}") };
        let text = format!("node {leader} leads; transfer the leadership first");
        assert!(why.contains(&text), "{why}");
        assert!(endpoint.now() - begun < Duration::from_secs(1), "the client tries again");
    }
    let next = leader % 3 + 1;
    // The change waits for the new leader.
    endpoint.block_on(nodes.transfer(next)).expect("it has a vote");
    endpoint.block_on(nodes.change(&remove)).expect("it hands over");
    serves(&cluster);
}

/// When a change of several nodes is answered, those that leave are not needed any more.
#[test]
fn a_change_is_answered_when_it_is_complete() {
    let options =
        Options { algorithm: Algorithm::Raft, lease: false, snapshot_every: u64::MAX, keep: 0 };
    let cluster = Cluster::start(3, 3, 2, options).expect("the disks are empty");
    cluster.driver.run_for(Duration::from_millis(500));
    let leader = cluster.leader().expect("half a second has passed").id;
    let leave: Vec<_> = (1..=3).filter(|id| *id != leader).collect();
    let (endpoint, nodes) = cluster.clients(Patience::default());
    let voter = |id: u64| Member { id, address: id.to_string(), learner: false };
    let change = proto::ChangeRequest { add: vec![voter(4), voter(5)], remove: leave.clone() };
    endpoint.block_on(nodes.change(&change)).expect("the cluster serves");
    for id in leave {
        let route = cluster.hosts[id as usize - 1].server.route();
        for other in &cluster.hosts {
            cluster.network.cut_link(route, other.server.route());
        }
    }
    serves(&cluster);
    let status = endpoint.block_on(nodes.status(&leader.to_string())).expect("it serves");
    let mut members: Vec<_> = status.members.iter().map(|member| member.id).collect();
    members.sort_unstable();
    assert_eq!((members, status.joint), (vec![leader, 4, 5], false));
}

/// A leader that is cut off refuses to leave. The others let it leave.
#[test]
fn a_leader_that_is_cut_off_can_be_removed() {
    let cluster = cluster();
    let old = cluster.leader().expect("half a second has passed");
    let others: Vec<_> = cluster.hosts.iter().filter(|host| host.id != old.id).collect();
    // The old leader first.
    let ids: Vec<_> = [old.id].into_iter().chain(others.iter().map(|host| host.id)).collect();
    let (endpoint, nodes) = cluster.clients_of(&ids, Patience::default());
    for other in &others {
        cluster.network.cut_link(old.server.route(), other.server.route());
    }
    let remove = proto::ChangeRequest { add: Vec::new(), remove: vec![old.id] };
    endpoint.block_on(nodes.change(&remove)).expect("the others have a leader");
    cluster.network.mend_links();
    serves(&cluster);
}

#[test]
fn messages_of_other_clusters_are_refused() {
    let cluster = cluster();
    let (endpoint, _) = cluster.clients(Patience::default());
    endpoint.block_on(async {
        for host in &cluster.hosts {
            let channel = Channel::to(&endpoint, vec![host.server.route()]).build();
            let parcel = Parcel { cluster: 7, from: 1, to: host.id, ..Parcel::default() };
            let error = LocalPeerClient::new(channel).deliver(parcel).await;
            let error = error.expect_err("it is of another cluster");
            assert_eq!(error.code(), Code::FailedPrecondition);
            let text = error.to_string();
            assert!(text.contains("another cluster: \"simulated\""), "{text}");
        }
    });
    serves(&cluster);
}

/// Letters of random bytes, and real ones with random changes, as from a member.
#[test]
fn damaged_messages_stop_no_node() {
    let cluster = cluster();
    let (endpoint, _) = cluster.clients(Patience::default());
    let mut random = Random::new(1);
    let hash = erpc_raft::node::hash("raft", "simulated");
    endpoint.block_on(async {
        for host in &cluster.hosts {
            let channel = Channel::to(&endpoint, vec![host.server.route()]).build();
            let client = LocalPeerClient::new(channel);
            for _ in 0..300 {
                let from = host.id % 3 + 1;
                let mut letters = Vec::new();
                for _ in 0..random.below(4) {
                    let mut letter = vec![random.below(20) as u8, random.below(4) as u8];
                    // Terms that the cluster has had already: a message may say anything otherwise.
                    letter.extend_from_slice(&random.below(2).to_le_bytes());
                    let numbers = random.below(12);
                    for _ in 0..numbers {
                        let bound = 1 << random.below(40);
                        letter.extend_from_slice(&random.below(bound).to_le_bytes());
                    }
                    letters.extend_from_slice(&(letter.len() as u32).to_le_bytes());
                    letters.extend_from_slice(&letter);
                }
                let keep = random.below(letters.len() as u64 + 1) as usize;
                if random.percent(30) {
                    letters.truncate(keep);
                }
                let parcel = Parcel {
                    cluster: hash,
                    from,
                    to: host.id,
                    letters: letters.into(),
                    ..Parcel::default()
                };
                client.deliver(parcel).await.expect("it is answered");
                let mut data = vec![0; random.below(40) as usize];
                data.fill_with(|| random.below(256) as u8);
                let piece = Piece {
                    cluster: hash,
                    from,
                    to: host.id,
                    offset: random.below(3) * 8,
                    total: random.below(48),
                    data: data.into(),
                    ..Piece::default()
                };
                // Refused, or a snapshot that cannot be read.
                drop::<Result<proto::PieceReply, _>>(client.install(piece).await);
            }
        }
    });
    serves(&cluster);
}
