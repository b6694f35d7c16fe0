//! Tasks of one thread.
//!
//! A task lives in a slot, and the ready queue is a list through the slots, so waking and polling a
//! task allocate nothing. A wake within the endpoint's own loop costs a list insertion. It uses the
//! slot's number, as every reply does ([`WakeSlot`]), or a waker, which finds the executor that
//! this thread runs. Other wakes, from any thread, take a mutex and ring the endpoint's [`Bell`].

mod slots;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::ptr::null;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use self::slots::{SlotKind, TaskBody, TaskSlots};
use super::join::{JoinHandle, WaitCheck, joined};
use super::standstill::{ForeignPoll, Standstill};
use crate::event_loop::bell::Bell;
use crate::event_loop::mailbox::Queue;
use crate::mutants::mutant;
use crate::sync::atomic::{AtomicBool, Ordering};

type LocalFuture = Pin<Box<dyn Future<Output = ()>>>;

/// End of a list.
const NONE: u32 = u32::MAX;

/// The task that waits for an event on this thread.
#[derive(Default)]
pub(crate) enum WakeSlot {
    /// No task.
    #[default]
    Empty,
    /// A task of the endpoint's own executor.
    Task(u32),
    /// The waker of another executor.
    Other(Waker),
}

impl WakeSlot {
    /// Wakes the waiting task, once.
    #[inline]
    pub(crate) fn wake(self, executor: &Executor) {
        match self {
            Self::Empty => {}
            Self::Task(id) => executor.wake(id),
            Self::Other(waker) => waker.wake(),
        }
    }

    /// Whether both wake the same task.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Task(one), Self::Task(other)) => one == other,
            (Self::Other(one), Self::Other(other)) => one.will_wake(other),
            _ => false,
        }
    }
}

/// Identifies a task. After the task has ended, it identifies no task, even if another one uses the
/// slot.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TaskId {
    slot: u32,
    generation: u32,
}

/// The executor of an endpoint.
pub(crate) struct Executor {
    slots: Rc<RefCell<TaskSlots>>,
    /// The task that is being polled: its waker's data pointer, and its slot. The pointer is only
    /// compared.
    polling: Cell<(*const (), u32)>,
    home: Rc<Home>,
    /// An empty buffer for `take_remote` to swap in.
    spare: Cell<Vec<u32>>,
}

/// The part of an executor that the handles of its tasks share.
struct Home {
    remote: Arc<RemoteWakes>,
    standstill: Standstill,
}

impl WaitCheck for Home {
    fn check(&self, cx: &Context<'_>) {
        // While a thread ends, its thread-local is gone.
        let runs = RUNNING.try_with(|running| running.runs(&self.remote)).unwrap_or(Some(true));
        match runs {
            Some(true) => {}
            Some(false) => self.standstill.look(cx, ForeignPoll::OtherEndpoint),
            None => self.standstill.look(cx, ForeignPoll::Runtime),
        }
    }
}

/// The data of a waker.
struct Signal {
    id: u32,
    /// Whether the slot is already in the remote queue.
    notified: AtomicBool,
    remote: Arc<RemoteWakes>,
}

/// The queue of slots that wakers outside of the loop have woken.
struct RemoteWakes {
    woken: Queue<u32>,
    bell: Arc<Bell>,
}

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // While a thread ends, its thread-local is gone. Then the remote queue is used.
        if RUNNING.try_with(|running| running.wake(self)) == Ok(true) {
            return;
        }
        if !self.notified.swap(true, Ordering::AcqRel) {
            // A closed queue means that the endpoint has ended, and with it the task.
            if self.remote.woken.push(self.id, usize::MAX).is_ok() {
                self.remote.bell.ring(Bell::WAKES);
            }
        }
    }
}

thread_local! {
    /// The innermost executor whose loop runs on this thread.
    static RUNNING: RunningHere = const { RunningHere(RefCell::new(None)) };
}

struct RunningHere(RefCell<Option<LocalExecutor>>);

/// An executor, as seen by its own thread.
#[derive(Clone)]
struct LocalExecutor {
    remote: Arc<RemoteWakes>,
    slots: Rc<RefCell<TaskSlots>>,
}

impl RunningHere {
    /// Wakes the task without a lock if it belongs to the executor that runs here. Returns whether
    /// the task was woken.
    #[inline]
    fn wake(&self, signal: &Signal) -> bool {
        // Loom's threads are coroutines of one thread, so all of them would count as the executor's
        // own.
        if cfg!(loom) {
            return false;
        }
        let running = self.0.borrow();
        let Some(local) = &*running else { return false };
        if !Arc::ptr_eq(&local.remote, &signal.remote) {
            return false;
        }
        // Only code that does not wake tasks borrows the slots. If they are borrowed nevertheless,
        // use the remote queue.
        let Ok(mut slots) = local.slots.try_borrow_mut() else { return false };
        slots.wake(signal.id);
        true
    }
}

