//! The table of calls in progress.
//!
//! A call is a [`CallEntry`] in the endpoint's table. Its key is the token that the protocol
//! returns with the reply. A callback decodes the reply in the receive buffer. A future takes the
//! reply later, so a reply of one packet is copied: into the request's own buffer, which the
//! protocol returns with the reply and which is usually large enough.
//!
//! The entry of a call on a session stays until the protocol has reported the end of the call, even
//! if the call was cancelled. An entry with an outcome for a future stays until the future takes
//! the outcome.

use std::rc::Rc;
use std::sync::Arc;

use super::callback::Callback;
use super::link::Link;
use super::options::{CallHead, PreparedCall};
use super::plan::CallPlan;
use super::posted::{PostedCall, PostedCaller};
use super::response::KeptReply;
use crate::buf::MsgBuf;
use crate::executor::tasks::{Executor, WakeSlot};
use crate::protocol::CallError;

/// A call in progress.
pub(crate) struct CallEntry<R> {
    pub(super) outcome: CallOutcome,
    /// The session of the current attempt; `None` while a channel looks for one, during a backoff,
    /// and after the call has ended.
    pub(super) link: Option<Rc<Link<R>>>,
    /// Retry and queueing state of a call on a channel.
    pub(super) plan: Option<Box<CallPlan<R>>>,
    /// What attempts on sessions need besides the request. Meaningless before the first such
    /// attempt.
    pub(super) head: CallHead,
    /// The request, from its submission on a session until the protocol takes it.
    pub(super) unsent: Option<MsgBuf>,
}

/// The receiver of a call's outcome, then the outcome until it is taken.
pub(crate) enum CallOutcome {
    /// A future waits. The slot holds the task that polls it.
    Awaited(WakeSlot),
    /// A callback gets the outcome; `None` only while the entry is being removed.
    Callback(Option<Box<dyn Callback>>),
    /// A future on another thread gets the outcome.
    Posted(PostedCaller),
    /// The call was cancelled. Its outcome is dropped.
    Cancelled,
    /// The reply, until the future takes it; `None` only while the entry is being removed.
    Done(Option<KeptReply>),
    /// The error, until the future takes it.
    Failed(Box<CallError>),
    /// No call: the entry is free. The number is the key of the next free entry.
    Vacant(u32),
}

/// A plan to drop when the table is no longer borrowed.
type PlanLeft<R> = Option<Box<CallPlan<R>>>;

/// What remains to be done for an ended call: wake the waiter, drop the plan.
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
    /// Removes the call from its session. Returns the session, to be dropped when the table is not
    /// borrowed.
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

/// End of the list of free entries.
const NONE: u32 = u32::MAX;

/// The calls of an endpoint, by key.
pub(crate) struct CallTable<R> {
    entries: Vec<CallEntry<R>>,
    /// Key of the first free entry.
    free: u32,
}

impl<R> CallTable<R> {
    pub(crate) fn new() -> Self {
        Self { entries: Vec::new(), free: NONE }
    }

