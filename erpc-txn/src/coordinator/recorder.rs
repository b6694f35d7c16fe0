//! What transactions saw and did, for the checker of serializability.

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

use crate::check::{Item, Observed, Outcome, Transaction, Written, fingerprint};

use crate::table::Owner;
use crate::transaction::accesses::{Change, Entry};

/// The attempts of one or several nodes of a thread. Clones are the same recorder.
#[derive(Clone, Debug, Default)]
pub struct Recorder(Rc<RefCell<Attempts>>);

#[derive(Debug, Default)]
struct Attempts {
    ended: Vec<Transaction>,
    /// Those whose commit has begun, as if they never ended.
    committing: HashMap<Owner, Transaction>,
}

impl Recorder {
    /// A recorder of nothing so far.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was recorded: the attempts in the order of their ends, then those whose commit has
    /// begun and not ended. The outcome of these is unknown.
    #[must_use]
    pub fn take(&self) -> Vec<Transaction> {
        let Attempts { mut ended, committing } = self.0.take();
        let mut committing: Vec<_> = committing.into_values().collect();
        committing.sort_by_key(|transaction| transaction.id);
        ended.append(&mut committing);
        ended
    }

    /// The number of attempts that have ended.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().ended.len()
    }

    /// Whether no attempt has ended.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().ended.is_empty()
    }

    /// Records that the commit of an attempt begins.
    pub(super) fn begin_commit(&self, transaction: Owner, began: u64, entries: &[Entry]) {
        let times = (began, u64::MAX);
        let attempt = attempt(transaction, times, Outcome::Unknown, entries);
        self.0.borrow_mut().committing.insert(transaction, attempt);
    }

    /// Records an attempt that has ended. Times are in ns.
    pub(super) fn add(
        &self,
        transaction: Owner,
        times: (u64, u64),
        outcome: Outcome,
        entries: &[Entry],
    ) {
        let mut attempts = self.0.borrow_mut();
        attempts.committing.remove(&transaction);
        attempts.ended.push(attempt(transaction, times, outcome, entries));
    }
}

fn attempt(
    transaction: Owner,
    (began, ended): (u64, u64),
    outcome: Outcome,
    entries: &[Entry],
) -> Transaction {
    let item = |entry: &Entry| Item {
        table: entry.place.table,
        partition: entry.partition,
        bucket: entry.bucket.index(),
    };
    // A key that was locked for an insert is absent.
    let read = |entry: &Entry| Observed {
        item: item(entry),
        key: entry.place.key,
        version: entry.version.get(),
        value: entry.value.as_deref().map(fingerprint),
    };
    let mut writes: Vec<Written> = Vec::new();
    for entry in entries {
        let Some(change) = &entry.change else { continue };
        let value = match change {
            Change::Insert(value) | Change::Update(value) => Some(fingerprint(value)),
            Change::Delete => None,
        };
        let (item, base) = (item(entry), entry.version.get());
        match writes.iter_mut().find(|written| written.item == item) {
            Some(written) => written.entries.push((entry.place.key, value)),
            None => writes.push(Written { item, base, entries: vec![(entry.place.key, value)] }),
        }
    }
    let reads = entries.iter().map(read).collect();
    Transaction { id: transaction.get(), began, ended, outcome, reads, writes }
}
