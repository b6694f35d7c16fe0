//! Detects futures of an endpoint whose loop does not run.
//!
//! If another executor polls a future of an endpoint and no thread runs the endpoint's loop, the
//! future waits forever. One poll does not show this: the loop may be about to start, even in the
//! same task. So the time since that poll is measured. If the liveness timeout passes without a
//! turn of the loop, peers would have given up anyway. The future is then woken, and panics with a
//! message that says how to fix it.
//!
//! A future may be polled after a long pause, because its process was stopped or an earlier future
//! was dropped. Such a future has not waited for the whole timeout. So the last quarter of the
//! timeout is measured separately: an alarm wakes the future at the end of that quarter, and the
//! future panics only if it is polled then. If it is polled more than another quarter later, the
//! last quarter begins again.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use ::tokio::runtime::Handle;
use ::tokio::time::sleep;

use crate::clock;
use crate::time::Instant;

/// The last part of the liveness timeout is `1 / LAST_PART` of the whole.
const LAST_PART: u32 = 4;

/// Ends the waiting of tokio tasks for an endpoint whose loop does not run.
pub(crate) struct Standstill {
    /// Longest time between two turns of a loop that is considered running.
    limit: Duration,
    /// Number of turns of the endpoint's loop.
    turns: Cell<u64>,
    /// Number of active [`drive`](crate::endpoint::tokio::drive)s. While they sleep there are no
    /// turns.
    drivers: Cell<u32>,
    watch: RefCell<StandstillWatch>,
}

/// The number of turns that a waiting future has seen, and when to check it again.
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

impl Standstill {
    pub(crate) fn new(limit: Duration) -> Self {
        let watch =
            StandstillWatch { turns: 0, due: Instant::ZERO, last: false, alarm: Arc::default() };
        Self { limit, turns: Cell::new(0), drivers: Cell::new(0), watch: RefCell::new(watch) }
    }

    /// Counts a turn, at its start.
    #[inline]
    pub(crate) fn turn(&self) {
        self.turns.set(self.turns.get() + 1);
    }

    /// Marks the endpoint as run by [`drive`](crate::endpoint::tokio::drive) until the result is
    /// dropped.
    pub(crate) fn driven(&self) -> Driven<'_> {
        self.drivers.set(self.drivers.get() + 1);
        Driven(self)
    }

    /// Called when a future of this endpoint has to wait and another executor polls it with `cx`.
    ///
    /// # Panics
    /// If the future has waited for the liveness timeout, in a tokio runtime, without a turn of the
    /// endpoint.
    pub(crate) fn look(&self, cx: &Context<'_>) {
        if self.drivers.get() > 0 {
            return;
        }
        let Ok(runtime) = Handle::try_current() else { return };
        let (now, mut watch) = (clock::now(), self.watch.borrow_mut());
        let last = self.limit / LAST_PART;
        if watch.turns != self.turns.get() || watch.due == Instant::ZERO {
            (watch.turns, watch.due) = (self.turns.get(), now + (self.limit - last));
            watch.last = false;
        } else if now >= watch.due {
            if watch.last && now < watch.due + last {
                // Another waiting future that is polled again gets a full timeout of its own.
                watch.due = Instant::ZERO;
                drop(watch);
                panic!("{NOT_RUNNING}");
            }
            (watch.due, watch.last) = (now + last, true);
        }
        let left = watch.due - now;
        let before = watch.alarm.wait(Some(cx.waker()));
        if !watch.alarm.armed.swap(true, Ordering::AcqRel) {
            let alarm = Arc::clone(&watch.alarm);
            runtime.spawn(async move {
                sleep(left).await;
                alarm.armed.store(false, Ordering::Release);
                if let Some(waiter) = alarm.wait(None) {
                    waiter.wake();
                }
            });
        }
        drop(watch);
        // Dropping a waker may run any code, so nothing is borrowed here.
        drop(before);
    }
}

/// An endpoint that `drive` runs.
pub(crate) struct Driven<'s>(&'s Standstill);

impl Drop for Driven<'_> {
    fn drop(&mut self) {
        self.0.drivers.set(self.0.drivers.get() - 1);
    }
}

const NOT_RUNNING: &str = "a future of an endpoint is awaited, but no loop runs the endpoint: run it with \
    `erpc::tokio::drive` on this thread, give it a thread and reach it with `erpc::tokio::Remote`, or wait \
    with `Endpoint::block_on`";