    /// Inserts a call and returns its key. Allocates only when more calls are in progress than ever
    /// before.
    ///
    /// Entries are written field by field, here and where calls end. If an entry were built
    /// elsewhere and then copied as a whole, the copy would read fields that are still in the
    /// processor's store buffer, and stall.
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
            let (head, unsent) = match unsent {
                Some(PreparedCall { head, request }) => (head, Some(request)),
                None => (CallHead::NONE, None),
            };
            return self.push(CallEntry { outcome: outcome(), link, plan, head, unsent });
        };
        let CallOutcome::Vacant(next) = place.outcome else {
            unreachable!("a free place is vacant")
        };
        self.free = next;
        put(&mut place.outcome, outcome());
        place.link = link;
        place.plan = plan;
        match unsent {
            Some(PreparedCall { head, request }) => {
                place.head = head;
                place.unsent = Some(request);
            }
            None => place.unsent = None,
        }
        key
    }

    #[cold]
    fn push(&mut self, entry: CallEntry<R>) -> usize {
        debug_assert_eq!(self.free, NONE, "a push needs an empty free list");
        assert!(self.entries.len() < NONE as usize, "a table holds at most 2^32 - 1 calls");
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

    /// Removes a call, if the table has it.
    #[cold]
    pub(crate) fn remove(&mut self, key: usize) -> Option<CallEntry<R>> {
        let free = self.free;
        let place = self.get(key)?;
        let (outcome, head) = (CallOutcome::Vacant(free), CallHead::NONE);
        let vacant = CallEntry { outcome, link: None, plan: None, head, unsent: None };
        let entry = std::mem::replace(place, vacant);
        self.free = key as u32;
        Some(entry)
    }

    /// Removes a call that has left its session, if a callback gets its outcome. Returns the
    /// callback, and the plan to drop after the callback has run.
    #[inline(always)]
    pub(super) fn take_callback(&mut self, key: usize) -> Option<(Box<dyn Callback>, PlanLeft<R>)> {
        let free = self.free;
        let CallEntry { outcome, link, plan, unsent, .. } = self.get(key)?;
        debug_assert!(link.is_none(), "the call has left its session");
        let CallOutcome::Callback(callback) = outcome else { return None };
        let callback = callback.take()?;
        put(outcome, CallOutcome::Vacant(free));
        *unsent = None;
        let plan = plan.take();
        self.free = key as u32;
        Some((callback, plan))
    }

    /// Like [`CallEntry::leave_session`], for the call with this key.
    pub(super) fn leave_session(&mut self, key: usize) -> Option<Rc<Link<R>>> {
        self.get(key)?.leave_session()
    }

    pub(super) fn has_callback(&self, key: usize) -> bool {
        matches!(self.look(key), Some(CallEntry { outcome: CallOutcome::Callback(_), .. }))
    }

    /// Whether the outcome has arrived and was not taken.
    pub(crate) fn is_done(&self, key: usize) -> bool {
        self.look(key).is_some_and(CallEntry::is_done)
    }

    pub(super) fn is_awaited(&self, key: usize) -> bool {
        matches!(self.look(key), Some(CallEntry { outcome: CallOutcome::Awaited(_), .. }))
    }

    /// Stores the outcome of an awaited call. Returns the task to wake and the plan to drop when
    /// the table is no longer borrowed.
    #[inline(always)]
    pub(crate) fn finish(
        &mut self,
        key: usize,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> EndedCall<R> {
        let CallEntry { outcome: place, plan, .. } = &mut self.entries[key];
        let CallOutcome::Awaited(waiter) = place else { unreachable!("the call is awaited") };
        let waiter = std::mem::take(waiter);
        put(place, outcome());
        EndedCall { waiter, _plan: plan.take() }
    }

    /// Takes the reply, if it has arrived.
    #[inline(always)]
    pub(crate) fn take_reply(&mut self, key: usize) -> Option<KeptReply> {
        let CallEntry { outcome, link, plan, unsent, .. } = &mut self.entries[key];
        let CallOutcome::Done(kept) = outcome else { return None };
        debug_assert!(link.is_none() && plan.is_none() && unsent.is_none(), "the call has ended");
        let kept = kept.take();
        put(outcome, CallOutcome::Vacant(self.free));
        self.free = key as u32;
        kept
    }

    /// Makes the endpoint's own `task` the waiter and returns true, if the outcome is pending and
    /// has no waiter yet.
    #[inline]
    pub(crate) fn wait_as(&mut self, key: usize, task: u32) -> bool {
        let CallOutcome::Awaited(slot @ WakeSlot::Empty) = &mut self.entries[key].outcome else {
            return false;
        };
        *slot = WakeSlot::Task(task);
        true
    }

    /// Takes the error, or makes `waiter` wait for the outcome; `Err` is the previous waiter.
    pub(crate) fn wait(&mut self, key: usize, waiter: WakeSlot) -> Result<CallError, WakeSlot> {
        if let CallOutcome::Awaited(slot) = &mut self.entries[key].outcome {
            return Err(std::mem::replace(slot, waiter));
        }
        match self.remove(key) {
            Some(CallEntry { outcome: CallOutcome::Failed(error), .. }) => Ok(*error),
            _ => unreachable!("a future's call is awaited, done or failed"),
        }
    }

    /// Whether `key` still is the key of `call`, and not of a later call.
    pub(super) fn is_posted(&self, key: usize, call: &Arc<PostedCall>) -> bool {
        matches!(
            self.look(key),
            Some(CallEntry { outcome: CallOutcome::Posted(caller), .. })
                if caller.call().is_some_and(|posted| Arc::ptr_eq(posted, call))
        )
    }

    /// Removes every remaining callback, to be dropped when the table is no longer borrowed.
    pub(super) fn take_callbacks(&mut self) -> Vec<CallEntry<R>> {
        let keys = self.keys(|entry| matches!(entry.outcome, CallOutcome::Callback(_)));
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The keys of calls that have not ended.
    pub(crate) fn pending(&self) -> Vec<usize> {
        self.keys(|entry| !entry.is_done())
    }

    /// Number of calls that have not ended, or whose outcome was not taken.
    pub(crate) fn len(&self) -> usize {
        self.keys(|_| true).len()
    }

    fn keys(&self, wanted: impl Fn(&CallEntry<R>) -> bool) -> Vec<usize> {
        let keys = 0..self.entries.len();
        keys.filter(|&key| self.look(key).is_some_and(&wanted)).collect()
    }
}

/// Overwrites an outcome that owns nothing any more. `forget` omits drop code that the compiler
/// cannot rule out.
#[inline(always)]
fn put(place: &mut CallOutcome, outcome: CallOutcome) {
    std::mem::forget(std::mem::replace(place, outcome));
}
