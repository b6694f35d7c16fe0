//! How other threads reach an endpoint.
//!
//! Senders put what they have into a [`Queue`] and ring the [`Bell`]; the endpoint looks at the bell
//! once per turn, which is one load of a line that is rarely written. Only a bell that rings while the
//! endpoint sleeps costs a system call.

use std::fmt;
use std::sync::{Arc, PoisonError};

use crate::endpoint::open::Endpoint;
use crate::protocol::RequestHandle;
use crate::service::{Encoded, ReplySink};
use crate::status::Status;
use crate::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use crate::sync::{Mutex, MutexGuard};
use crate::transport::{Transport, Waker};

/// Closures that may wait for an endpoint; see [`Handle::submit`](crate::endpoint::Handle::submit).
pub const MAILBOX_LIMIT: usize = 4_096;

/// Gets an endpoint's attention, asleep or not.
pub(crate) struct Bell {
    rung: AtomicU8,
    sleeping: AtomicBool,
    waker: Waker,
}

impl Bell {
    /// Replies of workers and continuations wait.
    pub(crate) const REPLIES: u8 = 1;
    /// Tasks were woken.
    pub(crate) const WAKES: u8 = 2;
    /// Closures wait.
    pub(crate) const JOBS: u8 = 4;
    /// Nothing waits here; the condition that somebody runs the loop for may have changed.
    const NUDGE: u8 = 8;

    pub(crate) fn new(waker: Waker) -> Self {
        Self { rung: AtomicU8::new(0), sleeping: AtomicBool::new(false), waker }
    }

    /// Tells the endpoint that there is something in the queue of kind `what`, put there before.
    pub(crate) fn ring(&self, what: u8) {
        // Rung already, and not answered: who answers looks into the queue afterwards. Had it looked
        // before the item was there, the queue's lock would show its answer here.
        if self.rung.load(Ordering::Relaxed) & what == 0 {
            self.ring_anew(what);
        }
    }

    /// Tells the endpoint that its loop's condition may have changed.
    pub(crate) fn nudge(&self) {
        self.ring_anew(Self::NUDGE);
    }

    fn ring_anew(&self, what: u8) {
        // One total order of this write, the load below and those of `sleep`: either the sleeper sees
        // the ring or the ringer sees the sleeper.
        self.rung.fetch_or(what, Ordering::SeqCst);
        if self.sleeping.load(Ordering::SeqCst) && self.sleeping.swap(false, Ordering::AcqRel) {
            self.waker.wake();
        }
    }

    /// Whether anything waits. Cheap; the queues' locks give the ordering.
    #[inline]
    pub(crate) fn is_rung(&self) -> bool {
        self.rung.load(Ordering::Relaxed) != 0
    }

    /// Silences the bell for `kinds` and returns for which of them it had rung. Look into their
    /// queues afterwards.
    pub(crate) fn answer(&self, kinds: u8) -> u8 {
        self.rung.fetch_and(!kinds, Ordering::AcqRel) & kinds
    }

    /// Silences the bell for nudges, and says whether there was one: if so, the caller has to look at
    /// its condition before it sleeps.
    pub(crate) fn answer_nudge(&self) -> bool {
        self.answer(Self::NUDGE) != 0
    }

    /// Calls `wait`, during which rings use the waker, unless the bell has rung.
    pub(crate) fn sleep(&self, wait: impl FnOnce()) {
        if self.begin_sleep() {
            wait();
        }
        self.end_sleep();
    }

    /// From here on rings use the waker; false if the bell has rung already.
    pub(crate) fn begin_sleep(&self) -> bool {
        // A swap costs what the store would, and loom knows its place among those of the ringers.
        self.sleeping.swap(true, Ordering::SeqCst);
        self.rung.load(Ordering::SeqCst) == 0
    }

    pub(crate) fn end_sleep(&self) {
        self.sleeping.store(false, Ordering::Relaxed);
    }
}

/// A queue from many threads to one, emptied as a whole.
pub(crate) struct Queue<M> {
    /// `None` once closed.
    items: Mutex<Option<Vec<M>>>,
}

/// Why a queue did not take an item.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Refused {
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
    pub(crate) fn push(&self, item: M, limit: usize) -> Result<(), Refused> {
        let mut guard = self.lock();
        let Some(items) = guard.as_mut() else { return Err(Refused::Closed) };
        if items.len() >= limit {
            return Err(Refused::Full);
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

/// A closure that another thread wants run at the endpoint.
pub(crate) type Job<T> = Box<dyn FnOnce(&Endpoint<T>) + Send>;

/// An answer that was not given from within its handler.
pub(crate) type Answer = (RequestHandle, Result<Encoded, Status>);

/// Everything that an endpoint receives from other threads but woken tasks.
pub(crate) struct Mailbox<T: Transport> {
    pub(crate) bell: Arc<Bell>,
    pub(crate) replies: Queue<Answer>,
    pub(crate) jobs: Queue<Job<T>>,
    /// Requests that came to a worker after their deadline.
    pub(crate) late: AtomicU64,
}

impl<T: Transport> Mailbox<T> {
    pub(crate) fn new(bell: Arc<Bell>) -> Self {
        Self { bell, replies: Queue::new(), jobs: Queue::new(), late: AtomicU64::new(0) }
    }

    /// Posts a closure.
    pub(crate) fn submit(&self, job: Job<T>) -> Result<(), Refused> {
        self.jobs.push(job, MAILBOX_LIMIT)?;
        self.bell.ring(Bell::JOBS);
        Ok(())
    }

    pub(crate) fn close(&self) {
        self.replies.close();
        self.jobs.close();
    }
}

impl<T: Transport> ReplySink for Mailbox<T> {
    /// There are at most as many replies as requests that the endpoint's slots hold, so that the queue
    /// needs no limit of its own.
    fn reply(&self, call: RequestHandle, result: Result<Encoded, Status>) {
        // A closed queue means that the endpoint is gone, and the caller's session with it.
        if self.replies.push((call, result), usize::MAX).is_ok() {
            self.bell.ring(Bell::REPLIES);
        }
    }
}

impl<T: Transport> fmt::Debug for Mailbox<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Mailbox")
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use super::*;

    #[test]
    fn a_full_queue_refuses_and_a_closed_one_drops() {
        let queue = Queue::new();
        assert_eq!(queue.push(1, 2), Ok(()));
        assert_eq!(queue.push(2, 2), Ok(()));
        assert_eq!(queue.push(3, 2), Err(Refused::Full));
        let mut items = Vec::new();
        queue.swap(&mut items);
        assert_eq!(items, [1, 2]);
        assert_eq!(queue.push(3, 2), Ok(()));
        queue.close();
        assert_eq!(queue.push(4, 2), Err(Refused::Closed));
    }

    #[test]
    fn only_a_sleeper_is_woken_and_only_once() {
        let wakes = Arc::new(AtomicUsize::new(0));
        let bell = Bell::new(Waker::new({
            let wakes = Arc::clone(&wakes);
            move || {
                wakes.fetch_add(1, Ordering::Relaxed);
            }
        }));
        bell.ring(Bell::REPLIES);
        assert_eq!(wakes.load(Ordering::Relaxed), 0);
        bell.sleep(|| panic!("the bell has rung"));
        assert_eq!(bell.answer(Bell::REPLIES | Bell::JOBS), Bell::REPLIES);
        bell.sleep(|| {
            bell.ring(Bell::JOBS);
            bell.ring(Bell::WAKES);
        });
        assert_eq!(wakes.load(Ordering::Relaxed), 1);
        assert!(bell.is_rung());
    }
}
