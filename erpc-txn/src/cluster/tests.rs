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
