//! The slots of tasks, and the ready queue through them.

use std::sync::Arc;
use std::task::Waker;

use super::{LocalFuture, NONE, RemoteWakes, Signal, TaskId};
use crate::mutants::mutant;
use crate::sync::atomic::AtomicBool;

pub(super) struct TaskSlots {
    pub(super) all: Vec<TaskSlot>,
    /// Free slots, linked by `next`.
    free: u32,
    /// Ready tasks, linked by `next`.
    head: u32,
    tail: u32,
    pub(super) ready: usize,
}

pub(super) struct TaskSlot {
    pub(super) kind: SlotKind,
    /// Number of tasks that have ended in this slot.
    pub(super) generation: u32,
    /// `None` while the task is being polled. Boxed, so that a poll moves one word. If the fields
    /// were moved, the move would wait for the writes of the previous poll, which are shorter.
    pub(super) body: Option<Box<TaskBody>>,
    pub(super) signal: Arc<Signal>,
    next: u32,
    /// Whether the task is in the ready queue. For a root: whether it is woken.
    pub(super) queued: bool,
    /// Whether an event loop that runs inside the task's own poll found the task ready. That loop
    /// could not poll the task, because the body was taken out. So the task is queued again after
    /// its poll.
    pub(super) missed: bool,
    /// Whether to end the task when its poll returns.
    pub(super) aborted: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum SlotKind {
    Free,
    /// A future on the stack of `block_on`, which checks itself whether it was woken.
    Root,
    Task,
}

pub(super) struct TaskBody {
    /// `None` for roots and free slots.
    pub(super) future: Option<LocalFuture>,
    /// The slot's waker, created once. Later tasks of the slot use it too, and may see a wake that
    /// was meant for an earlier task.
    pub(super) waker: Waker,
}

impl TaskSlots {
    pub(super) fn new() -> Self {
        Self { all: Vec::new(), free: NONE, head: NONE, tail: NONE, ready: 0 }
    }

    /// Takes a free slot, or creates one.
    pub(super) fn claim(&mut self, remote: &Arc<RemoteWakes>, kind: SlotKind) -> u32 {
        if self.free != NONE {
            let id = self.free;
            let slot = &mut self.all[id as usize];
            self.free = std::mem::replace(&mut slot.next, NONE);
            slot.kind = kind;
            return id;
        }
        let id = u32::try_from(self.all.len())
            .ok()
            .filter(|&id| id != NONE)
            .expect("fewer than 2^32 - 1 tasks");
        let signal =
            Arc::new(Signal { id, notified: AtomicBool::new(false), remote: Arc::clone(remote) });
        let waker = Waker::from(Arc::clone(&signal));
        let body = Some(Box::new(TaskBody { future: None, waker }));
        self.all.push(TaskSlot {
            kind,
            generation: 0,
            body,
            signal,
            next: NONE,
            queued: false,
            missed: false,
            aborted: false,
        });
        id
    }

    /// Ends a task and returns its future. If the task is being polled, only marks it: it ends
    /// when the poll returns.
    pub(super) fn abort(&mut self, task: TaskId) -> Option<LocalFuture> {
        let slot = self.all.get_mut(task.slot as usize)?;
        if slot.kind != SlotKind::Task || slot.generation != task.generation {
            return None;
        }
        match &mut slot.body {
            Some(body) => {
                let future = body.future.take();
                let is_ready = self.all[task.slot as usize].queued;
                self.release(task.slot);
                if is_ready && mutant!(AbortKeepsGeneration) {
                    self.all[task.slot as usize].generation = task.generation;
                }
                future
            }
            None => {
                slot.aborted = true;
                None
            }
        }
    }

    #[inline]
    pub(super) fn wake(&mut self, id: u32) {
        let slot = &mut self.all[id as usize];
        if slot.queued || slot.kind == SlotKind::Free {
            return;
        }
        slot.queued = true;
        if slot.kind == SlotKind::Root {
            return;
        }
        match self.tail {
            NONE => self.head = id,
            tail => self.all[tail as usize].next = id,
        }
        self.tail = id;
        self.ready += 1;
    }

    /// Takes the body of the first ready task out of its slot. `None` if no task is ready, if the
    /// task has ended since it was woken, or if it is being polled.
    #[inline]
    pub(super) fn pop(&mut self) -> Option<(u32, Box<TaskBody>)> {
        if self.head == NONE {
            return None;
        }
        let id = self.head;
        let slot = &mut self.all[id as usize];
        self.head = std::mem::replace(&mut slot.next, NONE);
        slot.queued = false;
        let ended = slot.kind == SlotKind::Free;
        let body = if ended { None } else { slot.body.take() };
        slot.missed = !ended && body.is_none() && !mutant!(NestedWakeLost);
        if self.head == NONE {
            self.tail = NONE;
        }
        self.ready -= 1;
        if ended {
            self.link_free(id);
        }
        body.map(|body| (id, body))
    }

    /// Frees the slot, because its task has ended.
    pub(super) fn release(&mut self, id: u32) {
        let slot = &mut self.all[id as usize];
        let in_list = slot.queued && slot.kind == SlotKind::Task;
        slot.kind = SlotKind::Free;
        slot.generation = slot.generation.wrapping_add(1);
        (slot.missed, slot.aborted) = (false, false);
        // While the slot is in the ready queue, that queue uses the slot's link `next`. Then `pop`
        // adds the slot to the free list when it takes the slot out of the queue.
        if !in_list {
            slot.queued = false;
            self.link_free(id);
        }
    }

    fn link_free(&mut self, id: u32) {
        self.all[id as usize].next = self.free;
        self.free = id;
    }
}
