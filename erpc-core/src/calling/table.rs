//! CallTable in progress.
//!
//! A call is an [`CallEntry`] in the endpoint's table; its key is the token that the protocol hands back with
//! the reply. A callback decodes the reply where it lies. A future finds it later, so the bytes are
//! copied; into the request's own buffer, which the reply hands back and which is usually large enough.
//!
//! An entry stays until the protocol has reported the end of the call, also when the call was cancelled.

use std::rc::Rc;

use super::callback::Callback;
use super::link::Link;
use super::options::PreparedCall;
use super::plan::CallPlan;
use super::response::KeptReply;
use crate::executor::tasks::{Executor, WakeSlot};
use crate::protocol::CallError;

/// A call in progress.
pub(crate) struct CallEntry<R> {
    pub(super) outcome: CallOutcome,
    /// The session that it is made on; `None` while a channel looks for one.
    pub(super) link: Option<Rc<Link<R>>>,
    /// How a channel retries the call or has it wait.
    pub(super) plan: Option<Box<CallPlan<R>>>,
    /// The request, from when it is made on a session until the protocol has it.
    pub(super) unsent: Option<PreparedCall>,
}

/// What a call's outcome is for, and the outcome until it is fetched.
pub(crate) enum CallOutcome {
    /// A future. The slot has the task that polls it.
    Awaited(WakeSlot),
    /// A callback; `None` only on the way out of the table.
    Callback(Option<Box<dyn Callback>>),
    /// The call was cancelled: its outcome is dropped.
    Cancelled,
    /// The reply, until the future takes it; `None` only on the way out of the table.
    Done(Option<KeptReply>),
    /// The error, until the future takes it.
    Failed(Box<CallError>),
    /// There is no call: the place is free, and the next free place is that with this key.
    Vacant(u32),
}

/// A plan, if there was one, that is to be dropped when the table is not borrowed any more.
type PlanLeft<R> = Option<Box<CallPlan<R>>>;

/// What is left to do for a call that has ended.
pub(crate) struct EndedCall<R> {
    waiter: WakeSlot,
    _plan: PlanLeft<R>,
}

impl<R> EndedCall<R> {
    #[inline]
    pub(crate) fn wake(self, executor: &Executor) {
        self.waiter.wake(executor);
    }
}

impl<R> CallEntry<R> {
    /// Notes that the call is not on its session any more; returns the session, to be dropped when the
    /// table is not borrowed.
    #[inline]
    pub(super) fn leave_session(&mut self) -> Option<Rc<Link<R>>> {
        let link = self.link.take()?;
        link.call_ended();
        Some(link)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.outcome, CallOutcome::Done(_) | CallOutcome::Failed(_))
    }
}

/// End of the list of free places.
const NONE: u32 = u32::MAX;

/// The calls of an endpoint, by key.
pub(crate) struct CallTable<R> {
    entries: Vec<CallEntry<R>>,
    /// The first free place.
    free: u32,
}

