//! Strongly connected components, by Tarjan's algorithm without recursion.

use super::graph::{Graph, Kinds};

/// The component of nodes that are on no cycle.
pub(super) const NONE: u32 = u32::MAX;

/// The components of a graph that have cycles.
#[derive(Debug)]
pub(super) struct Components {
    /// Of each node, its component, or [`NONE`].
    pub(super) of: Vec<u32>,
    /// The nodes of each component, at least two.
    pub(super) nodes: Vec<Vec<u32>>,
}

/// Finds the components, with the edges of these kinds only. Takes time and memory in proportion to
/// the graph.
pub(super) fn components(graph: &Graph, kinds: Kinds) -> Components {
    const UNSEEN: u32 = u32::MAX;
    let nodes = graph.nodes() as usize;
    let mut of = vec![NONE; nodes];
    let mut found = Vec::new();
    // The number of each node in the order of discovery; the lowest number that it reaches; whether
    // it still is on `stack`.
    let mut number = vec![UNSEEN; nodes];
    let mut low = vec![0; nodes];
    let mut is_open = vec![false; nodes];
    let mut stack: Vec<u32> = Vec::new();
    // The path from the root, with the next edge to follow from each node.
    let mut path: Vec<(u32, u32)> = Vec::new();
    let mut count = 0;
    for root in 0..graph.nodes() {
        if number[root as usize] != UNSEEN {
            continue;
        }
        path.push((root, graph.from(root).start));
        while let Some((node, next)) = path.last_mut() {
            let at = *node as usize;
            if number[at] == UNSEEN {
                (number[at], low[at], is_open[at]) = (count, count, true);
                count += 1;
                stack.push(*node);
            }
            if *next < graph.from(*node).end {
                let edge = graph.edge(*next);
                *next += 1;
                let to = edge.to as usize;
                if !kinds.contains(edge.kind) {
                    continue;
                }
                if number[to] == UNSEEN {
                    path.push((edge.to, graph.from(edge.to).start));
                } else if is_open[to] {
                    low[at] = low[at].min(number[to]);
                }
                continue;
            }
            path.pop();
            if let Some((parent, _)) = path.last() {
                let parent = *parent as usize;
                low[parent] = low[parent].min(low[at]);
            }
            if low[at] == number[at] {
                let first = stack.iter().rposition(|&open| open as usize == at).unwrap_or(0);
                let members = stack.split_off(first);
                for &member in &members {
                    is_open[member as usize] = false;
                }
                if members.len() > 1 {
                    for &member in &members {
                        of[member as usize] = found.len() as u32;
                    }
                    found.push(members);
                }
            }
        }
    }
    Components { of, nodes: found }
}