impl RunningHere {
    /// Whether the innermost loop that this thread runs is that of the executor with this queue.
    /// `None` if this thread runs no loop.
    fn runs(&self, remote: &Arc<RemoteWakes>) -> Option<bool> {
        self.0.borrow().as_ref().map(|local| Arc::ptr_eq(&local.remote, remote))
    }
}

/// Removes an executor from this thread when dropped, and restores the previous one.
pub(crate) struct EnteredExecutor(Option<LocalExecutor>);

impl Drop for EnteredExecutor {
    fn drop(&mut self) {
        let before = self.0.take();
        let left = RUNNING.try_with(|running| running.0.replace(before));
        // `left` may be the executor's last reference, so it is dropped when `RUNNING` is no longer
        // borrowed.
        drop(left);
    }
}

impl Executor {
    /// `liveness`: how long the loop may stand still before peers give the endpoint up.
    pub(crate) fn new(bell: Arc<Bell>, liveness: Duration) -> Self {
        let remote = Arc::new(RemoteWakes { woken: Queue::new(), bell });
        let slots = TaskSlots::new();
        Self {
            slots: Rc::new(RefCell::new(slots)),
            polling: Cell::new((null(), NONE)),
            home: Rc::new(Home { remote, standstill: Standstill::new(liveness) }),
            spare: Cell::new(Vec::new()),
        }
    }

    #[inline]
    pub(crate) fn standstill(&self) -> &Standstill {
        &self.home.standstill
    }

