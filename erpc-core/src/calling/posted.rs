//! Calls that another thread makes: the state that such a call's future shares with the endpoint.
//!
//! ```text
//!   caller's thread               endpoint's thread
//!   future  <----- outcome -----  CallOutcome::Posted, in the table of calls
//! ```

use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use super::response::KeptReply;
use crate::protocol::{CallError, Cause};
use crate::sync::atomic::{AtomicU32, Ordering};
use crate::sync::{Mutex, MutexGuard};

/// The outcome of a call that another thread makes.
pub(crate) type PostedOutcome = Result<KeptReply, CallError>;

/// A call that another thread makes. Its future holds one reference, the endpoint's side another
/// ([`PostedCaller`]).
pub(crate) struct PostedCall {
    state: Mutex<PostedState>,
    /// The call's key in the endpoint's table; [`NO_KEY`] before the endpoint has started the call.
    /// Only the endpoint's thread reads and writes it.
    key: AtomicU32,
}

const NO_KEY: u32 = u32::MAX;

enum PostedState {
    /// The endpoint has not stored the outcome. The waker is that of the last poll.
    Pending(Option<Waker>),
    Ended(PostedOutcome),
    /// The future has taken the outcome or was dropped.
    Over,
}

impl PostedCall {
    pub(crate) fn new() -> Self {
        Self { state: Mutex::new(PostedState::Pending(None)), key: AtomicU32::new(NO_KEY) }
    }

    fn state(&self) -> MutexGuard<'_, PostedState> {
        // Wakers are cloned and dropped outside of the lock, so no foreign code can poison it.
        self.state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }

    /// Stores the outcome. Returns the waker of the task that waits for it.
    fn end(&self, outcome: PostedOutcome) -> Option<Waker> {
        let mut state = self.state();
        let before = match *state {
            PostedState::Pending(_) => std::mem::replace(&mut *state, PostedState::Ended(outcome)),
            // The future was dropped, or the call has ended already. `outcome` is dropped after the
            // guard.
            PostedState::Ended(_) | PostedState::Over => return None,
        };
        drop(state);
        match before {
            PostedState::Pending(waker) => waker,
            PostedState::Ended(_) | PostedState::Over => None,
        }
    }

    /// Takes the outcome, or stores the waker of `cx`.
    ///
    /// # Panics
    /// If the outcome was taken before.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<PostedOutcome> {
        let mut state = self.state();
        match &mut *state {
            PostedState::Pending(Some(waker)) if waker.will_wake(cx.waker()) => Poll::Pending,
            PostedState::Pending(_) => {
                drop(state);
                self.wait(cx.waker().clone())
            }
            PostedState::Ended(_) => {
                let PostedState::Ended(outcome) = std::mem::replace(&mut *state, PostedState::Over)
                else {
                    unreachable!("matched above")
                };
                Poll::Ready(outcome)
            }
            PostedState::Over => panic!("a call is not polled after it has ended"),
        }
    }

    /// Stores `waker`, unless the outcome has arrived since [`Self::poll`] released the lock.
    fn wait(&self, waker: Waker) -> Poll<PostedOutcome> {
        let mut state = self.state();
        let mut unused = Some(waker);
        let ended = match &mut *state {
            PostedState::Pending(place) => {
                std::mem::swap(place, &mut unused);
                None
            }
            PostedState::Ended(_) => Some(std::mem::replace(&mut *state, PostedState::Over)),
            PostedState::Over => panic!("a call is not polled after it has ended"),
        };
        drop(state);
        drop(unused);
        match ended {
            Some(PostedState::Ended(outcome)) => Poll::Ready(outcome),
            _ => Poll::Pending,
        }
    }

    /// Whether the outcome has arrived and was not taken.
    pub(crate) fn is_ended(&self) -> bool {
        matches!(*self.state(), PostedState::Ended(_))
    }

    /// Called when the future was dropped. Returns whether the call is still in progress; then the
    /// endpoint must cancel it.
    pub(crate) fn abandon(&self) -> bool {
        let before = std::mem::replace(&mut *self.state(), PostedState::Over);
        matches!(before, PostedState::Pending(_))
    }

    /// Whether the future was dropped, or has taken the outcome.
    pub(crate) fn is_over(&self) -> bool {
        matches!(*self.state(), PostedState::Over)
    }

    /// The call's key in the endpoint's table. `None` if the endpoint has not started the call.
    pub(super) fn key(&self) -> Option<usize> {
        let key = self.key.load(Ordering::Relaxed);
        (key != NO_KEY).then_some(key as usize)
    }

    /// Stores the call's key.
    pub(crate) fn started(&self, key: usize) {
        // A table has at most 2^32 - 1 calls, so the key is below `NO_KEY`.
        self.key.store(key as u32, Ordering::Relaxed);
    }
}

/// The endpoint's side of a posted call, which owes the future an outcome. If it is dropped without
/// one, for example because a panic unwinds, the call ends with an error instead of never.
pub(crate) struct PostedCaller {
    /// `None` once the outcome is given.
    call: Option<Arc<PostedCall>>,
}

impl PostedCaller {
    /// The endpoint's side of a new call.
    pub(crate) fn new(call: &Arc<PostedCall>) -> Self {
        Self { call: Some(Arc::clone(call)) }
    }

    /// Gives the call its outcome. Returns the waker of the task that waits for the outcome.
    pub(crate) fn end(mut self, outcome: PostedOutcome) -> Option<Waker> {
        self.call.take()?.end(outcome)
    }

    pub(crate) fn call(&self) -> Option<&Arc<PostedCall>> {
        self.call.as_ref()
    }
}

impl Drop for PostedCaller {
    fn drop(&mut self) {
        let waker = self.call.take().and_then(|call| call.end(Err(LOST)));
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

/// The outcome of a call whose side at the endpoint was dropped.
const LOST: CallError = CallError::MaybeExecuted(Cause::Shutdown);
