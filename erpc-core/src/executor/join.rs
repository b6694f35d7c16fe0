//! Waiting for tasks and for several futures.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Waits for a task started by [`Endpoint::spawn`](crate::endpoint::Endpoint::spawn), and returns
/// its output.
///
/// The task continues if the handle is dropped. If the task panicked, awaiting the handle panics
/// with the same payload. Without an await, only the panic hook reports the panic. Awaiting the
/// handle of a task that was dropped because its endpoint has ended panics, too.
pub struct JoinHandle<O> {
    join: Rc<JoinState<O>>,
    check: Rc<dyn WaitCheck>,
}

/// Finds waits that never end, because nothing runs the endpoint of the future that waits.
pub(super) trait WaitCheck {
    /// Called when a future of the endpoint has to wait, and perhaps no task of the endpoint polls
    /// it.
    ///
    /// # Panics
    /// If nothing runs the endpoint.
    fn check(&self, cx: &Context<'_>);
}

struct JoinState<O> {
    output: RefCell<Option<Result<O, Box<dyn Any + Send>>>>,
    /// Whether the task has ended, with or without an output.
    ended: Cell<bool>,
    waiter: Cell<Option<Waker>>,
}

/// The task's side. Its drop ends the wait for the task.
struct JoinEnd<O>(Rc<JoinState<O>>);

impl<O> Drop for JoinEnd<O> {
    fn drop(&mut self) {
        self.0.ended.set(true);
        if let Some(waiter) = self.0.waiter.take() {
            waiter.wake();
        }
    }
}

impl<O> JoinHandle<O> {
    /// Whether the task has ended, also if it was dropped with its endpoint.
    #[must_use]
    pub fn is_finished(&self) -> bool {
        self.join.ended.get()
    }
}

impl<O> Future for JoinHandle<O> {
    type Output = O;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<O> {
        let output = self.join.output.borrow_mut().take();
        match output {
            Some(Ok(output)) => Poll::Ready(output),
            Some(Err(panic)) => resume_unwind(panic),
            None if self.join.ended.get() => {
                panic!("the task was dropped before its end, because its endpoint has ended")
            }
            None => {
                self.check.check(cx);
                self.join.waiter.set(Some(cx.waker().clone()));
                Poll::Pending
            }
        }
    }
}

impl<O> fmt::Debug for JoinHandle<O> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle").field("finished", &self.is_finished()).finish()
    }
}

/// Awaits all `futures` and returns their outputs in order. The first poll polls each of them, so
/// calls that send when first polled are all sent before the first reply.
///
/// A wake polls every future that is still pending; for thousands of concurrent calls prefer tasks
/// or callbacks. Futures that are not `Unpin`, such as `async` blocks, need `Box::pin`.
pub fn join_all<I>(futures: I) -> JoinAll<I::Item>
where
    I: IntoIterator,
    I::Item: Future + Unpin,
{
    let items: Vec<_> = futures.into_iter().map(JoinItem::Pending).collect();
    JoinAll { pending: items.len(), items }
}

/// The future of [`join_all`].
#[must_use = "futures do nothing unless polled"]
pub struct JoinAll<F: Future> {
    items: Vec<JoinItem<F>>,
    pending: usize,
}

enum JoinItem<F: Future> {
    Pending(F),
    Done(F::Output),
}

impl<F: Future> fmt::Debug for JoinAll<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinAll").field("pending", &self.pending).finish_non_exhaustive()
    }
}

// No part of an item is pinned: futures are `Unpin`, and outputs are only moved.
impl<F: Future> Unpin for JoinAll<F> {}

impl<F: Future + Unpin> Future for JoinAll<F> {
    type Output = Vec<F::Output>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        for item in &mut this.items {
            if let JoinItem::Pending(future) = item
                && let Poll::Ready(output) = Pin::new(future).poll(cx)
            {
                *item = JoinItem::Done(output);
                this.pending -= 1;
            }
        }
        if this.pending > 0 {
            return Poll::Pending;
        }
        let outputs = std::mem::take(&mut this.items).into_iter().filter_map(|item| match item {
            JoinItem::Done(output) => Some(output),
            JoinItem::Pending(_) => None,
        });
        Poll::Ready(outputs.collect())
    }
}

/// Splits `future` into a task without output and a handle that returns its output.
pub(super) fn joined<F: Future>(
    future: F,
    check: Rc<dyn WaitCheck>,
) -> (impl Future<Output = ()> + use<F>, JoinHandle<F::Output>) {
    let join = Rc::new(JoinState {
        output: RefCell::new(None),
        ended: Cell::new(false),
        waiter: Cell::new(None),
    });
    let handle = JoinHandle { join: Rc::clone(&join), check };
    let end = JoinEnd(join);
    let body = async move {
        let mut future = pin!(future);
        let output = poll_fn(|cx| poll_caught(future.as_mut(), cx)).await;
        *end.0.output.borrow_mut() = Some(output);
    };
    (body, handle)
}

/// Runs `future`, and returns a panic in it as an error.
pub(crate) async fn caught<F: Future>(future: F) -> Result<F::Output, Box<dyn Any + Send>> {
    let mut future = pin!(future);
    poll_fn(|cx| poll_caught(future.as_mut(), cx)).await
}

/// Polls `future` once, and returns a panic in it as an error.
#[inline(always)]
fn poll_caught<F: Future>(
    future: Pin<&mut F>,
    cx: &mut Context<'_>,
) -> Poll<Result<F::Output, Box<dyn Any + Send>>> {
    match catch_unwind(AssertUnwindSafe(|| future.poll(cx))) {
        Ok(Poll::Pending) => Poll::Pending,
        Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
        Err(panic) => Poll::Ready(Err(panic)),
    }
}