    /// Starts a task. It is first polled by the next [`Executor::run_ready`].
    pub(crate) fn spawn<F: Future + 'static>(&self, future: F) -> JoinHandle<F::Output> {
        let (body, handle) = joined(future, Rc::clone(&self.home) as _);
        self.start(body);
        handle
    }

    /// Starts a task without a handle, like [`Executor::spawn`], with one allocation. The future
    /// must not panic; wrap it in `caught` if it may.
    pub(crate) fn start(&self, future: impl Future<Output = ()> + 'static) -> TaskId {
        self.start_boxed(Box::pin(future))
    }

    /// Like [`Executor::start`], for a boxed future.
    pub(crate) fn start_boxed(&self, future: LocalFuture) -> TaskId {
        let mut slots = self.slots.borrow_mut();
        let id = slots.claim(&self.home.remote, SlotKind::Task);
        let slot = &mut slots.all[id as usize];
        let generation = slot.generation;
        if let Some(body) = &mut slot.body {
            body.future = Some(future);
        }
        slots.wake(id);
        TaskId { slot: id, generation }
    }

    /// Ends a task before it is finished: drops its future. If the task is being polled, the future
    /// is dropped when the poll returns. Does nothing if the task has ended.
    pub(crate) fn abort(&self, task: TaskId) {
        let future = self.slots.borrow_mut().abort(task);
        // The drop may run any code, so the slots must not be borrowed.
        drop(future);
    }

    /// A slot for a future that stays on the caller's stack. It is initially woken.
    pub(crate) fn root(&self) -> Root<'_> {
        let mut slots = self.slots.borrow_mut();
        let id = slots.claim(&self.home.remote, SlotKind::Root);
        slots.wake(id);
        Root { executor: self, id }
    }

    /// Wakes the task in slot `id`: appends it to the ready queue, unless it is there already or
    /// has ended. A root is only marked as woken. Called only from the endpoint's thread; O(1),
    /// without allocation.
    #[inline]
    pub(crate) fn wake(&self, id: u32) {
        self.slots.borrow_mut().wake(id);
    }

    /// Whether a task is ready.
    #[inline]
    pub(crate) fn has_ready(&self) -> bool {
        self.slots.borrow().ready != 0
    }

    /// Number of tasks that have not ended.
    pub(crate) fn tasks(&self) -> usize {
        self.slots.borrow().all.iter().filter(|slot| slot.kind == SlotKind::Task).count()
    }

    /// Moves the tasks that wakers outside of the loop have woken to the ready queue.
    pub(crate) fn take_remote(&self) {
        let mut woken = self.spare.take();
        self.home.remote.woken.swap(&mut woken);
        let mut slots = self.slots.borrow_mut();
        for id in woken.drain(..) {
            // The flag is cleared first: a later wake then queues the task again instead of being
            // lost. A swap, not a store: the poll must see the writes of a waker that found the
            // flag set.
            if !mutant!(RemoteWakeOnce) {
                slots.all[id as usize].signal.notified.swap(false, Ordering::AcqRel);
            }
            slots.wake(id);
        }
        drop(slots);
        self.spare.set(woken);
    }

    /// Polls once each task that was ready when the call began; returns their number.
    #[inline]
    pub(crate) fn run_ready(&self) -> usize {
        let count = self.slots.borrow().ready;
        (0..count).for_each(|_| self.run_one());
        count
    }

    /// Declares to wakers that this thread runs the executor, until the guard is dropped.
    pub(crate) fn enter(&self) -> EnteredExecutor {
        let local =
            LocalExecutor { remote: Arc::clone(&self.home.remote), slots: Rc::clone(&self.slots) };
        EnteredExecutor(RUNNING.try_with(|running| running.0.replace(Some(local))).ok().flatten())
    }

    #[inline]
    fn run_one(&self) {
        let Some((id, mut body)) = self.slots.borrow_mut().pop() else { return };
        let done = match &mut body.future {
            Some(future) => self.poll(id, &body.waker, future.as_mut()).is_ready(),
            None => true,
        };
        let mut slots = self.slots.borrow_mut();
        let slot = &mut slots.all[id as usize];
        if done || slot.aborted {
            drop(slots);
            return self.finish(id, body);
        }
        debug_assert!(slot.body.is_none(), "the body of a task that is polled is not in its slot");
        // `forget` omits drop code that the compiler cannot rule out.
        std::mem::forget(slot.body.replace(body));
        if slot.missed {
            slot.missed = false;
            slots.wake(id);
        }
    }

    /// Ends a task whose body was taken out of its slot.
    fn finish(&self, id: u32, mut body: Box<TaskBody>) {
        // The drop of the future may run any code, so the slots must not be borrowed.
        drop(body.future.take());
        let mut slots = self.slots.borrow_mut();
        slots.all[id as usize].body = Some(body);
        slots.release(id);
    }

    /// Polls `future` as the task in slot `id`.
    fn poll<F: Future + ?Sized>(
        &self,
        id: u32,
        waker: &Waker,
        future: Pin<&mut F>,
    ) -> Poll<F::Output> {
        let before = self.polling.replace((waker.data(), id));
        let poll = future.poll(&mut Context::from_waker(waker));
        self.polling.set(before);
        poll
    }

    /// How to wake the task that polls with `cx`: by its slot if it is a task of this executor, by
    /// a clone of its waker otherwise.
    #[inline]
    pub(crate) fn wake_slot(&self, cx: &Context<'_>) -> WakeSlot {
        match self.own_task(cx) {
            Some(id) => WakeSlot::Task(id),
            None => self.other(cx),
        }
    }

    #[cold]
    fn other(&self, cx: &Context<'_>) -> WakeSlot {
        self.home.check(cx);
        WakeSlot::Other(cx.waker().clone())
    }

    /// The slot of the task that polls with `cx`, `None` if it is not a task of this executor.
    #[inline]
    pub(crate) fn own_task(&self, cx: &Context<'_>) -> Option<u32> {
        let (data, id) = self.polling.get();
        // A foreign waker may have null data, which also marks that no task is being polled.
        (id != NONE && cx.waker().data() == data).then_some(id)
    }

    /// Ends every task before it is finished, although destructors of its values may panic. A task
    /// that is being polled ends when the poll returns.
    pub(crate) fn clear(&self) {
        self.home.remote.woken.close();
        let mut futures = Vec::new();
        let mut slots = self.slots.borrow_mut();
        for slot in 0..slots.all.len() as u32 {
            let generation = slots.all[slot as usize].generation;
            futures.extend(slots.abort(TaskId { slot, generation }));
        }
        drop(slots);
        for future in futures {
            // The panic hook has reported a panic. The other tasks, and what ends after them, must
            // end all the same.
            drop(catch_unwind(AssertUnwindSafe(|| drop(future))));
        }
    }
}

/// The slot of the future that `block_on` polls.
pub(crate) struct Root<'e> {
    executor: &'e Executor,
    id: u32,
}

impl Root<'_> {
    /// Whether the root was woken since its last poll.
    #[inline]
    pub(crate) fn is_woken(&self) -> bool {
        self.executor.slots.borrow().all[self.id as usize].queued
    }

    /// Polls the root's future.
    pub(crate) fn poll<F: Future>(&self, future: Pin<&mut F>) -> Poll<F::Output> {
        let waker = {
            let mut slots = self.executor.slots.borrow_mut();
            let slot = &mut slots.all[self.id as usize];
            slot.queued = false;
            slot.body.as_ref().map(|body| body.waker.clone())
        };
        let waker = waker.expect("a root is never taken out of its slot");
        self.executor.poll(self.id, &waker, future)
    }
}

impl Drop for Root<'_> {
    fn drop(&mut self) {
        self.executor.slots.borrow_mut().release(self.id);
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "wakes come from other threads")]
mod tests;
