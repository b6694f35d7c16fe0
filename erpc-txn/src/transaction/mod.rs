//! A transaction as its closure sees it.
//!
//! The same type serves a closure on a [`Node`](crate::coordinator::Node) and one in a program outside
//! of the cluster, a [`Cluster`](crate::client::Cluster). They differ in what makes its accesses.
//!
//! * `accesses`: the keys of a transaction, with its own changes.
//! * `keys`: those of one attempt, and whether it can still commit.
//! * `batch`: several accesses in one round trip.
//! * `attempts`: attempts until one commits.
#![forbid(unsafe_code)]

pub(crate) mod accesses;
pub(crate) mod attempts;
mod batch;
pub(crate) mod bytes;
mod errors;
pub(crate) mod keys;

use std::collections::HashSet;
use std::error::Error;
use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use accesses::MANY;
pub(crate) use batch::Wanted;
pub use batch::{Batch, Results, Ticket};
pub use errors::{Abort, Limits, Reason, TransactError};
use keys::Keys;

use crate::codec::{Key, TypedTable, Value};
use crate::participant::{Kind, Place};
use crate::table::Owner;

/// What makes the accesses of a transaction. Implemented in this crate only.
pub trait Backend: sealed::Backend {}

pub(crate) mod sealed {
    use super::keys::Keys;
    use super::{Abort, Wanted};
    use crate::participant::Place;
    use crate::table::Owner;

    /// One attempt.
    pub trait Backend {
        /// The id of the attempt, if it is known.
        fn id(&self) -> Option<Owner>;

        /// What the attempt knows.
        fn keys(&self) -> &Keys;

        /// The longest value of a table in bytes; none if there is no such table.
        fn longest(&self, table: u16) -> Option<usize>;

        /// Reads a key of which the attempt knows nothing, if that needs no message: the result is
        /// among the keys then. False if [`execute`](Self::execute) must read it, or say why it cannot.
        fn read_here(&self, _place: Place) -> bool {
            false
        }

        /// Makes accesses of different keys at once.
        fn execute(&self, wanted: &mut [Wanted]) -> impl Future<Output = Result<(), Abort>>;
    }
}

/// One attempt of a transaction. Clones are the same attempt.
///
/// Reads return what was committed at some moment, after the transaction's own changes. Only the
/// commit checks that all of them held at one moment: before it, a closure may see states that never
/// existed together. It must not act on them outside of the transaction.
///
/// If a method fails with [`Abort`], the attempt cannot commit any more. Return the error, and
/// `transact` makes another attempt if that may help.
pub struct Transaction<B: Backend> {
    pub(crate) attempt: Rc<B>,
}

impl<B: Backend> Transaction<B> {
    /// The id of this attempt, never used again. A program outside of the cluster knows it after the
    /// first access.
    #[must_use]
    pub fn id(&self) -> Option<Owner> {
        self.attempt.id()
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
        let place = table.place(key);
        let keys = self.keys();
        keys.check()?;
        if !keys.knows(place) && !self.attempt.read_here(place) {
            self.access_one(Wanted { place, kind: Kind::Read, value: None }).await?;
        }
        self.value(place)
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
        let place = table.place(key);
        self.access_one(Wanted { place, kind: Kind::Update, value: None }).await?;
        self.value(place)
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
    pub fn batch(&self) -> Batch<'_, B> {
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
        let place = table.place(key);
        let value = Some(self.encode(place, value)?);
        self.access_one(Wanted { place, kind: Kind::Insert, value }).await
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
        let place = table.place(key);
        let value = self.encode(place, value)?;
        self.keys().write(place, value)
    }

    /// Deletes a key that the transaction has locked. Sends nothing.
    ///
    /// # Errors
    ///
    /// [`Abort`] if the key is not locked or is absent.
    pub fn delete<K: Key, V>(&self, table: TypedTable<K, V>, key: K) -> Result<(), Abort> {
        self.keys().delete(table.place(key))
    }

    /// The error with which a closure aborts its transaction. It is not tried again.
    pub fn abort(&self, why: impl Into<Box<dyn Error + Send + Sync>>) -> Abort {
        Abort::new(Reason::Explicit(Arc::from(why.into())))
    }

