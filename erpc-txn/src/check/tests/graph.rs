//! Components and shortest cycles, compared with a matrix of distances.

use proptest::collection::vec;
use proptest::prelude::*;

use crate::check::Class;
use crate::check::components::{NONE, components};
use crate::check::cycles::find;
use crate::check::graph::{Builder, Kind, Kinds};

const NODES: usize = 9;
/// There is no path.
const FAR: usize = 1_000;

/// The lengths of shortest paths of at least one edge, by Floyd and Warshall.
fn distances(edges: &[(u32, u32, Kind)], kinds: Kinds) -> Vec<Vec<usize>> {
    let mut distance = vec![vec![FAR; NODES]; NODES];
    for &(from, to, kind) in edges {
        if from != to && kinds.contains(kind) {
            distance[from as usize][to as usize] = 1;
        }
    }
    for over in 0..NODES {
        for from in 0..NODES {
            for to in 0..NODES {
                let both = distance[from][over] + distance[over][to];
                distance[from][to] = distance[from][to].min(both);
            }
        }
    }
    distance
}

fn shortest(distance: &[Vec<usize>]) -> Option<usize> {
    (0..NODES).map(|node| distance[node][node]).min().filter(|&length| length < FAR)
}

fn kind() -> impl Strategy<Value = Kind> {
    prop_oneof![Just(Kind::WriteWrite), Just(Kind::WriteRead), Just(Kind::ReadWrite)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn the_worst_and_shortest_cycle_is_found(
        edges in vec((0..NODES as u32, 0..NODES as u32, kind()), 0..16)
    ) {
        let mut builder = Builder::new(NODES);
        for &(from, to, kind) in &edges {
            builder.edge(from, to, kind, 0, 0);
        }
        let graph = builder.build();
        let distance = distances(&edges, Kinds::ALL);
        let found = components(&graph, Kinds::ALL);
        for (from, row) in distance.iter().enumerate() {
            let is_on_cycle = row[from] < FAR;
            prop_assert_eq!(found.of[from] != NONE, is_on_cycle);
            for (to, there) in row.iter().enumerate() {
                let are_joined = there + distance[to][from] < FAR || (from == to && is_on_cycle);
                let are_together = is_on_cycle && found.of[from] == found.of[to];
                prop_assert_eq!(are_together, are_joined);
            }
        }

        let written = distances(&edges, Kinds::READS_AND_WRITES);
        let single = edges
            .iter()
            .filter(|(from, to, kind)| *kind == Kind::ReadWrite && from != to)
            .map(|(from, to, _)| 1 + written[*to as usize][*from as usize])
            .min()
            .filter(|&length| length < FAR);
        let expected = shortest(&distances(&edges, Kinds::WRITES)).map(|length| (Class::G0, length));
        let expected = expected.or(shortest(&written).map(|length| (Class::G1c, length)));
        let expected = expected.or(single.map(|length| (Class::GSingle, length)));
        let expected = expected.or(shortest(&distance).map(|length| (Class::G2, length)));
        let got = find(&graph);
        prop_assert_eq!(got.as_ref().map(|(class, cycle)| (*class, cycle.len())), expected);
        let Some((_, cycle)) = got else { return Ok(()) };
        for (edge, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            prop_assert_eq!(edge.to, next.from);
            prop_assert!(edges.contains(&(edge.from, edge.to, edge.kind)));
        }
    }

    /// The junctions of real time stand for an edge from each transaction to those that began after
    /// it had ended.
    #[test]
    fn real_time_joins_what_ended_to_what_began_later(
        spans in vec((0u64..30, 0u64..10), NODES),
        edges in vec((0..NODES as u32, 0..NODES as u32, kind()), 0..8),
    ) {
        let mut builder = Builder::new(NODES);
        for &(from, to, kind) in &edges {
            builder.edge(from, to, kind, 0, 0);
        }
        let times = spans.iter().enumerate();
        builder
            .real_time(times.map(|(at, (began, takes))| (at as u32, *began, Some(began + takes))));
        let mut all = edges.clone();
        for (from, (began, takes)) in spans.iter().enumerate() {
            for (to, _) in spans.iter().enumerate().filter(|(_, to)| began + takes < to.0) {
                all.push((from as u32, to as u32, Kind::RealTime));
            }
        }
        let found = find(&builder.build());
        let dependencies = distances(&edges, Kinds::DEPENDENCIES);
        let expected = shortest(&dependencies).is_none().then(|| distances(&all, Kinds::ALL));
        let Some(expected) = expected else { return Ok(()) };
        prop_assert_eq!(found.as_ref().map(|(_, cycle)| cycle.len()), shortest(&expected));
        let Some((class, cycle)) = found else { return Ok(()) };
        for (edge, next) in cycle.iter().zip(cycle.iter().cycle().skip(1)) {
            prop_assert_eq!(edge.to, next.from);
            prop_assert!(all.contains(&(edge.from, edge.to, edge.kind)));
        }
        let overwritten = cycle.iter().filter(|edge| edge.kind == Kind::ReadWrite).count();
        prop_assert_eq!(class == Class::StaleRead, overwritten == 1);
        prop_assert!(class == Class::StaleRead || class == Class::RealTime);
    }
}
