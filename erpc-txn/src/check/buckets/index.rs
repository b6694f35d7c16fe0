//! The accesses of a history, sorted by bucket and version.

use std::collections::{BTreeMap, HashMap};

use crate::check::graph::index;
use crate::check::history::Contents;
use crate::check::{Class, Item, Outcome, Transaction, Violation, Written};

/// A read of a transaction that has not aborted.
#[derive(Clone, Copy, Debug)]
pub(super) struct Read {
    pub(super) item: u32,
    pub(super) version: u64,
    pub(super) transaction: u32,
    pub(super) key: u64,
    pub(super) value: Option<u64>,
}

/// A write of any transaction.
#[derive(Clone, Copy, Debug)]
pub(super) struct Write {
    pub(super) item: u32,
    /// The version that it makes.
    pub(super) version: u64,
    pub(super) transaction: u32,
    /// Its position in the transaction's writes.
    at: u32,
}

#[derive(Debug)]
pub(super) struct Index<'a> {
    pub(super) transactions: &'a [Transaction],
    pub(super) items: Vec<Item>,
    initial: Vec<Option<&'a Contents>>,
    /// Sorted by item, version and transaction.
    pub(super) reads: Vec<Read>,
    pub(super) writes: Vec<Write>,
    /// Where the accesses of each item begin, and the end.
    read_starts: Vec<usize>,
    write_starts: Vec<usize>,
}

impl<'a> Index<'a> {
    /// Sorts the accesses.
    ///
    /// # Errors
    ///
    /// A violation if the history is malformed, or a key is in two buckets.
    pub(super) fn new(
        initial: &'a BTreeMap<Item, Contents>,
        transactions: &'a [Transaction],
    ) -> Result<Self, Violation> {
        check_form(transactions)?;
        let mut names = Names::default();
        for (item, contents) in initial {
            let item = names.item(*item, Some(contents));
            for (key, _) in &contents.entries {
                names.key(item, *key, None)?;
            }
        }
        let (mut reads, mut writes) = (Vec::new(), Vec::new());
        for (at, transaction) in transactions.iter().enumerate() {
            let by = Some(transaction.id);
            for (position, write) in transaction.writes.iter().enumerate() {
                let item = names.item(write.item, None);
                for (key, _) in &write.entries {
                    names.key(item, *key, by)?;
                }
                let (transaction, version) = (index(at), write.base + 1);
                writes.push(Write { item, version, transaction, at: index(position) });
            }
            if transaction.outcome == Outcome::Aborted {
                continue;
            }
            for read in &transaction.reads {
                let item = names.item(read.item, None);
                names.key(item, read.key, by)?;
                let (version, key, value) = (read.version, read.key, read.value);
                reads.push(Read { item, version, transaction: index(at), key, value });
            }
        }
        reads.sort_unstable_by_key(|read| (read.item, read.version, read.transaction));
        writes.sort_unstable_by_key(|write| (write.item, write.version, write.transaction));
        let items = names.items.len();
        Ok(Self {
            transactions,
            read_starts: starts(items, reads.iter().map(|read| read.item)),
            write_starts: starts(items, writes.iter().map(|write| write.item)),
            items: names.items,
            initial: names.initial,
            reads,
            writes,
        })
    }

    pub(super) fn id(&self, transaction: u32) -> u64 {
        self.transactions[transaction as usize].id
    }

