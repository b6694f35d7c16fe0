//! Sleeping until an instant, and timeouts of futures.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll};

use super::scheduler::Scheduler;
use super::timers::Alarm;
use crate::debug_text::debug_is_display;
use crate::mutants::mutant;
use crate::time::Instant;

/// A wait for an instant; see [`Endpoint::sleep`](crate::endpoint::Endpoint::sleep).
///
/// Costs nothing before the first poll, and then O(log n) with n timers in the endpoint. Ends
/// immediately if the endpoint is gone.
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

    /// When the sleep ends.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Waits for `future`, but at most until `self` ends.
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
        if let Some(key) = self.timer.filter(|_| !mutant!(SleepTimerKept)) {
            let alarm = self.scheduler.timers().remove(key);
            // Dropping a waker may run any code; the timers are no longer borrowed here.
            drop(alarm);
        }
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep").field("deadline", &self.deadline).finish_non_exhaustive()
    }
}

/// A future did not complete within the time given to
/// [`Endpoint::timeout`](crate::endpoint::Endpoint::timeout).
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Elapsed;

impl fmt::Display for Elapsed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the future took longer than the timeout allows")
    }
}

debug_is_display!(Elapsed);

impl std::error::Error for Elapsed {}
