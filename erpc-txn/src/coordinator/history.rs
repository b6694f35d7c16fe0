//! What transactions saw and did, for the checker of serializability.

use std::cell::RefCell;
use std::rc::Rc;

use crate::check::{Item, Observed, Outcome, Transaction, Written, fingerprint};

use super::accesses::{Change, Entry};
use crate::table::Owner;

/// The attempts of one or several nodes of a thread. Clones are the same history.
#[derive(Clone, Debug, Default)]
pub struct History(Rc<RefCell<Vec<Transaction>>>);

impl History {
    /// An empty history.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes what was recorded.
    #[must_use]
    pub fn take(&self) -> Vec<Transaction> {
        self.0.take()
    }

    /// The number of attempts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.borrow().len()
    }

    /// Whether there are no attempts.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.borrow().is_empty()
    }

    /// Records an attempt that has ended. Times are in ns.
    pub(super) fn add(
        &self,
        transaction: Owner,
        (began, ended): (u64, u64),
        outcome: Outcome,
        entries: &[Entry],
    ) {
        let item = |entry: &Entry| Item {
            table: entry.place.table,
            partition: entry.partition,
            bucket: entry.bucket.index(),
        };
        // The read of a key that was locked for an insert returned that it is absent.
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
        let id = transaction.get();
        self.0.borrow_mut().push(Transaction { id, began, ended, outcome, reads, writes });
    }
}
