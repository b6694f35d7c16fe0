//! Goes through the versions of each bucket: whether each has one writer, whether reads returned
//! its contents, and which orders follow.

use std::collections::BTreeMap;

use super::index::{Index, Read, Write};
use crate::check::graph::{Builder, Kind};
use crate::check::{Class, Outcome, Summary, Violation};

pub(super) struct Walk<'a> {
    pub(super) index: &'a Index<'a>,
    /// Of each transaction, whether it committed.
    pub(super) done: &'a [bool],
    pub(super) builder: &'a mut Builder,
    pub(super) summary: &'a mut Summary,
}

/// A bucket at some version.
struct State {
    item: u32,
    version: u64,
    /// The transaction that made the version; none if it is the initial one.
    writer: Option<u32>,
    entries: BTreeMap<u64, u64>,
}

impl Walk<'_> {
    pub(super) fn all(mut self) -> Result<(), Violation> {
        (0..self.index.items.len() as u32).try_for_each(|item| self.item(item))
    }

    fn item(&mut self, item: u32) -> Result<(), Violation> {
        let index = self.index;
        let mut state = State {
            item,
            version: index.initial_version(item),
            writer: None,
            entries: index.initial_entries(item).iter().copied().collect(),
        };
        let done = self.done;
        let is_done = |transaction: u32| done[transaction as usize];
        let reads = index.reads_of(item).iter().filter(|read| is_done(read.transaction));
        let writes = index.writes_of(item).iter().filter(|write| is_done(write.transaction));
        let (mut reads, mut writes) = (reads.peekable(), writes.peekable());
        if let Some(read) = reads.next_if(|read| read.version < state.version) {
            return Err(self.gap(item, read.version, state.version, read.transaction));
        }
        if let Some(write) = writes.next_if(|write| write.version <= state.version) {
            let because = format!(
                "transaction {} made version {} of {}, which had version {} in the beginning",
                index.id(write.transaction),
                write.version,
                index.items[item as usize],
                state.version
            );
            return Err(self.violation(Class::DuplicateVersion, [write.transaction], because));
        }
        let mut readers: Vec<u32> = Vec::new();
        loop {
            readers.clear();
            while let Some(read) = reads.next_if(|read| read.version == state.version) {
                self.read(&state, read)?;
                // They are sorted by transaction.
                if readers.last() != Some(&read.transaction) {
                    readers.push(read.transaction);
                }
            }
            let next = writes.next_if(|write| write.version - 1 == state.version);
            self.edges(&state, &readers, next.map(|write| write.transaction));
            let Some(&write) = next else { break };
            if let Some(other) = writes.next_if(|other| other.version == write.version) {
                return Err(self.duplicate(write, *other));
            }
            state.apply(index, write);
            self.summary.versions += 1;
        }
        // Whatever is left is above the last version. The lowest version that was seen has no writer.
        let read = reads.next().map(|read| (read.version, read.transaction));
        let base = writes.next().map(|write| (write.version - 1, write.transaction));
        match read.into_iter().chain(base).min() {
            Some((seen, by)) => Err(self.gap(item, seen, state.version, by)),
            None => Ok(()),
        }
    }

    /// Adds the edges to and from the readers of a version, and to its successor.
    fn edges(&mut self, state: &State, readers: &[u32], next: Option<u32>) {
        let (place, version) = (state.item as usize, state.version);
        let mut edge = |from, to, kind| match (from, to) {
            (Some(from), Some(to)) => self.builder.edge(from, to, kind, place, version),
            _ => false,
        };
        for &reader in readers {
            let by_writer = edge(state.writer, Some(reader), Kind::WriteRead);
            let by_next = edge(Some(reader), next, Kind::ReadWrite);
            self.summary.write_read += usize::from(by_writer);
            self.summary.read_write += usize::from(by_next);
        }
        let by_write = edge(state.writer, next, Kind::WriteWrite);
        self.summary.write_write += usize::from(by_write);
    }

    fn read(&mut self, state: &State, read: &Read) -> Result<(), Violation> {
        self.summary.reads += 1;
        let expected = state.entries.get(&read.key).copied();
        if read.value == expected { Ok(()) } else { Err(self.wrong(state, read, expected)) }
    }

    /// Why a read that did not return the contents of its version is wrong.
    fn wrong(&self, state: &State, read: &Read, expected: Option<u64>) -> Violation {
        let index = self.index;
        let id = index.id(read.transaction);
        let wanted = (read.key, read.value);
        let what = format!(
            "transaction {id} read {} for key {} at version {} of {}, which has {} there",
            shown(read.value),
            read.key,
            read.version,
            index.items[read.item as usize],
            shown(expected)
        );
        // Where the value may come from, with the most specific reason first.
        let mut found: Option<(Class, Write)> = None;
        for &write in index.writes_of(read.item) {
            let entries = &index.written(write).entries;
            // That a key is absent says little, except for those that delete it now.
            let is_near = [read.version, read.version.saturating_add(1)].contains(&write.version);
            let is_it = entries.contains(&wanted) && (is_near || read.value.is_some());
            if !is_it || write.transaction == read.transaction {
                continue;
            }
            let outcome = index.transactions[write.transaction as usize].outcome;
            let is_done = self.done[write.transaction as usize];
            let class = match outcome {
                Outcome::Aborted => Class::G1a,
                _ if is_done && write.version == read.version => Class::G1b,
                _ if !is_done || write.version > read.version => Class::DirtyRead,
                _ => continue,
            };
            let rank =
                |class| [Class::G1b, Class::G1a, Class::DirtyRead].iter().position(|&c| c == class);
            if found.is_none_or(|(best, _)| rank(class) < rank(best)) {
                found = Some((class, write));
            }
        }
        let Some((class, write)) = found else {
            let writer = self.writer_of(state.item, read);
            let others = writer.filter(|&writer| writer != read.transaction);
            let because = match writer {
                Some(writer) => format!("{what} from transaction {}", index.id(writer)),
                None => format!("{what} from the beginning"),
            };
            return self.violation(
                Class::WrongValue,
                [read.transaction].into_iter().chain(others),
                because,
            );
        };
        let (other, version) = (index.id(write.transaction), write.version);
        let because = match class {
            Class::G1a => format!("{what}; transaction {other}, which aborted, had this value"),
            Class::G1b => format!("{what}; transaction {other} had replaced this value by then"),
            _ => format!("{what}; transaction {other} has this value for version {version}"),
        };
        self.violation(class, [read.transaction, write.transaction], because)
    }

    /// The last transaction that wrote to the key of a read, up to its version.
    fn writer_of(&self, item: u32, read: &Read) -> Option<u32> {
        let writes = self.index.writes_of(item).iter().rev();
        let before = writes.filter(|write| write.version <= read.version);
        let mut before = before.filter(|write| self.done[write.transaction as usize]);
        let has_key = |write: &&Write| {
            self.index.written(**write).entries.iter().any(|(key, _)| *key == read.key)
        };
        before.find(has_key).map(|write| write.transaction)
    }

    fn duplicate(&self, write: Write, other: Write) -> Violation {
        let by = [write.transaction, other.transaction];
        let because = format!(
            "transactions {} and {} both made version {} of {}",
            self.index.id(by[0]),
            self.index.id(by[1]),
            write.version,
            self.index.items[write.item as usize]
        );
        self.violation(Class::DuplicateVersion, by, because)
    }

    /// A transaction saw a version that none made, with `last` as the next lower or the first one.
    fn gap(&self, item: u32, seen: u64, last: u64, by: u32) -> Violation {
        let index = self.index;
        let (id, name) = (index.id(by), index.items[item as usize]);
        let is_aborted = |write: &&Write| {
            index.transactions[write.transaction as usize].outcome == Outcome::Aborted
        };
        let reads = index.reads_at(item, seen).iter().filter(|read| read.transaction == by);
        let values: Vec<_> = reads.map(|read| (read.key, read.value)).collect();
        let fits = |write: &&Write| {
            let entries = &index.written(**write).entries;
            values.iter().any(|value| entries.contains(value))
        };
        let aborted = || index.writes_at(item, seen).iter().filter(is_aborted);
        if let Some(write) = aborted().find(fits).or_else(|| aborted().next()) {
            let because = format!(
                "transaction {id} saw version {seen} of {name}; transaction {}, which aborted, was \
                 about to make it",
                index.id(write.transaction)
            );
            return self.violation(Class::G1a, [by, write.transaction], because);
        }
        let because = if seen < last {
            format!("transaction {id} saw version {seen} of {name}, which began with {last}")
        } else {
            format!("transaction {id} saw version {seen} of {name}, but the last one is {last}")
        };
        self.violation(Class::Gap, [by], because)
    }

    fn violation(
        &self,
        class: Class,
        transactions: impl IntoIterator<Item = u32>,
        because: String,
    ) -> Violation {
        let transactions = transactions.into_iter().map(|at| self.index.id(at)).collect();
        Violation { class, transactions, because: vec![because] }
    }
}

impl State {
    fn apply(&mut self, index: &Index<'_>, write: Write) {
        for &(key, value) in &index.written(write).entries {
            match value {
                Some(value) => self.entries.insert(key, value),
                None => self.entries.remove(&key),
            };
        }
        (self.version, self.writer) = (write.version, Some(write.transaction));
    }
}

fn shown(value: Option<u64>) -> String {
    value.map_or_else(|| "nothing".into(), |value| format!("value {value:#x}"))
}
