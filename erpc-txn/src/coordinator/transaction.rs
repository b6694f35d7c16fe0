//! A transaction as its closure sees it.

use std::cell::{Cell, RefCell};
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use erpc::raw::Instant;
use erpc::{Endpoint, Transport, Udp};

use super::accesses::{Accesses, Entry};
use super::batch::Batch;
use super::deliver::Doubt;
use super::errors::{Abort, Reason};
use super::execute::Lock;
use super::{Inner, Node};
use crate::check::Outcome;
use crate::codec::{Key, TypedTable, Value};
use crate::mutants::mutant;
use crate::participant::Place;
use crate::table::Owner;

/// One attempt of a transaction. Clones are the same attempt.
///
/// Reads return what was committed at some moment, after the transaction's own changes. Only the
/// commit checks that all of them held at one moment: before it, a closure may see states that never
/// existed together. It must not act on them outside of the transaction.
///
/// If a method fails with [`Abort`], the attempt cannot commit any more. Return the error, and
/// `transact` makes another attempt if that may help.
pub struct Transaction<T: Transport = Udp> {
    pub(super) attempt: Rc<Attempt<T>>,
}

pub(super) struct Attempt<T: Transport> {
    pub(super) inner: Rc<Inner<T>>,
    pub(super) id: Owner,
    pub(super) sequence: u64,
    pub(super) began: Instant,
    pub(super) deadline: Instant,
    pub(super) accesses: RefCell<Accesses>,
    /// The buckets that the transaction may have locked, by a key of each.
    pub(super) locks: RefCell<Vec<Lock>>,
    /// Why the attempt cannot commit.
    doomed: RefCell<Option<Reason>>,
    /// Its locks are released, or are those of a commit.
    pub(super) is_over: Cell<bool>,
    pub(super) doubt: Rc<Doubt>,
}

impl<T: Transport> Node<T> {
    /// Begins an attempt. `transact` commits or aborts it; if it is dropped before, it is aborted.
    pub(super) fn begin(&self, endpoint: &Endpoint<T>, deadline: Instant) -> Transaction<T> {
        let inner = &self.inner;
        let sequence = inner.sequences.begin();
        let number = if mutant!(OwnerReused) { sequence / 2 + 1 } else { sequence };
        let id = inner.coordinator.transaction(number);
        let attempt = Attempt {
            inner: Rc::clone(inner),
            id: id.expect("a thread does not run out of sequence numbers in a year"),
            sequence,
            began: endpoint.now(),
            deadline,
            accesses: RefCell::default(),
            locks: RefCell::default(),
            doomed: RefCell::new(None),
            is_over: Cell::new(false),
            doubt: Rc::default(),
        };
        Transaction { attempt: Rc::new(attempt) }
    }
}

impl<T: Transport> Transaction<T> {
    /// The id of this attempt, never used again.
    #[must_use]
    pub fn id(&self) -> Owner {
        self.attempt.id
    }

    /// Reads a key; none if it is absent.
    ///
    /// # Errors
    ///
    /// [`Abort`] if another transaction holds its lock, or its node does not answer.
    pub async fn read<K: Key, V: Value>(
        &self,
        table: TypedTable<K, V>,
        key: K,
    ) -> Result<Option<V>, Abort> {
        let mut batch = self.batch();
        let ticket = batch.read(table, key);
        batch.send().await?.take(ticket)
    }

    /// Reads a key, and locks it if it is present, to [`write`](Self::write) or
    /// [`delete`](Self::delete) it. To give an absent key a value, [`insert`](Self::insert) it.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read), and if another transaction changed the key after this one had read it.
    pub async fn read_for_update<K: Key, V: Value>(
        &self,
        table: TypedTable<K, V>,
        key: K,
    ) -> Result<Option<V>, Abort> {
        let mut batch = self.batch();
        let ticket = batch.read_for_update(table, key);
        batch.send().await?.take(ticket)
    }

    /// Reads several keys in one round trip.
    ///
    /// # Errors
    ///
    /// As [`read`](Self::read).
    pub async fn read_all<K: Key, V: Value>(
        &self,
        table: TypedTable<K, V>,
        keys: impl IntoIterator<Item = K>,
    ) -> Result<Vec<Option<V>>, Abort> {
        let mut batch = self.batch();
        let tickets: Vec<_> = keys.into_iter().map(|key| batch.read(table, key)).collect();
        let mut results = batch.send().await?;
        tickets.into_iter().map(|ticket| results.take(ticket)).collect()
    }

