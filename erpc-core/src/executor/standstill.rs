//! Detects futures of an endpoint whose loop does not run.
//!
//! If another executor polls a future of an endpoint and nothing runs the endpoint's loop, the
//! future waits forever. The other executor may be that of tokio, of any other runtime, or of
//! another endpoint on the same thread. One poll does not show the mistake: the loop may be about
//! to start, even in the same task, or code on the same thread may run its turns now and then. So
//! the time since that poll is measured. If [`LIMIT`] passes without a turn of the loop, the future
//! is woken, and panics with a message that says how to fix it.
//!
//! A future may be polled after a long pause, because its process was stopped or an earlier future
//! was dropped. Such a future has not waited for the whole time. So the last quarter of the time is
//! measured separately: an alarm wakes the future at the end of that quarter, and the future panics
//! only if it is polled then. If it is polled more than another quarter later, the last quarter
//! begins again.
//!
//! The alarm is a thread that sleeps, because the executor that polls the future may have no timers
//! and may sleep itself. Each endpoint has at most one alarm, and only while such futures wait.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::thread::{self, sleep};
use std::time::Duration;

use crate::clock;
use crate::time::Instant;

/// Longest time between two turns of a loop that is considered running, or the liveness timeout of
/// the endpoint if that is shorter. A loop without a turn for a second is of no use to its peers.
const LIMIT: Duration = Duration::from_secs(1);

/// The last part of the time is `1 / LAST_PART` of the whole.
const LAST_PART: u32 = 4;

/// Ends the waiting for an endpoint whose loop does not run.
pub(crate) struct Standstill {
    /// See [`LIMIT`].
    limit: Duration,
    /// Number of turns of the endpoint's loop.
    turns: Cell<u64>,
    /// Number of active [`drive`](crate::endpoint::tokio::drive)s. While they sleep there are no
    /// turns.
    #[cfg(feature = "tokio")]
    drivers: Cell<u32>,
    watch: RefCell<StandstillWatch>,
}

/// The number of turns that a waiting future has seen, and when to check again whether the loop has
/// run a turn.
struct StandstillWatch {
    turns: u64,
    due: Instant,
    /// Whether the last part of the time has begun.
    last: bool,
    alarm: Arc<StandstillAlarm>,
}

/// Wakes the most recent waiter when the time is up.
#[derive(Default)]
struct StandstillAlarm {
    armed: AtomicBool,
    waiter: Mutex<Option<Waker>>,
}

impl StandstillAlarm {
    fn wait(&self, waiter: Option<&Waker>) -> Option<Waker> {
        let mut place = self.waiter.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::replace(&mut *place, waiter.cloned())
    }
}

/// What polls a future of an endpoint whose loop does not run.
#[derive(Clone, Copy)]
pub(crate) enum ForeignPoll {
    /// The loop of another endpoint.
    OtherEndpoint,
    /// A runtime, or code that polls by itself.
    Runtime,
}

impl Standstill {
    /// `liveness`: how long the loop may stand still before peers give the endpoint up.
    pub(crate) fn new(liveness: Duration) -> Self {
        let watch =
            StandstillWatch { turns: 0, due: Instant::ZERO, last: false, alarm: Arc::default() };
        Self {
            limit: liveness.min(LIMIT),
            turns: Cell::new(0),
            #[cfg(feature = "tokio")]
            drivers: Cell::new(0),
            watch: RefCell::new(watch),
        }
    }

    /// Counts a turn of the endpoint's loop, and returns the number of turns.
    #[inline]
    pub(crate) fn count_turn(&self) -> u64 {
        let turns = self.turns.get() + 1;
        self.turns.set(turns);
        turns
    }

    #[cfg(feature = "tokio")]
    fn is_driven(&self) -> bool {
        self.drivers.get() > 0
    }

    #[cfg(not(feature = "tokio"))]
    fn is_driven(&self) -> bool {
        false
    }

    /// Marks the endpoint as run by [`drive`](crate::endpoint::tokio::drive) until the result is
    /// dropped.
    #[cfg(feature = "tokio")]
    pub(crate) fn driven(&self) -> Driven<'_> {
        self.drivers.set(self.drivers.get() + 1);
        Driven(self)
    }

    /// Called when a future of this endpoint has to wait and `poll` polls it with `cx`.
    ///
    /// # Panics
    /// If the future has waited for [`LIMIT`] without a turn of the endpoint.
    pub(crate) fn look(&self, cx: &Context<'_>, poll: ForeignPoll) {
        // Loom's threads are coroutines of one thread, and Miri reports an error if a thread
        // outlives `main`.
        if cfg!(any(loom, miri)) || self.is_driven() {
            return;
        }
        let (now, mut watch) = (clock::now(), self.watch.borrow_mut());
        let last = self.limit / LAST_PART;
        if watch.turns != self.turns.get() || watch.due == Instant::ZERO {
            (watch.turns, watch.due) = (self.turns.get(), now + (self.limit - last));
            watch.last = false;
        } else if now >= watch.due {
            if watch.last && now < watch.due + last {
                // If another future of this endpoint still waits and is polled again, it gets a
                // full timeout of its own.
                watch.due = Instant::ZERO;
                drop(watch);
                panic!("{}", poll.advice());
            }
            (watch.due, watch.last) = (now + last, true);
        }
        let before = watch.alarm.wait(Some(cx.waker()));
        if !watch.alarm.armed.swap(true, Ordering::AcqRel) {
            ring_after(watch.due - now, Arc::clone(&watch.alarm));
        }
        drop(watch);
        // Dropping a waker may run any code, so nothing is borrowed here.
        drop(before);
    }
}

/// Wakes the waiter of `alarm` after `time`.
fn ring_after(time: Duration, alarm: Arc<StandstillAlarm>) {
    let ring = move || {
        sleep(time);
        alarm.armed.store(false, Ordering::Release);
        if let Some(waiter) = alarm.wait(None) {
            waiter.wake();
        }
    };
    // If the system refuses the thread, the mistake stays undetected. The alarm stays armed, so
    // that not every poll tries to start a thread.
    drop(thread::Builder::new().name("erpc-standstill".into()).spawn(ring));
}

/// An endpoint that `drive` runs.
#[cfg(feature = "tokio")]
pub(crate) struct Driven<'s>(&'s Standstill);

#[cfg(feature = "tokio")]
impl Drop for Driven<'_> {
    fn drop(&mut self) {
        self.0.drivers.set(self.0.drivers.get() - 1);
    }
}

impl ForeignPoll {
    fn advice(self) -> &'static str {
        match self {
            Self::OtherEndpoint => {
                "a future of an endpoint is awaited in the loop of another endpoint, and nothing \
                runs its own endpoint: await it in a `block_on` or task of its own endpoint, or \
                use one endpoint for both, since an endpoint can serve and call any number of \
                servers; if this thread needs two endpoints, call `run_once` of each in turn, or \
                give one of them its own thread and reach it with `Handle::submit`"
            }
            Self::Runtime => {
                "a future of an endpoint is awaited, but no loop runs the endpoint: wait with \
                `Endpoint::block_on`; or give the endpoint a thread and reach it with \
                `Handle::submit` or, from tasks of tokio, `erpc::tokio::Remote`; or run it among \
                tasks of tokio, on this thread, with `erpc::tokio::drive`"
            }
        }
    }
}
