//! Attempts of a node's transactions.

use std::cell::RefCell;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;

use erpc::raw::Instant;
use erpc::{Transport, Udp};

use super::execute::Locks;
use super::{Inner, Node};
use crate::check::Outcome;
use crate::mutants::mutant;
use crate::participant::Place;
use crate::table::{Config, Owner};
use crate::transaction::attempts::{self, Coordinate};
use crate::transaction::keys::Keys;
use crate::transaction::{Abort, Backend, Limits, TransactError, Wanted, sealed};

/// A transaction that a [`Node`] coordinates.
pub type Transaction<T = Udp> = crate::transaction::Transaction<Attempt<T>>;

/// One attempt of a transaction that a [`Node`] coordinates.
pub struct Attempt<T: Transport = Udp> {
    pub(super) inner: Rc<Inner<T>>,
    pub(super) id: Owner,
    pub(super) sequence: u64,
    pub(super) began: Instant,
    pub(super) deadline: Instant,
    pub(super) keys: Keys,
    /// The buckets that the transaction may have locked, by a key of each.
    pub(super) locks: RefCell<Locks>,
}

/// After this many transactions the next one lets other tasks run first. A transaction of which all
/// keys are local does not wait, so a task with such transactions would hold the event loop for ever.
const EAGER: u64 = 64;

/// Lets the event loop and other tasks run.
async fn yield_now() {
    let mut is_first = true;
    poll_fn(|cx| {
        if !std::mem::take(&mut is_first) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl<T: Transport> Node<T> {
    /// Runs a transaction, with the default [`Limits`].
    ///
    /// The closure runs once per attempt. It must be called in a task of the node's endpoint, or in
    /// its `block_on`.
    ///
    /// # Errors
    ///
    /// [`TransactError`] if the transaction was aborted, or its outcome is unknown.
    ///
    /// # Panics
    ///
    /// Outside of the loop of the node's endpoint.
    pub async fn transact<R>(
        &self,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort>,
    ) -> Result<R, TransactError> {
        self.transact_within(Limits::new(), body).await
    }

    /// Runs a transaction within limits. Otherwise like [`transact`](Self::transact).
    ///
    /// # Errors
    ///
    /// As `transact`. After the last attempt, the error is that of this attempt.
    ///
    /// # Panics
    ///
    /// As `transact`.
    pub async fn transact_within<R>(
        &self,
        limits: Limits,
        body: impl AsyncFn(Transaction<T>) -> Result<R, Abort>,
    ) -> Result<R, TransactError> {
        let transacted = self.inner.transacted.get() + 1;
        self.inner.transacted.set(transacted);
        if transacted.is_multiple_of(EAGER) {
            yield_now().await;
        }
        if let Some(reason) = self.stopping() {
            return Err(TransactError::Aborted(reason));
        }
        let _counted = self.inner.running.begin();
        attempts::run::<T, _, _>(self, limits, body).await
    }

    /// Begins an attempt. If it is dropped before it is committed or released, it is aborted.
    pub(crate) fn begin_at(&self, now: Instant, deadline: Instant) -> Transaction<T> {
        let inner = &self.inner;
        let sequence = inner.sequences.begin();
        let number = if mutant!(OwnerReused) { sequence / 2 + 1 } else { sequence };
        let id = inner.coordinator.transaction(number);
        let attempt = Attempt {
            inner: Rc::clone(inner),
            id: id.expect("a thread does not run out of sequence numbers in a year"),
            sequence,
            began: now,
            deadline,
            keys: Keys::default(),
            locks: RefCell::default(),
        };
        Transaction { attempt: Rc::new(attempt) }
    }
}

impl<T: Transport> Coordinate for Node<T> {
    type Backend = Attempt<T>;

    fn begin(&self, now: Instant, deadline: Instant) -> Transaction<T> {
        self.begin_at(now, deadline)
    }

    fn commit_here(&self, attempt: &Attempt<T>) -> bool {
        attempt.commit_here()
    }

    async fn commit(&self, attempt: &Attempt<T>) -> Result<(), TransactError> {
        attempt.commit().await
    }

    async fn release(&self, attempt: &Attempt<T>) {
        attempt.release().await;
    }

    fn give_up(&self, attempt: &Attempt<T>) {
        attempt.give_up();
    }

    fn random(&self, bound: u64) -> u64 {
        self.inner.random(bound)
    }
}

impl<T: Transport> Attempt<T> {
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
            self.keys.with(|entries| recorder.add(self.id, times, outcome, entries));
        }
    }
}

impl<T: Transport> Backend for Attempt<T> {}

impl<T: Transport> sealed::Backend for Attempt<T> {
    fn id(&self) -> Option<Owner> {
        Some(self.id)
    }

    fn keys(&self) -> &Keys {
        &self.keys
    }

    fn longest(&self, table: u16) -> Option<usize> {
        self.inner.participant.settings().tables.get(&table).map(Config::longest)
    }

    fn read_here(&self, place: Place) -> bool {
        self.read_own(place)
    }

    async fn execute(&self, wanted: &mut [Wanted]) -> Result<(), Abort> {
        self.make(wanted).await
    }
}

impl<T: Transport> fmt::Debug for Attempt<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Attempt").field("id", &self.id).finish_non_exhaustive()
    }
}
