//! Finds cycles of files that import each other.

use std::collections::{BTreeMap, BTreeSet};

use crate::tree::FileId;

/// The imports between files: each file with the files that it imports from.
pub type Graph = BTreeMap<FileId, BTreeSet<FileId>>;

/// Groups of two or more files in which every file imports every other one, directly or indirectly.
#[must_use]
pub fn cycles(graph: &Graph) -> Vec<BTreeSet<FileId>> {
    let reach: BTreeMap<_, _> = graph.keys().map(|file| (*file, reachable(graph, *file))).collect();
    let mut cycles: Vec<BTreeSet<FileId>> = Vec::new();
    for (file, reached) in &reach {
        if cycles.iter().any(|cycle| cycle.contains(file)) {
            continue;
        }
        let cycle: BTreeSet<_> = reached
            .iter()
            .copied()
            .filter(|other| reach.get(other).is_some_and(|back| back.contains(file)))
            .collect();
        if cycle.len() > 1 {
            cycles.push(cycle);
        }
    }
    cycles
}

/// The files that `file` imports, directly or indirectly.
fn reachable(graph: &Graph, file: FileId) -> BTreeSet<FileId> {
    let mut reached = BTreeSet::new();
    let mut open = vec![file];
    while let Some(file) = open.pop() {
        for next in graph.get(&file).into_iter().flatten() {
            if reached.insert(*next) {
                open.push(*next);
            }
        }
    }
    reached
}
