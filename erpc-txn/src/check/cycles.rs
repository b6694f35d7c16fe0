//! The shortest cycle of a graph, and its class.

use std::collections::VecDeque;

use super::Class;
use super::components::{Components, components};
use super::graph::{Edge, Graph, Kind, Kinds};

/// How many edges a search looks at before it is content with the cycle that it has. Only histories
/// with violations have cycles at all, so this bounds the time to explain one, to a few seconds.
const EFFORT: usize = 50_000_000;

/// Finds a cycle of the worst class there is, and of those a shortest one. Its edges join
/// transactions: edges through junctions are one edge with the kind and place of their first part.
///
/// Takes linear time if there is no cycle. If there is one, the search for a shorter one, and for
/// one with a single read-write edge, ends after a fixed effort.
pub(super) fn find(graph: &Graph) -> Option<(Class, Vec<Edge>)> {
    let all = components(graph, Kinds::ALL);
    if all.nodes.is_empty() {
        return None;
    }
    for (kinds, class) in [(Kinds::WRITES, Class::G0), (Kinds::READS_AND_WRITES, Class::G1c)] {
        if let Some(cycle) = shortest(graph, &components(graph, kinds), kinds) {
            return Some((class, cycle));
        }
    }
    let dependencies = components(graph, Kinds::DEPENDENCIES);
    if let Some(cycle) = single(graph, &dependencies) {
        return Some((Class::GSingle, cycle));
    }
    if let Some(cycle) = shortest(graph, &dependencies, Kinds::DEPENDENCIES) {
        return Some((Class::G2, cycle));
    }
    let cycle = shortest(graph, &all, Kinds::ALL)?;
    let overwritten = cycle.iter().filter(|edge| edge.kind == Kind::ReadWrite).count();
    Some((if overwritten == 1 { Class::StaleRead } else { Class::RealTime }, cycle))
}

/// The shortest cycle of edges of these kinds.
fn shortest(graph: &Graph, components: &Components, kinds: Kinds) -> Option<Vec<Edge>> {
    let mut search = Search::new(graph, components, kinds);
    let mut best: Option<Vec<Edge>> = None;
    for &node in components.nodes.iter().flatten() {
        let below = best.as_ref().map_or(u32::MAX, |cycle| cycle.len() as u32);
        if let Some(path) = search.path(node, node, below) {
            best = Some(join(&path));
        }
    }
    best
}

/// The shortest cycle with one read-write edge, and otherwise writes and reads of them.
fn single(graph: &Graph, components: &Components) -> Option<Vec<Edge>> {
    let mut search = Search::new(graph, components, Kinds::READS_AND_WRITES);
    let mut best: Option<Vec<Edge>> = None;
    for &node in components.nodes.iter().flatten() {
        for at in graph.from(node) {
            let edge = graph.edge(at);
            if edge.kind != Kind::ReadWrite || !search.is_within(edge) {
                continue;
            }
            let below = best.as_ref().map_or(u32::MAX, |cycle| cycle.len() as u32 - 1);
            if let Some(mut path) = search.path(edge.to, node, below) {
                path.insert(0, edge);
                best = Some(join(&path));
            }
        }
    }
    best
}

/// Joins the parts of edges that go through junctions. The first edge begins at a transaction or at
/// a junction; in the second case, the parts at the end and at the beginning are one edge.
fn join(cycle: &[Edge]) -> Vec<Edge> {
    let first = cycle.iter().position(|edge| edge.kind != Kind::Through).unwrap_or(0);
    let mut joined: Vec<Edge> = Vec::new();
    for &edge in cycle[first..].iter().chain(&cycle[..first]) {
        match joined.last_mut() {
            Some(last) if edge.kind == Kind::Through => last.to = edge.to,
            _ => joined.push(edge),
        }
    }
    joined
}

/// Searches for shortest paths within components.
struct Search<'a> {
    graph: &'a Graph,
    components: &'a Components,
    kinds: Kinds,
    effort: usize,
    /// Of each node: the search that last came to it, its distance, and the edge that leads to it.
    reached: Vec<(u32, u32, u32)>,
    searches: u32,
    queue: VecDeque<(u32, u32)>,
}

impl<'a> Search<'a> {
    fn new(graph: &'a Graph, components: &'a Components, kinds: Kinds) -> Self {
        let reached = vec![(0, 0, 0); graph.nodes() as usize];
        let queue = VecDeque::new();
        Self { graph, components, kinds, effort: EFFORT, reached, searches: 0, queue }
    }

    /// Whether an edge is part of a cycle.
    fn is_within(&self, edge: Edge) -> bool {
        let of = |node: u32| self.components.of[node as usize];
        of(edge.from) == of(edge.to)
    }

    /// The shortest path between two nodes of a component that has fewer than `below` edges without
    /// those from junctions, which are free. It has at least one edge.
    fn path(&mut self, from: u32, to: u32, below: u32) -> Option<Vec<Edge>> {
        self.searches += 1;
        self.queue.clear();
        self.queue.push_back((from, 0));
        let mut end: Option<(u32, u32)> = None;
        while let Some((node, distance)) = self.queue.pop_front() {
            if end.is_some_and(|(best, _)| best <= distance) || self.effort == 0 {
                break;
            }
            if node != from && self.reached[node as usize].1 < distance {
                continue;
            }
            for at in self.graph.from(node) {
                let edge = self.graph.edge(at);
                self.effort = self.effort.saturating_sub(1);
                if !self.kinds.contains(edge.kind) || !self.is_within(edge) {
                    continue;
                }
                let is_free = edge.kind == Kind::Through;
                let distance = distance + u32::from(!is_free);
                if distance >= below {
                    continue;
                }
                if edge.to == to && end.is_none_or(|(best, _)| distance < best) {
                    end = Some((distance, at));
                }
                let reached = &mut self.reached[edge.to as usize];
                if edge.to == from || (reached.0 == self.searches && reached.1 <= distance) {
                    continue;
                }
                *reached = (self.searches, distance, at);
                match is_free {
                    true => self.queue.push_front((edge.to, distance)),
                    false => self.queue.push_back((edge.to, distance)),
                }
            }
        }
        let (_, last) = end?;
        let mut path = vec![self.graph.edge(last)];
        while path[path.len() - 1].from != from {
            let node = path[path.len() - 1].from;
            path.push(self.graph.edge(self.reached[node as usize].2));
        }
        path.reverse();
        Some(path)
    }
}
