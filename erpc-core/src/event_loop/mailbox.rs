//! How other threads reach an endpoint.
//!
//! Senders put what they have into a [`Queue`] and ring the [`Bell`].

use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, PoisonError};

use super::bell::Bell;
use crate::protocol::RequestHandle;
use crate::service::{Encoded, ReplySink};
use crate::status::Status;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::transport::Transport;

/// Closures that may wait for an endpoint; see [`Handle::submit`](crate::endpoint::Handle::submit).
pub const MAILBOX_LIMIT: usize = 4_096;

/// A queue from many threads to one, emptied as a whole.
pub(crate) struct Queue<M> {
    /// `None` once closed.
    items: Mutex<Option<Vec<M>>>,
}

/// Why a queue did not take an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum PushError {
    Full,
    Closed,
}

impl<M> Queue<M> {
    pub(crate) fn new() -> Self {
        Self { items: Mutex::new(Some(Vec::new())) }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<M>>> {
        // Nothing that can panic runs under the lock.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends, unless `limit` items wait already.
    pub(crate) fn push(&self, item: M, limit: usize) -> Result<(), PushError> {
        let mut guard = self.lock();
        let Some(items) = guard.as_mut() else { return Err(PushError::Closed) };
        if items.len() >= limit {
            return Err(PushError::Full);
        }
        items.push(item);
        Ok(())
    }

    /// Exchanges the queue's items for an empty vector, whose memory it goes on to use.
    pub(crate) fn swap(&self, empty: &mut Vec<M>) {
        debug_assert!(empty.is_empty());
        if let Some(items) = self.lock().as_mut() {
            std::mem::swap(items, empty);
        }
    }

    /// Takes no more, and drops what is there.
    pub(crate) fn close(&self) {
        let items = self.lock().take();
        drop(items);
    }
}

/// A closure that another thread wants run within the endpoint's loop.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// An answer that was not given from within its handler.
pub(crate) struct Answer {
    pub(crate) call: RequestHandle,
    pub(crate) result: Result<Encoded, Status>,
}

/// Everything that an endpoint receives from other threads but woken tasks.
pub(crate) struct Mailbox {
    bell: Arc<Bell>,
    answers: Queue<Answer>,
    jobs: Queue<Job>,
    /// Requests that came to a worker after their deadline.
    late: AtomicU64,
    /// The type of the endpoint's transport.
    transport: TypeId,
}

impl Mailbox {
    /// The mailbox of an endpoint over a `T`.
    pub(crate) fn new<T: Transport>(bell: Arc<Bell>) -> Self {
        Self {
            bell,
            answers: Queue::new(),
            jobs: Queue::new(),
            late: AtomicU64::new(0),
            transport: TypeId::of::<T>(),
        }
    }

    /// Whether it is the mailbox of an endpoint over a `T`.
    pub(crate) fn is_of<T: Transport>(&self) -> bool {
        self.transport == TypeId::of::<T>()
    }

    #[inline]
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    /// Posts a closure.
    pub(crate) fn submit(&self, job: Job) -> Result<(), PushError> {
        self.jobs.push(job, MAILBOX_LIMIT)?;
        self.bell.ring(Bell::JOBS);
        Ok(())
    }

    /// Exchanges the closures that wait for an empty vector; false if there are none.
    pub(crate) fn take_jobs(&self, empty: &mut Vec<Job>) -> bool {
        let rung = self.bell.answer(Bell::JOBS) != 0;
        if rung {
            self.jobs.swap(empty);
        }
        rung
    }

    /// Exchanges the answers that wait for the empty vector in `spare`, which stays where it is if there are none.
    pub(crate) fn take_answers(&self, spare: &Cell<Vec<Answer>>) -> Option<Vec<Answer>> {
        if self.bell.answer(Bell::REPLIES) == 0 {
            return None;
        }
        let mut answers = spare.take();
        self.answers.swap(&mut answers);
        Some(answers)
    }

    /// A request came to a worker after its deadline.
    pub(crate) fn count_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Requests that came to a worker after their deadline.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// The endpoint ends: takes no more, and drops what waits.
    pub(crate) fn close(&self) {
        self.answers.close();
        self.jobs.close();
    }
}

impl ReplySink for Mailbox {
    /// There are at most as many answers as requests that the endpoint's slots hold, so that the queue
    /// needs no limit of its own.
    fn reply(&self, call: RequestHandle, result: Result<Encoded, Status>) {
        // A closed queue means that the endpoint is gone, and the caller's session with it.
        if self.answers.push(Answer { call, result }, usize::MAX).is_ok() {
            self.bell.ring(Bell::REPLIES);
        }
    }
}

impl fmt::Debug for Mailbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_queue_refuses_and_a_closed_one_drops() {
        let queue = Queue::new();
        assert_eq!(queue.push(1, 2), Ok(()));
        assert_eq!(queue.push(2, 2), Ok(()));
        assert_eq!(queue.push(3, 2), Err(PushError::Full));
        let mut items = Vec::new();
        queue.swap(&mut items);
        assert_eq!(items, [1, 2]);
        assert_eq!(queue.push(3, 2), Ok(()));
        queue.close();
        assert_eq!(queue.push(4, 2), Err(PushError::Closed));
    }
}
