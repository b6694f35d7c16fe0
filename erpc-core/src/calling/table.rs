//! Calls in progress.
//!
//! A call is an [`Entry`] in the endpoint's table; its key is the token that the protocol hands back with
//! the reply. A callback decodes the reply where it lies. A future finds it later, so the bytes are
//! copied; into the request's own buffer, which the reply hands back and which is usually large enough.
//!
//! An entry stays until the protocol has told the end of the call, also when nobody waits for it any more.

use std::rc::Rc;

use crate::buf::{MsgBuf, Pool};
use crate::calling::callback::Waiting;
use crate::calling::link::Link;
use crate::calling::options::Prepared;
use crate::calling::plan::Plan;
use crate::executor::tasks::{Executor, WakeSlot};
use crate::protocol::{CallError, Cause};
use crate::transport::Transport;

/// A call in progress.
pub(crate) struct Entry<T: Transport> {
    pub(crate) outcome: Outcome,
    /// The session that it is made on; `None` while a channel looks for one.
    pub(crate) link: Option<Rc<Link<T::Route>>>,
    /// What a channel does with it besides.
    pub(crate) plan: Option<Box<Plan<T>>>,
    /// The request, from when it is made on a session until the protocol has it.
    pub(crate) unsent: Option<Prepared>,
}

/// Who gets a call's outcome.
pub(crate) enum Outcome {
    /// A future, polled by whoever the slot says.
    Awaited(WakeSlot),
    /// There, while the call is.
    Callback(Option<Box<dyn Waiting>>),
    /// Nobody any more.
    Cancelled,
    /// The reply is here, until the future takes it. There, while the call is.
    Done(Option<Kept>),
    /// So is the error.
    Failed(Box<CallError>),
    /// There is no call: the place is free, as is that with this key.
    Vacant(u32),
}

/// A plan, if there was one, that is to be dropped when the table is not borrowed any more.
type PlanLeft<T> = Option<Box<Plan<T>>>;

/// A response that waits for its future.
pub(crate) struct Kept {
    pub(crate) bytes: MsgBuf,
    pub(crate) extended: bool,
}

/// What is left to do for a call that has ended.
pub(crate) struct Ended<T: Transport> {
    waiter: WakeSlot,
    _plan: PlanLeft<T>,
}

impl<T: Transport> Ended<T> {
    #[inline]
    pub(crate) fn wake(self, executor: &Executor) {
        self.waiter.wake(executor);
    }
}

impl<T: Transport> Entry<T> {
    /// Notes that the call is not on its session any more; returns the session, to be dropped when the
    /// table is not borrowed.
    #[inline]
    pub(crate) fn leave_session(&mut self) -> Option<Rc<Link<T::Route>>> {
        let link = self.link.take()?;
        link.call_ended();
        Some(link)
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done(_) | Outcome::Failed(_))
    }
}

/// End of the list of free places.
const NONE: u32 = u32::MAX;

/// The calls of an endpoint, by key.
pub(crate) struct Calls<T: Transport> {
    entries: Vec<Entry<T>>,
    /// The first free place.
    free: u32,
}

