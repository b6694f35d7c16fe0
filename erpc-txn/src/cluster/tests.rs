use std::net::SocketAddr;
use std::sync::Arc;

use super::*;

fn nodes(count: u16) -> impl Iterator<Item = NodeId> {
    (0..count).map(|node| NodeId(10 + node))
}

#[test]
fn replicas_are_the_next_nodes() {
    let ring = Ring::new(1, nodes(3), 2).expect("three nodes hold three replicas");
    assert_eq!(ring.replicas(2), [NodeId(12), NodeId(10), NodeId(11)]);
    assert_eq!(ring.log_replicas(NodeId(11)), [NodeId(11), NodeId(12), NodeId(10)]);
    assert!(ring.replicas(3).is_empty() && ring.log_replicas(NodeId(13)).is_empty());
}

#[test]
fn impossible_rings_are_refused() {
    assert_eq!(Ring::new(1, nodes(0), 0), Err(RingError::Empty));
    assert_eq!(Ring::new(1, nodes(2), 2), Err(RingError::Backups(2)));
    assert_eq!(Ring::new(1, nodes(9), 3), Err(RingError::Backups(3)));
    let high = [NodeId(3), NodeId(MAX_NODES)];
    assert_eq!(Ring::new(1, high, 1), Err(RingError::TooHigh(NodeId(MAX_NODES))));
    let twice = nodes(2).chain(nodes(1));
    assert_eq!(Ring::new(1, twice, 1), Err(RingError::Repeated(NodeId(10))));
}

#[test]
fn partitions_have_equal_shares_of_consecutive_keys() {
    let ring = Ring::new(1, nodes(3), 0).expect("three nodes");
    let mut counts = [0; 3];
    for key in 0..30_000 {
        counts[usize::from(ring.partition_of(key))] += 1;
    }
    // The standard deviation is 82.
    assert!(counts.iter().all(|count| (9_500..10_500).contains(count)), "{counts:?}");
}

#[test]
fn a_membership_has_one_address_for_each_node() {
    let ring: Arc<dyn Placement> =
        Arc::new(Ring::new(1, [0, 1].map(NodeId), 0).expect("two nodes"));
    let address = |port| SocketAddr::from(([127, 0, 0, 1], port));
    let with = |of: &[(u16, u16)]| {
        let addresses = of.iter().map(|&(node, port)| (NodeId(node), address(port))).collect();
        FixedMembership::new(Arc::clone(&ring), addresses)
    };
    let membership = with(&[(0, 10), (1, 11)]).expect("all have one");
    assert_eq!(membership.address(NodeId(1)), Some(address(11)));
    assert_eq!(membership.address(NodeId(2)), None);
    assert_eq!(membership.placement().nodes(), ring.nodes());
    let error = |of: &[_]| with(of).expect_err("it is refused");
    assert_eq!(error(&[(0, 10)]), MembershipError::NoAddress(NodeId(1)));
    assert_eq!(error(&[(0, 10), (1, 11), (2, 12)]), MembershipError::NotMember(NodeId(2)));
    assert_eq!(error(&[(0, 10), (1, 10)]), MembershipError::SharedAddress(address(10)));
}