impl<R> CallTable<R> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: NONE }
    }

    /// Keeps a call and returns its key. Allocates only when more calls are under way than ever before.
    ///
    /// Field by field, here and where calls end: an entry that is put together elsewhere and copied as a
    /// whole is read back before the store buffer is through with its parts.
    #[inline(always)]
    pub(crate) fn insert(
        &mut self,
        outcome: impl FnOnce() -> CallOutcome,
        link: Option<Rc<Link<R>>>,
        plan: Option<Box<CallPlan<R>>>,
        unsent: Option<PreparedCall>,
    ) -> usize {
        let key = self.free as usize;
        let Some(place) = self.entries.get_mut(key) else {
            return self.push(CallEntry { outcome: outcome(), link, plan, unsent });
        };
        let CallOutcome::Vacant(next) = place.outcome else {
            unreachable!("a free place is vacant")
        };
        self.free = next;
        put(&mut place.outcome, outcome());
        place.link = link;
        place.plan = plan;
        place.unsent = unsent;
        key
    }

    #[cold]
    fn push(&mut self, entry: CallEntry<R>) -> usize {
        debug_assert_eq!(self.free, NONE, "a place that is taken is not among the free ones");
        assert!(self.entries.len() < NONE as usize, "fewer than 2^32 - 1 calls");
        self.entries.push(entry);
        self.entries.len() - 1
    }

    #[inline]
    pub(crate) fn get(&mut self, key: usize) -> Option<&mut CallEntry<R>> {
        self.entries.get_mut(key).filter(|entry| !matches!(entry.outcome, CallOutcome::Vacant(_)))
    }

    fn look(&self, key: usize) -> Option<&CallEntry<R>> {
        self.entries.get(key).filter(|entry| !matches!(entry.outcome, CallOutcome::Vacant(_)))
    }

    /// Takes a call out, if it is there.
    #[cold]
    pub(crate) fn remove(&mut self, key: usize) -> Option<CallEntry<R>> {
        let free = self.free;
        let place = self.get(key)?;
        let vacant =
            CallEntry { outcome: CallOutcome::Vacant(free), link: None, plan: None, unsent: None };
        let entry = std::mem::replace(place, vacant);
        self.free = key as u32;
        Some(entry)
    }

    /// Takes a call out that has left its session, if a callback gets its outcome; what is to be dropped
    /// when that was told is returned beside it.
    #[inline(always)]
    pub(super) fn take_callback(&mut self, key: usize) -> Option<(Box<dyn Callback>, PlanLeft<R>)> {
        let free = self.free;
        let CallEntry { outcome, link, plan, unsent } = self.get(key)?;
        debug_assert!(link.is_none(), "the call has left its session");
        let CallOutcome::Callback(callback) = outcome else { return None };
        let callback = callback.take()?;
        put(outcome, CallOutcome::Vacant(free));
        *unsent = None;
        let plan = plan.take();
        self.free = key as u32;
        Some((callback, plan))
    }

    /// As [`CallEntry::leave_session`].
    pub(super) fn leave_session(&mut self, key: usize) -> Option<Rc<Link<R>>> {
        self.get(key)?.leave_session()
    }

    pub(super) fn has_callback(&self, key: usize) -> bool {
        matches!(self.look(key), Some(CallEntry { outcome: CallOutcome::Callback(_), .. }))
    }

    /// Whether the outcome is here.
    pub(crate) fn is_done(&self, key: usize) -> bool {
        self.look(key).is_some_and(CallEntry::is_done)
    }

    pub(super) fn is_awaited(&self, key: usize) -> bool {
        matches!(self.look(key), Some(CallEntry { outcome: CallOutcome::Awaited(_), .. }))
    }

    /// Notes the outcome of a call that is awaited. Returns the task to wake and the plan to drop once the
    /// table is not borrowed any more.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        key: usize,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> EndedCall<R> {
        let CallEntry { outcome: place, plan, .. } = &mut self.entries[key];
        let CallOutcome::Awaited(waiter) = place else { unreachable!("the caller has looked") };
        let waiter = std::mem::take(waiter);
        put(place, outcome());
        EndedCall { waiter, _plan: plan.take() }
    }

    /// Takes the reply, if it is here.
    #[inline(always)]
    pub(crate) fn take_reply(&mut self, key: usize) -> Option<KeptReply> {
        let CallEntry { outcome, link, plan, unsent } = &mut self.entries[key];
        let CallOutcome::Done(kept) = outcome else { return None };
        debug_assert!(link.is_none() && plan.is_none() && unsent.is_none(), "the call has ended");
        let kept = kept.take();
        put(outcome, CallOutcome::Vacant(self.free));
        self.free = key as u32;
        kept
    }

    /// Lets the endpoint's own `task` wait for the outcome, if it is to come and no task waits yet.
    #[inline]
    pub(crate) fn wait_as(&mut self, key: usize, task: u32) -> bool {
        let CallOutcome::Awaited(slot @ WakeSlot::Empty) = &mut self.entries[key].outcome else {
            return false;
        };
        *slot = WakeSlot::Task(task);
        true
    }

    /// Takes the error, or lets `waiter` wait for the outcome; `Err` is the previous waiter.
    pub(crate) fn wait(&mut self, key: usize, waiter: WakeSlot) -> Result<CallError, WakeSlot> {
        if let CallOutcome::Awaited(slot) = &mut self.entries[key].outcome {
            return Err(std::mem::replace(slot, waiter));
        }
        match self.remove(key) {
            Some(CallEntry { outcome: CallOutcome::Failed(error), .. }) => Ok(*error),
            _ => unreachable!("only futures wait, and theirs are awaited, here or failed"),
        }
    }

    /// Takes out every callback that is left, to be dropped once the table is not borrowed any more.
    pub(super) fn take_callbacks(&mut self) -> Vec<CallEntry<R>> {
        let keys = self.keys(|entry| matches!(entry.outcome, CallOutcome::Callback(_)));
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The keys of calls that have not ended.
    pub(crate) fn pending(&self) -> Vec<usize> {
        self.keys(|entry| !entry.is_done())
    }

    fn keys(&self, wanted: impl Fn(&CallEntry<R>) -> bool) -> Vec<usize> {
        let keys = 0..self.entries.len();
        keys.filter(|&key| self.look(key).is_some_and(&wanted)).collect()
    }
}

/// Writes an outcome over one that was taken. There is nothing to drop, which is not for the compiler to
/// see.
#[inline(always)]
fn put(place: &mut CallOutcome, outcome: CallOutcome) {
    std::mem::forget(std::mem::replace(place, outcome));
}