impl<T: Transport> Calls<T> {
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
        outcome: impl FnOnce() -> Outcome,
        link: Option<Rc<Link<T::Route>>>,
        plan: Option<Box<Plan<T>>>,
        unsent: Option<Prepared>,
    ) -> usize {
        let key = self.free as usize;
        let Some(place) = self.entries.get_mut(key) else {
            return self.push(Entry { outcome: outcome(), link, plan, unsent });
        };
        let Outcome::Vacant(next) = place.outcome else { unreachable!("a free place is vacant") };
        self.free = next;
        put(&mut place.outcome, outcome());
        place.link = link;
        place.plan = plan;
        place.unsent = unsent;
        key
    }

    #[cold]
    fn push(&mut self, entry: Entry<T>) -> usize {
        debug_assert_eq!(self.free, NONE, "a place that is taken is not among the free ones");
        assert!(self.entries.len() < NONE as usize, "fewer than 2^32 - 1 calls");
        self.entries.push(entry);
        self.entries.len() - 1
    }

    #[inline]
    pub(crate) fn get(&mut self, key: usize) -> Option<&mut Entry<T>> {
        self.entries.get_mut(key).filter(|entry| !matches!(entry.outcome, Outcome::Vacant(_)))
    }

    fn look(&self, key: usize) -> Option<&Entry<T>> {
        self.entries.get(key).filter(|entry| !matches!(entry.outcome, Outcome::Vacant(_)))
    }

    /// Takes a call out, if it is there.
    #[cold]
    pub(crate) fn remove(&mut self, key: usize) -> Option<Entry<T>> {
        let free = self.free;
        let place = self.get(key)?;
        let vacant = Entry { outcome: Outcome::Vacant(free), link: None, plan: None, unsent: None };
        let entry = std::mem::replace(place, vacant);
        self.free = key as u32;
        Some(entry)
    }

    /// Takes a call out that has left its session, if a callback gets its outcome; what is to be dropped
    /// when that was told is returned beside it.
    #[inline(always)]
    pub(crate) fn take_callback(&mut self, key: usize) -> Option<(Box<dyn Waiting>, PlanLeft<T>)> {
        let free = self.free;
        let Entry { outcome, link, plan, unsent } = self.get(key)?;
        debug_assert!(link.is_none(), "the call has left its session");
        let Outcome::Callback(callback) = outcome else { return None };
        let callback = callback.take()?;
        put(outcome, Outcome::Vacant(free));
        *unsent = None;
        let plan = plan.take();
        self.free = key as u32;
        Some((callback, plan))
    }

    /// As [`Entry::leave_session`].
    pub(crate) fn leave_session(&mut self, key: usize) -> Option<Rc<Link<T::Route>>> {
        self.get(key)?.leave_session()
    }

    pub(crate) fn has_callback(&self, key: usize) -> bool {
        matches!(self.look(key), Some(Entry { outcome: Outcome::Callback(_), .. }))
    }

    /// Whether the outcome is here.
    pub(crate) fn is_done(&self, key: usize) -> bool {
        self.look(key).is_some_and(Entry::is_done)
    }

    pub(crate) fn is_awaited(&self, key: usize) -> bool {
        matches!(self.look(key), Some(Entry { outcome: Outcome::Awaited(_), .. }))
    }

    /// Notes the outcome of a call that is awaited. Who is to be told, and what is to be dropped, once the
    /// table is not borrowed any more, is returned.
    #[inline(always)]
    pub(crate) fn finish(&mut self, key: usize, outcome: impl FnOnce() -> Outcome) -> Ended<T> {
        let Entry { outcome: place, plan, .. } = &mut self.entries[key];
        let Outcome::Awaited(waiter) = place else { unreachable!("the caller has looked") };
        let waiter = std::mem::take(waiter);
        put(place, outcome());
        Ended { waiter, _plan: plan.take() }
    }

    /// Takes the reply, if it is here.
    #[inline(always)]
    pub(crate) fn take_reply(&mut self, key: usize) -> Option<Kept> {
        let Entry { outcome, link, plan, unsent } = &mut self.entries[key];
        let Outcome::Done(kept) = outcome else { return None };
        debug_assert!(link.is_none() && plan.is_none() && unsent.is_none(), "the call has ended");
        let kept = kept.take();
        put(outcome, Outcome::Vacant(self.free));
        self.free = key as u32;
        kept
    }

    /// Lets the endpoint's own `task` wait for the outcome, if it is to come and nobody else waits.
    #[inline]
    pub(crate) fn wait_as(&mut self, key: usize, task: u32) -> bool {
        let Outcome::Awaited(slot @ WakeSlot::Empty) = &mut self.entries[key].outcome else {
            return false;
        };
        *slot = WakeSlot::Task(task);
        true
    }

    /// Takes the error, or lets `waiter` wait for the outcome; then the error is who waited until now.
    pub(crate) fn wait(&mut self, key: usize, waiter: WakeSlot) -> Result<CallError, WakeSlot> {
        if let Outcome::Awaited(slot) = &mut self.entries[key].outcome {
            return Err(std::mem::replace(slot, waiter));
        }
        match self.remove(key) {
            Some(Entry { outcome: Outcome::Failed(error), .. }) => Ok(*error),
            _ => unreachable!("only futures wait, and theirs are awaited, here or failed"),
        }
    }

    /// Takes out every callback that is left, to be dropped once the table is not borrowed any more.
    pub(crate) fn take_callbacks(&mut self) -> Vec<Entry<T>> {
        let keys = self.keys(|entry| matches!(entry.outcome, Outcome::Callback(_)));
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The keys of calls that have not ended.
    pub(crate) fn pending(&self) -> Vec<usize> {
        self.keys(|entry| !entry.is_done())
    }

    fn keys(&self, wanted: impl Fn(&Entry<T>) -> bool) -> Vec<usize> {
        let keys = 0..self.entries.len();
        keys.filter(|&key| self.look(key).is_some_and(&wanted)).collect()
    }
}

/// Writes an outcome over one that was taken. There is nothing to drop, which is not for the compiler to
/// see.
#[inline(always)]
fn put(place: &mut Outcome, outcome: Outcome) {
    std::mem::forget(std::mem::replace(place, outcome));
}

/// The bytes of a message in memory that lasts: the request's own if it is large enough.
#[inline]
pub(crate) fn lasting(
    bytes: &[u8],
    mut request: MsgBuf,
    pool: &mut Pool,
) -> Result<MsgBuf, CallError> {
    if request.capacity() < bytes.len() || !request.is_unique() {
        pool.recycle(request);
        request = pool.alloc(bytes.len()).map_err(|_| CallError::ResponseLost(Cause::NoMemory))?;
    }
    request.resize(bytes.len());
    request.as_mut_slice().copy_from_slice(bytes);
    Ok(request)
}
