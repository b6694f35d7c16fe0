//! Wakes tasks of other threads whose calls have ended.
//!
//! The first task that a loop wakes may wake a sleeping thread of a runtime. If the kernel runs
//! that thread on the core of the loop, the loop pauses until the thread has run this one task and
//! sleeps again, and the same follows for each further task. So the loop wakes only the first task
//! of a batch. When that task is polled, its thread wakes the rest, which then run before the
//! thread sleeps.
//!
//! ```text
//!   loop's thread                            runtime's thread
//!   WakeBatch  -- wakes the first task --->  its poll releases the rest
//!              -- holds the rest in ------>  WakeList
//! ```
//!
//! The first task may be polled late or never: its runtime may be busy, or it may wait for
//! something else by now. Then the loop itself wakes the rest: after [`PATIENCE`] turns, before it
//! sleeps, and when it ends.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::PoisonError;
use std::task::Waker;

use crate::sync::atomic::{AtomicBool, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// Turns until the loop wakes the rest of a batch itself: 10 to 50 us in an idle loop, about as
/// long as a sleeping thread takes to wake up.
const PATIENCE: u32 = 64;

/// The tasks of other threads whose calls have ended in the current turn of a loop.
#[derive(Default)]
pub(crate) struct WakeBatch {
    tasks: RefCell<Vec<Waker>>,
    /// Turns since the loop held tasks in the list. 0 if it holds none.
    turns: Cell<u32>,
}

impl WakeBatch {
    /// Adds a task to wake at the end of the turn.
    pub(crate) fn push(&self, task: Waker) {
        self.tasks.borrow_mut().push(task);
    }

    /// Called at the end of each turn.
    #[inline]
    pub(crate) fn end_turn(&self, list: &WakeList) {
        if !self.tasks.borrow().is_empty() {
            self.wake_first(list);
        } else if self.turns.get() > 0 {
            self.wait(list);
        }
    }

    /// Wakes the first task, and holds the others in `list`. If the list still holds tasks of an
    /// earlier batch, wakes none: those tasks are released with this batch.
    #[inline(never)]
    fn wake_first(&self, list: &WakeList) {
        // A waker is foreign code, so the batch is not borrowed while it runs.
        let mut tasks = self.tasks.take();
        let (first, holds) = list.hold(&mut tasks);
        if self.tasks.borrow().is_empty() {
            self.tasks.replace(tasks);
        }
        match first {
            Some(first) => {
                self.turns.set(u32::from(holds));
                first.wake();
            }
            None => self.wait(list),
        }
    }

    /// Counts a turn in which the list may hold tasks.
    fn wait(&self, list: &WakeList) {
        if self.turns.get() >= PATIENCE {
            self.flush(list);
            return;
        }
        self.turns.set(if list.is_empty() { 0 } else { self.turns.get() + 1 });
    }

    /// Wakes all tasks now, because no turn may follow soon. Returns whether there may have been
    /// some. One of them may be a task of this loop, so the loop must look for work before it
    /// sleeps.
    #[inline]
    pub(crate) fn flush(&self, list: &WakeList) -> bool {
        let held = self.turns.replace(0) > 0;
        if held {
            list.release();
        }
        held
    }
}

/// The tasks that the first task of a batch wakes. Threads that poll calls share it with the loop.
pub(crate) struct WakeList {
    /// Whether there are tasks. A thread that was woken after a store of true sees it.
    holds: AtomicBool,
    tasks: Mutex<Vec<Waker>>,
}

impl WakeList {
    pub(crate) fn new() -> Self {
        Self { holds: AtomicBool::new(false), tasks: Mutex::new(Vec::new()) }
    }

    fn tasks(&self) -> MutexGuard<'_, Vec<Waker>> {
        // No code that can panic runs under the lock.
        self.tasks.lock().unwrap_or_else(PoisonError::into_inner)
    }

    #[inline]
    fn is_empty(&self) -> bool {
        !self.holds.load(Ordering::Relaxed)
    }

    /// Takes over the tasks of a batch. Returns the one to wake, if no earlier batch is held, and
    /// whether the list holds tasks.
    fn hold(&self, batch: &mut Vec<Waker>) -> (Option<Waker>, bool) {
        if batch.len() == 1 && self.is_empty() {
            return (batch.pop(), false);
        }
        let mut tasks = self.tasks();
        let first = if tasks.is_empty() { Some(batch.remove(0)) } else { None };
        tasks.append(batch);
        let holds = !tasks.is_empty();
        self.holds.store(holds, Ordering::Relaxed);
        (first, holds)
    }

    /// Wakes the tasks. Called by each poll of a call, and by the loop.
    #[inline]
    pub(crate) fn release(&self) {
        if !self.is_empty() {
            self.release_now();
        }
    }

    #[inline(never)]
    fn release_now(&self) {
        let mut guard = self.tasks();
        self.holds.store(false, Ordering::Relaxed);
        let mut tasks = std::mem::take(&mut *guard);
        drop(guard);
        for task in tasks.drain(..) {
            // A waker is foreign code. The panic hook reports its panic; the other tasks and the
            // caller, which is not concerned, continue.
            drop(catch_unwind(AssertUnwindSafe(|| task.wake())));
        }
        // The next batch reuses the memory.
        let mut guard = self.tasks();
        if guard.capacity() < tasks.capacity() && guard.is_empty() {
            *guard = tasks;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::AtomicU32;
    use std::task::Wake;

    use super::*;

    /// A task that counts how often it is woken.
    #[derive(Default)]
    struct Task(AtomicU32);

    impl Wake for Task {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Adds `N` tasks to the batch.
    fn tasks<const N: usize>(batch: &WakeBatch) -> [Arc<Task>; N] {
        let tasks: [Arc<Task>; N] = std::array::from_fn(|_| Arc::default());
        tasks.iter().for_each(|task| batch.push(Waker::from(Arc::clone(task))));
        tasks
    }

    fn wakes(tasks: &[Arc<Task>]) -> Vec<u32> {
        tasks.iter().map(|task| task.0.load(Ordering::Relaxed)).collect()
    }

    #[test]
    fn the_loop_wakes_the_first_task_and_a_poll_the_rest() {
        let (batch, list) = (WakeBatch::default(), WakeList::new());
        let tasks = tasks::<3>(&batch);
        batch.end_turn(&list);
        assert_eq!(wakes(&tasks), [1, 0, 0]);
        list.release();
        assert_eq!(wakes(&tasks), [1, 1, 1]);
        (0..2 * PATIENCE).for_each(|_| batch.end_turn(&list));
        batch.flush(&list);
        assert_eq!(wakes(&tasks), [1, 1, 1]);
    }

    #[test]
    fn the_loop_wakes_the_rest_if_no_poll_does() {
        let (batch, list) = (WakeBatch::default(), WakeList::new());
        let tasks = tasks::<2>(&batch);
        (0..PATIENCE).for_each(|_| batch.end_turn(&list));
        assert_eq!(wakes(&tasks), [1, 0]);
        batch.end_turn(&list);
        assert_eq!(wakes(&tasks), [1, 1]);
    }

    #[test]
    fn the_loop_wakes_all_tasks_before_it_sleeps() {
        let (batch, list) = (WakeBatch::default(), WakeList::new());
        let tasks = tasks::<3>(&batch);
        batch.end_turn(&list);
        assert!(batch.flush(&list), "the loop must look for work again");
        assert_eq!(wakes(&tasks), [1, 1, 1]);
        assert!(!batch.flush(&list), "the loop may sleep");
    }

    #[test]
    fn a_waker_that_panics_does_not_keep_the_others_from_being_woken() {
        struct Broken;

        impl Wake for Broken {
            fn wake(self: Arc<Self>) {
                panic!("this waker is broken");
            }
        }

        let (batch, list) = (WakeBatch::default(), WakeList::new());
        let first = tasks::<1>(&batch);
        batch.push(Waker::from(Arc::new(Broken)));
        let last = tasks::<1>(&batch);
        batch.end_turn(&list);
        list.release();
        assert_eq!((wakes(&first), wakes(&last)), (vec![1], vec![1]));
    }

    #[test]
    fn a_batch_waits_with_the_rest_of_an_earlier_one() {
        let (batch, list) = (WakeBatch::default(), WakeList::new());
        let earlier = tasks::<2>(&batch);
        batch.end_turn(&list);
        // Turns with and without new tasks count alike.
        let later: Vec<_> = (1..PATIENCE)
            .map(|_| {
                let [task] = tasks::<1>(&batch);
                batch.end_turn(&list);
                task
            })
            .collect();
        assert_eq!((wakes(&earlier), wakes(&later).iter().sum()), (vec![1, 0], 0));
        batch.end_turn(&list);
        assert_eq!((wakes(&earlier), wakes(&later).iter().sum()), (vec![1, 1], PATIENCE - 1));
    }

    #[test]
    fn a_task_alone_is_woken_in_each_turn() {
        let (batch, list) = (WakeBatch::default(), WakeList::new());
        for _ in 0..3 {
            let task = tasks::<1>(&batch);
            batch.end_turn(&list);
            assert_eq!(wakes(&task), [1]);
        }
    }
}
