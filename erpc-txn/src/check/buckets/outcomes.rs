//! Which transactions with unknown outcomes have committed.

use std::collections::{BTreeMap, BTreeSet};

use super::index::{Index, Write};
use crate::check::Outcome;

/// The choices among several transactions that may have made a version, in their order. Replaying
/// them with [`advance`](Self::advance) in between goes through all combinations.
#[derive(Default, Debug)]
pub(super) struct Choices {
    /// What is chosen, and of how many.
    taken: Vec<(usize, usize)>,
    /// How many were replayed.
    replayed: usize,
}

impl Choices {
    /// Chooses one of `of`, at least one.
    fn pick(&mut self, of: usize) -> usize {
        if self.replayed == self.taken.len() {
            self.taken.push((0, of));
        }
        self.replayed += 1;
        self.taken[self.replayed - 1].0
    }

    /// Goes to the next combination. Returns false if there is none.
    pub(super) fn advance(&mut self) -> bool {
        self.replayed = 0;
        while let Some((chosen, of)) = self.taken.pop() {
            if chosen + 1 < of {
                self.taken.push((chosen + 1, of));
                return true;
            }
        }
        false
    }
}

/// Says of each transaction whether it committed. One with unknown outcome did so if a version that
/// only it can have made was read, or overwritten, by a transaction that committed.
pub(super) fn resolve(index: &Index<'_>, choices: &mut Choices) -> Vec<bool> {
    let committed = |outcome| outcome == Outcome::Committed;
    let done = index.transactions.iter().map(|t| committed(t.outcome)).collect();
    let mut open = Open { index, done, seen_by: BTreeMap::new() };
    if index.transactions.iter().any(|t| t.outcome == Outcome::Unknown) {
        open.resolve(choices);
    }
    open.done
}

/// A version of an item.
type Place = (u32, u64);

struct Open<'a> {
    index: &'a Index<'a>,
    done: Vec<bool>,
    /// What each transaction with unknown outcome has seen.
    seen_by: BTreeMap<u32, Vec<Place>>,
}

impl Open<'_> {
    fn resolve(&mut self, choices: &mut Choices) {
        let reads = self.index.reads.iter().map(|read| (read.transaction, read.item, read.version));
        let bases = self.index.writes.iter();
        let bases = bases.map(|write| (write.transaction, write.item, write.version - 1));
        let mut seen = Vec::new();
        for (transaction, item, version) in reads.chain(bases) {
            match self.index.transactions[transaction as usize].outcome {
                Outcome::Committed => seen.push((item, version)),
                Outcome::Unknown => {
                    self.seen_by.entry(transaction).or_default().push((item, version));
                }
                Outcome::Aborted => {}
            }
        }
        let mut several = BTreeSet::new();
        loop {
            while let Some(place) = seen.pop() {
                match self.candidates(place)[..] {
                    [] => {}
                    [one] => self.commit(one, &mut seen),
                    _ => drop(several.insert(place)),
                }
            }
            // First those with one possibility left: a choice is a guess.
            let clear = several.iter().copied().find(|place| self.possible(*place).len() < 2);
            let Some(place) = clear.or_else(|| several.first().copied()) else { return };
            several.remove(&place);
            let candidates = self.candidates(place);
            let possible = self.possible(place);
            match (&candidates[..], &possible[..]) {
                ([], _) => {}
                // None is possible, so there is a violation with any.
                ([first, ..], []) => self.commit(*first, &mut seen),
                (_, [one]) => self.commit(*one, &mut seen),
                (_, several) => self.commit(several[choices.pick(several.len())], &mut seen),
            }
        }
    }

    fn commit(&mut self, write: Write, seen: &mut Vec<Place>) {
        self.done[write.transaction as usize] = true;
        seen.extend(self.seen_by.get(&write.transaction).into_iter().flatten());
    }

    /// The transactions with unknown outcomes that may have made a version that was seen. None if it
    /// is known that another one made it.
    fn candidates(&self, (item, version): Place) -> Vec<Write> {
        let writes = self.index.writes_at(item, version);
        if version <= self.index.initial_version(item) || writes.iter().any(|w| self.is_done(w)) {
            return Vec::new();
        }
        let is_open = |w: &&Write| {
            self.index.transactions[w.transaction as usize].outcome == Outcome::Unknown
        };
        writes.iter().filter(is_open).copied().collect()
    }

    /// The candidates that contradict neither what was read at the version, nor the writers of other
    /// versions. Those whose values were read most often come first.
    fn possible(&self, place: Place) -> Vec<Write> {
        let mut candidates = self.candidates(place);
        candidates.retain(|&write| self.fits_writes(write));
        let mut counted: Vec<_> = candidates
            .into_iter()
            .filter_map(|write| Some((self.matching_reads(write)?, write)))
            .collect();
        counted.sort_by_key(|(count, _)| std::cmp::Reverse(*count));
        counted.into_iter().map(|(_, write)| write).collect()
    }

    /// How many reads returned what this write has. None if one returned something else.
    fn matching_reads(&self, write: Write) -> Option<usize> {
        let entries = &self.index.written(write).entries;
        let reads = self.index.reads_at(write.item, write.version);
        let mut count = 0;
        for read in reads.iter().filter(|read| self.done[read.transaction as usize]) {
            let Some(last) = entries.iter().rev().find(|(key, _)| *key == read.key) else {
                // The value is that of an earlier version, which is not known here.
                continue;
            };
            if last.1 != read.value {
                return None;
            }
            count += 1;
        }
        Some(count)
    }

    fn fits_writes(&self, write: Write) -> bool {
        let bases = self.seen_by.get(&write.transaction).into_iter().flatten();
        let own = |place: &(u32, u64)| {
            let writes = self.index.writes_at(place.0, place.1.saturating_add(1));
            writes.iter().find(|own| own.transaction == write.transaction).map(|_| writes)
        };
        !bases.filter_map(own).flatten().any(|w| self.is_done(w))
    }

    fn is_done(&self, write: &Write) -> bool {
        self.done[write.transaction as usize]
    }
}
