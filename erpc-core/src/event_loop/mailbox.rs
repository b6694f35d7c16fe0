//! How other threads reach an endpoint: they push items into a [`Queue`] and ring the [`Bell`].

use std::any::TypeId;
use std::cell::Cell;
use std::fmt;
use std::sync::{Arc, PoisonError};

use super::bell::Bell;
use super::wakes::WakeList;
use crate::protocol::RequestHandle;
use crate::service::{Encoded, ReplySink};
use crate::status::Status;
use crate::sync::atomic::{AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::transport::Transport;

/// Most closures that may be queued for an endpoint; see
/// [`Handle::submit`](crate::endpoint::Handle::submit).
pub const MAILBOX_LIMIT: usize = 4_096;

/// A queue from many threads to one, drained as a whole.
pub(crate) struct Queue<M> {
    /// `None` after the queue was closed.
    items: Mutex<Option<Vec<M>>>,
}

/// Why a queue refused an item.
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
        // No code that can panic runs under the lock.
        self.items.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Appends an item. Refuses it if `limit` items are already queued, or if the queue was closed.
    pub(crate) fn push(&self, item: M, limit: usize) -> Result<(), PushError> {
        let mut guard = self.lock();
        let Some(items) = guard.as_mut() else { return Err(PushError::Closed) };
        if items.len() >= limit {
            return Err(PushError::Full);
        }
        items.push(item);
        Ok(())
    }

    /// Swaps the queue's items for an empty vector, so that the vector's memory is reused.
    pub(crate) fn swap(&self, empty: &mut Vec<M>) {
        debug_assert!(empty.is_empty());
        if let Some(items) = self.lock().as_mut() {
            std::mem::swap(items, empty);
        }
    }

    /// Refuses further items, and drops the queued ones.
    pub(crate) fn close(&self) {
        let items = self.lock().take();
        drop(items);
    }
}

/// A closure that another thread submits to run in the endpoint's loop.
pub(crate) type Job = Box<dyn FnOnce() + Send>;

/// An answer that was given outside of its handler.
pub(crate) struct Answer {
    pub(crate) call: RequestHandle,
    pub(crate) result: Result<Encoded, Status>,
}

/// Everything that an endpoint receives from other threads, except woken tasks.
pub(crate) struct Mailbox {
    bell: Arc<Bell>,
    answers: Queue<Answer>,
    jobs: Queue<Job>,
    /// Tasks that the endpoint wakes, or the thread that polls the first of them.
    wakes: WakeList,
    /// Number of requests that reached a worker after their deadline.
    late: AtomicU64,
    /// Type of the endpoint's transport.
    transport: TypeId,
}

impl Mailbox {
    /// The mailbox of an endpoint over transport `T`.
    pub(crate) fn new<T: Transport>(bell: Arc<Bell>) -> Self {
        Self {
            bell,
            answers: Queue::new(),
            jobs: Queue::new(),
            wakes: WakeList::new(),
            late: AtomicU64::new(0),
            transport: TypeId::of::<T>(),
        }
    }

    /// Whether this is the mailbox of an endpoint over transport `T`.
    pub(crate) fn is_of<T: Transport>(&self) -> bool {
        self.transport == TypeId::of::<T>()
    }

    #[inline]
    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    #[inline]
    pub(crate) fn wakes(&self) -> &WakeList {
        &self.wakes
    }

    /// Queues a closure, unless `limit` closures are queued, and rings the bell.
    pub(crate) fn submit(&self, job: Job, limit: usize) -> Result<(), PushError> {
        self.jobs.push(job, limit)?;
        self.bell.ring(Bell::JOBS);
        Ok(())
    }

    /// Swaps the queued closures for an empty vector. False if the bell has not rung for them.
    pub(crate) fn take_jobs(&self, empty: &mut Vec<Job>) -> bool {
        let rung = self.bell.answer(Bell::JOBS) != 0;
        if rung {
            self.jobs.swap(empty);
        }
        rung
    }

    /// Swaps the queued answers for the empty vector in `spare`. `None`, with `spare` unchanged, if
    /// the bell has not rung for answers.
    pub(crate) fn take_answers(&self, spare: &Cell<Vec<Answer>>) -> Option<Vec<Answer>> {
        if self.bell.answer(Bell::REPLIES) == 0 {
            return None;
        }
        let mut answers = spare.take();
        self.answers.swap(&mut answers);
        Some(answers)
    }

    /// Counts a request that reached a worker after its deadline.
    pub(crate) fn count_late(&self) {
        self.late.fetch_add(1, Ordering::Relaxed);
    }

    /// Number of requests that reached a worker after their deadline.
    pub(crate) fn late(&self) -> u64 {
        self.late.load(Ordering::Relaxed)
    }

    /// Called when the endpoint ends: refuses further items, and drops the queued ones.
    pub(crate) fn close(&self) {
        self.answers.close();
        self.jobs.close();
    }
}

impl ReplySink for Mailbox {
    /// The queue needs no limit: there are at most as many answers as requests in the endpoint's
    /// slots.
    fn reply(&self, call: RequestHandle, result: Result<Encoded, Status>) {
        // A closed queue means that the endpoint has ended, and with it the caller's session.
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
    fn a_full_queue_and_a_closed_queue_refuse_items() {
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