    /// Several reads and inserts, of any tables, that are sent together.
    pub fn batch(&self) -> Batch<'_, T> {
        Batch::new(self)
    }

    /// Inserts a key that is absent, and locks it.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the key is present, the value is too long, the table is full, and as
    /// [`read_for_update`](Self::read_for_update).
    pub async fn insert<K: Key, V: Value>(
        &self,
        table: TypedTable<K, V>,
        key: K,
        value: &V,
    ) -> Result<(), Abort> {
        let mut batch = self.batch();
        batch.insert(table, key, value);
        batch.send().await.map(drop)
    }

    /// Gives a key that the transaction has locked another value. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the key is not locked or is absent, or the value is too long.
    pub fn write<K: Key, V: Value>(
        &self,
        table: TypedTable<K, V>,
        key: K,
        value: &V,
    ) -> Result<(), Abort> {
        let place = Place { table: table.id(), key: key.number() };
        let value = self.encode(place, value)?;
        self.change(place, |entry| entry.write(value))
    }

    /// Deletes a key that the transaction has locked. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the key is not locked or is absent.
    pub fn delete<K: Key, V>(&self, table: TypedTable<K, V>, key: K) -> Result<(), Abort> {
        let place = Place { table: table.id(), key: key.number() };
        self.change(place, Entry::delete)
    }

    /// The error with which a closure aborts its transaction. It is not tried again.
    pub fn abort(&self, why: impl Into<Box<dyn Error + Send + Sync>>) -> Abort {
        Abort::new(Reason::Explicit(Arc::from(why.into())))
    }

    fn change(&self, place: Place, change: impl FnOnce(&mut Entry) -> bool) -> Result<(), Abort> {
        self.attempt.check()?;
        let mut accesses = self.attempt.accesses.borrow_mut();
        if accesses.find_mut(place).is_some_and(change) {
            return Ok(());
        }
        Err(self.attempt.doom(Reason::NotLocked(place)))
    }

    pub(super) fn encode<V: Value>(&self, place: Place, value: &V) -> Result<Vec<u8>, Abort> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        let tables = &self.attempt.inner.participant.settings().tables;
        match tables.get(&place.table) {
            Some(config) if bytes.len() <= config.longest() => Ok(bytes),
            Some(_) => {
                let len = bytes.len();
                Err(self.attempt.doom(Reason::ValueTooLong { place, len }))
            }
            None => Err(self.attempt.doom(Reason::NoTable(place.table))),
        }
    }
}

impl<T: Transport> Attempt<T> {
    /// Fails if the attempt cannot commit any more.
    pub(super) fn check(&self) -> Result<(), Abort> {
        if self.is_over.get() {
            return Err(Abort::new(Reason::Ended));
        }
        match &*self.doomed.borrow() {
            Some(reason) => Err(Abort::new(reason.clone())),
            None => Ok(()),
        }
    }

    /// The attempt cannot commit any more.
    pub(super) fn doom(&self, reason: Reason) -> Abort {
        self.doomed.borrow_mut().get_or_insert_with(|| reason.clone());
        Abort::new(reason)
    }

    /// Counts the attempt and records it.
    pub(super) fn note(&self, outcome: Outcome) {
        self.inner.counting.add(|counts| {
            counts.attempts += 1;
            match outcome {
                Outcome::Committed => counts.commits += 1,
                Outcome::Aborted => counts.aborts += 1,
                Outcome::Unknown => counts.unknown += 1,
            }
        });
        if let Some(recorder) = &*self.inner.recorder.borrow() {
            // An attempt that is dropped after its endpoint has no time; it was aborted then.
            let now = self.inner.endpoint().map_or(self.began, |endpoint| endpoint.now());
            let times = (self.began.as_nanos(), now.as_nanos());
            recorder.add(self.id, times, outcome, self.accesses.borrow().entries());
        }
    }
}

impl<T: Transport> Clone for Transaction<T> {
    fn clone(&self) -> Self {
        Self { attempt: Rc::clone(&self.attempt) }
    }
}

impl<T: Transport> fmt::Debug for Transaction<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("id", &self.attempt.id).finish_non_exhaustive()
    }
}