    fn keys(&self) -> &Keys {
        self.attempt.keys()
    }

    fn encode<V: Value>(&self, place: Place, value: &V) -> Result<Vec<u8>, Abort> {
        let mut bytes = Vec::new();
        value.encode(&mut bytes);
        self.check_len(place, bytes.len())?;
        Ok(bytes)
    }

    /// Checks that a value of this length may be stored.
    pub(crate) fn check_len(&self, place: Place, len: usize) -> Result<(), Abort> {
        match self.attempt.longest(place.table) {
            Some(longest) if len <= longest => Ok(()),
            Some(_) => Err(self.keys().doom(Reason::ValueTooLong { place, len })),
            None => Err(self.keys().doom(Reason::NoTable(place.table))),
        }
    }

    /// What the transaction sees of a key that it has read.
    fn value<V: Value>(&self, place: Place) -> Result<Option<V>, Abort> {
        let keys = self.keys();
        let value = keys.current(place, |bytes| bytes.map(V::decode)).transpose();
        value.map_err(|error| keys.doom(Reason::Value { place, error: Arc::new(error) }))
    }

    /// Makes an access. Most transactions make few, so this does without lists.
    async fn access_one(&self, mut wanted: Wanted) -> Result<(), Abort> {
        let keys = self.keys();
        let running = keys.begin_access()?;
        let done = match keys.needs(&mut wanted) {
            Ok(true) => self.attempt.execute(&mut [wanted]).await.and_then(|()| keys.check()),
            Ok(false) => Ok(()),
            Err(abort) => Err(abort),
        };
        running.end();
        done
    }

    /// Makes accesses, those of different keys at once.
    pub(crate) async fn access(&self, mut wanted: Vec<Wanted>) -> Result<(), Abort> {
        if wanted.len() == 1
            && let Some(one) = wanted.pop()
        {
            return self.access_one(one).await;
        }
        let keys = self.keys();
        let running = keys.begin_access()?;
        let done = async {
            if are_new(keys, &wanted) {
                self.attempt.execute(&mut wanted).await?;
                return keys.check();
            }
            while !wanted.is_empty() {
                keys.check()?;
                let (mut now, later) = split(keys, wanted)?;
                if !now.is_empty() {
                    self.attempt.execute(&mut now).await?;
                }
                wanted = later;
            }
            keys.check()
        };
        let done = done.await;
        running.end();
        done
    }
}

/// Whether the accesses are of different keys of which the attempt knows nothing. Nearly always, so
/// that [`split`] is not needed. Many accesses are not compared.
fn are_new(keys: &Keys, wanted: &[Wanted]) -> bool {
    let differs = |(at, one): (usize, &Wanted)| {
        !keys.knows(one.place) && wanted[..at].iter().all(|other| other.place != one.place)
    };
    (1..=MANY).contains(&wanted.len()) && wanted.iter().enumerate().all(differs)
}

/// The accesses to make now, and those of the same keys, which come after them.
fn split(keys: &Keys, wanted: Vec<Wanted>) -> Result<(Vec<Wanted>, Vec<Wanted>), Abort> {
    let (mut now, mut later) = (Vec::with_capacity(wanted.len()), Vec::new());
    // Few as a rule, so a search looks at all of them.
    let mut places = (wanted.len() > MANY).then(HashSet::new);
    for mut wanted in wanted {
        let is_there = match &places {
            Some(places) => places.contains(&wanted.place),
            None => now.iter().any(|other: &Wanted| other.place == wanted.place),
        };
        if is_there {
            later.push(wanted);
        } else if keys.needs(&mut wanted)? {
            if let Some(places) = &mut places {
                places.insert(wanted.place);
            }
            now.push(wanted);
        }
    }
    Ok((now, later))
}

impl<B: Backend> Clone for Transaction<B> {
    fn clone(&self) -> Self {
        Self { attempt: Rc::clone(&self.attempt) }
    }
}

impl<B: Backend> fmt::Debug for Transaction<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transaction").field("id", &self.id()).finish_non_exhaustive()
    }
}
