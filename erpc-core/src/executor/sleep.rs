//! Sleeping until an instant, and waiting no longer than that.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::scheduler::Scheduler;
use super::timers::Alarm;
use crate::time::Instant;

/// A wait for an instant; see [`Endpoint::sleep`](crate::endpoint::Endpoint::sleep).
///
/// Costs nothing until it is polled, and O(log n) with n timers of the endpoint then. Over at once if the
/// endpoint is gone.
#[must_use = "futures do nothing unless polled"]
pub struct Sleep {
    scheduler: Rc<Scheduler>,
    deadline: Instant,
    timer: Option<usize>,
}

impl Sleep {
    pub(crate) fn new(scheduler: &Rc<Scheduler>, deadline: Instant) -> Self {
        Self { scheduler: Rc::clone(scheduler), deadline, timer: None }
    }

    /// When it ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for `future`, but no longer than until `self` ends.
    pub(crate) async fn limit<F: Future>(mut self, future: F) -> Result<F::Output, Elapsed> {
        let mut future = pin!(future);
        poll_fn(|cx| {
            if let Poll::Ready(output) = future.as_mut().poll(cx) {
                return Poll::Ready(Ok(output));
            }
            Pin::new(&mut self).poll(cx).map(|()| Err(Elapsed))
        })
        .await
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.scheduler.is_closed() {
            return Poll::Ready(());
        }
        let waiter = self.scheduler.executor().wake_slot(cx);
        let Some(key) = self.timer else {
            let timer = self.scheduler.timers().arm(self.deadline, Alarm::Wake(waiter));
            self.timer = Some(timer);
            self.scheduler.wake_loop();
            return Poll::Pending;
        };
        let before = self.scheduler.timers().wait(key, waiter);
        if before.is_some() { Poll::Pending } else { Poll::Ready(()) }
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer {
            let alarm = self.scheduler.timers().remove(key);
            // A waker may run anything when it is dropped; the timers are no longer borrowed.
            drop(alarm);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// A future took longer than [`Endpoint::timeout`](crate::endpoint::Endpoint::timeout) let it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("it took longer than the time-out allows")
    }
}

impl std::error::Error for Elapsed {}
