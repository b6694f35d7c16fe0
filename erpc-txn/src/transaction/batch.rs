//! Several accesses in one round trip.

use std::marker::PhantomData;

use super::errors::Abort;
use super::{Backend, Transaction};
use crate::codec::{Key, TypedTable, Value};
use crate::participant::{Kind, Place};

/// Accesses that are sent together, one message for each node that has keys of them.
#[must_use = "call `send`"]
pub struct Batch<'t, B: Backend> {
    transaction: &'t Transaction<B>,
    wanted: Vec<Wanted>,
    error: Option<Abort>,
}

/// An access of a batch.
#[derive(Debug)]
pub struct Wanted {
    pub(crate) place: Place,
    pub(crate) kind: Kind,
    /// For inserts.
    pub(crate) value: Option<Vec<u8>>,
}

/// Where the result of a read is.
#[derive(Debug)]
#[must_use = "take its result"]
pub struct Ticket<V> {
    place: Place,
    value: PhantomData<fn() -> V>,
}

/// The results of a batch.
#[derive(Debug)]
pub struct Results<'t, B: Backend> {
    transaction: &'t Transaction<B>,
}

impl<'t, B: Backend> Batch<'t, B> {
    pub(super) fn new(transaction: &'t Transaction<B>) -> Self {
        Self { transaction, wanted: Vec::new(), error: None }
    }

    /// Adds a [read](Transaction::read).
    pub fn read<K: Key, V: Value>(&mut self, table: TypedTable<K, V>, key: K) -> Ticket<V> {
        self.add(table.id(), key.number(), Kind::Read)
    }

    /// Adds a [read for an update](Transaction::read_for_update).
    pub fn read_for_update<K: Key, V: Value>(
        &mut self,
        table: TypedTable<K, V>,
        key: K,
    ) -> Ticket<V> {
        self.add(table.id(), key.number(), Kind::Update)
    }

    /// Adds an [insert](Transaction::insert).
    pub fn insert<K: Key, V: Value>(&mut self, table: TypedTable<K, V>, key: K, value: &V) {
        let place = table.place(key);
        match self.transaction.encode(place, value) {
            Ok(value) => {
                self.wanted.push(Wanted { place, kind: Kind::Insert, value: Some(value) });
            }
            Err(error) => self.error = Some(error),
        }
    }

    /// Makes the accesses. If one fails, the attempt cannot commit.
    ///
    /// # Errors
    ///
    /// As those of the single accesses.
    pub async fn send(self) -> Result<Results<'t, B>, Abort> {
        if let Some(error) = self.error {
            return Err(error);
        }
        self.transaction.access(self.wanted).await?;
        Ok(Results { transaction: self.transaction })
    }

    fn add<V>(&mut self, table: u16, key: u64, kind: Kind) -> Ticket<V> {
        let place = Place { table, key };
        self.wanted.push(Wanted { place, kind, value: None });
        Ticket { place, value: PhantomData }
    }
}

impl<B: Backend> Results<'_, B> {
    /// The result of a read: the key's value, none if it is absent.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the table's codec refuses the stored value.
    pub fn take<V: Value>(&mut self, ticket: Ticket<V>) -> Result<Option<V>, Abort> {
        self.transaction.value(ticket.place)
    }
}

impl<B: Backend> std::fmt::Debug for Batch<'_, B> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Batch").field("wanted", &self.wanted).finish_non_exhaustive()
    }
}