    pub(super) fn written(&self, write: Write) -> &'a Written {
        &self.transactions[write.transaction as usize].writes[write.at as usize]
    }

    /// The version of an item when the history begins.
    pub(super) fn initial_version(&self, item: u32) -> u64 {
        self.initial[item as usize].map_or(0, |contents| contents.version)
    }

    pub(super) fn initial_entries(&self, item: u32) -> &'a [(u64, u64)] {
        self.initial[item as usize].map_or(&[], |contents| &contents.entries)
    }

    pub(super) fn reads_of(&self, item: u32) -> &[Read] {
        let item = item as usize;
        &self.reads[self.read_starts[item]..self.read_starts[item + 1]]
    }

    pub(super) fn writes_of(&self, item: u32) -> &[Write] {
        let item = item as usize;
        &self.writes[self.write_starts[item]..self.write_starts[item + 1]]
    }

    pub(super) fn reads_at(&self, item: u32, version: u64) -> &[Read] {
        let reads = self.reads_of(item);
        let first = reads.partition_point(|read| read.version < version);
        let count = reads[first..].partition_point(|read| read.version == version);
        &reads[first..first + count]
    }

    /// The writes that make a version, or would have made it.
    pub(super) fn writes_at(&self, item: u32, version: u64) -> &[Write] {
        let writes = self.writes_of(item);
        let first = writes.partition_point(|write| write.version < version);
        let count = writes[first..].partition_point(|write| write.version == version);
        &writes[first..first + count]
    }

    /// What a transaction read at a version, in words.
    pub(super) fn keys(&self, transaction: u32, item: u32, version: u64) -> String {
        let reads = self.reads_at(item, version);
        let mut reads = reads.iter().filter(|read| read.transaction == transaction);
        let Some(first) = reads.next() else { return "it".into() };
        let value = if first.value.is_none() { ", absent" } else { "" };
        match reads.count() {
            0 => format!("key {}{value}", first.key),
            more => format!("key {}{value} and {more} more", first.key),
        }
    }
}

/// The items by number, and where each key is.
#[derive(Default)]
struct Names<'a> {
    numbers: HashMap<Item, u32>,
    items: Vec<Item>,
    initial: Vec<Option<&'a Contents>>,
    /// By table and key: the item, and the transaction that was seen there first.
    keys: HashMap<(u16, u64), (u32, Option<u64>)>,
}

impl<'a> Names<'a> {
    fn item(&mut self, item: Item, contents: Option<&'a Contents>) -> u32 {
        *self.numbers.entry(item).or_insert_with(|| {
            self.items.push(item);
            self.initial.push(contents);
            index(self.items.len() - 1)
        })
    }

    fn key(&mut self, item: u32, key: u64, by: Option<u64>) -> Result<(), Violation> {
        let here = self.items[item as usize];
        let (at, first) = *self.keys.entry((here.table, key)).or_insert((item, by));
        if at == item {
            return Ok(());
        }
        let there = self.items[at as usize];
        let name =
            |by: Option<u64>| by.map_or("the start".into(), |id| format!("transaction {id}"));
        let because =
            format!("key {key} is in {there} for {}, and in {here} for {}", name(first), name(by));
        let transactions = first.into_iter().chain(by).collect();
        Err(Violation { class: Class::Misplaced, transactions, because: vec![because] })
    }
}

fn starts(items: usize, of: impl Iterator<Item = u32>) -> Vec<usize> {
    let mut starts = vec![0; items + 1];
    of.for_each(|item| starts[item as usize + 1] += 1);
    for item in 0..items {
        starts[item + 1] += starts[item];
    }
    starts
}

fn check_form(transactions: &[Transaction]) -> Result<(), Violation> {
    let malformed = |transaction: &Transaction, because: String| {
        let transactions = vec![transaction.id];
        Err(Violation { class: Class::Malformed, transactions, because: vec![because] })
    };
    let mut ids: Vec<_> = transactions.iter().map(|transaction| transaction.id).collect();
    ids.sort_unstable();
    let twice = ids.windows(2).find(|pair| pair[0] == pair[1]).map(|pair| pair[0]);
    let mut items = Vec::new();
    for transaction in transactions {
        let Transaction { id, began, ended, outcome, .. } = transaction;
        if twice == Some(*id) {
            return malformed(transaction, format!("there are two transactions {id}"));
        }
        if *outcome != Outcome::Unknown && ended < began {
            return malformed(
                transaction,
                format!("transaction {id} ended at {ended} ns, but began at {began} ns"),
            );
        }
        items.clear();
        items.extend(transaction.writes.iter().map(|write| write.item));
        items.sort_unstable();
        if let Some(pair) = items.windows(2).find(|pair| pair[0] == pair[1]) {
            return malformed(
                transaction,
                format!("transaction {id} has two lists of writes to {}", pair[0]),
            );
        }
        if let Some(write) = transaction.writes.iter().find(|write| write.base == u64::MAX) {
            return malformed(
                transaction,
                format!("transaction {id} writes to {} above its last version", write.item),
            );
        }
    }
    Ok(())
}
