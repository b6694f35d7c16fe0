//! Futures of an endpoint whose loop does not run.
//!
//! A future of an endpoint that another executor polls waits for ever if no thread runs the endpoint's loop. One
//! poll does not show it: the loop may be about to begin, in the same task even. So the time is measured from that poll.
//! If the liveness time-out passes without one turn of the loop, after which peers would have given up anyway, the
//! future is woken, and panics with what to do instead.
//!
//! A future that is polled after a long pause, because its process was stopped or an earlier future was dropped,
//! has not waited that long. So the last part of the time counts only for a future that is woken at its end.

use std::cell::{Cell, RefCell};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Waker};
use std::time::Duration;

use ::tokio::runtime::Handle;
use ::tokio::time::sleep;

use crate::clock;
use crate::time::Instant;

/// The last part of the time is this part of the whole.
const LAST_PART: u32 = 4;

/// Ends the wait of tokio tasks for an endpoint whose loop does not run.
pub(crate) struct Standstill {
    /// How long a loop that goes on may take from one turn to the next.
    limit: Duration,
    /// Turns of the endpoint's loop.
    turns: Cell<u64>,
    /// How many [`drive`](crate::endpoint::tokio::drive)s there are; while they sleep there are no turns.
    drivers: Cell<u32>,
    watch: RefCell<StandstillWatch>,
}

/// The turns that a waiting future has seen, and when it is to look again.
struct StandstillWatch {
    turns: u64,
    due: Instant,
    /// The last part of the time has begun.
    last: bool,
    alarm: Arc<StandstillAlarm>,
}

/// Wakes the last waiter when the time is up.
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

    /// A turn begins.
    #[inline]
    pub(crate) fn turn(&self) {
        self.turns.set(self.turns.get() + 1);
    }

    /// [`drive`](crate::endpoint::tokio::drive) runs the endpoint until this is dropped.
    pub(crate) fn driven(&self) -> Driven<'_> {
        self.drivers.set(self.drivers.get() + 1);
        Driven(self)
    }

    /// A future waits that another executor polls with `cx`.
    ///
    /// # Panics
    /// If it has waited for long, in a tokio runtime, without a turn of the endpoint.
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
                // Another future that waits, and is polled again, has its own time.
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
        // A waker may run anything when it is dropped.
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

const NOT_RUNNING: &str = "a future of an endpoint is awaited, and no loop runs the endpoint: host it with \
    `erpc::tokio::drive` on this thread, give it a thread and reach it with `erpc::tokio::Remote`, or wait \
    with `Endpoint::block_on`";
