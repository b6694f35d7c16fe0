//! The runtime as one endpoint uses it.

use std::cell::Cell;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{Runtime, SendFuture};
use crate::sync::Mutex;
use crate::sync::atomic::{AtomicU64, Ordering};

/// The runtime of a server, and the number of handlers that it runs for one endpoint.
///
/// A handler may run longer than its call: when the call has ended early, the runtime drops the
/// handler's future at the next `await`, on one of its own threads.
pub(crate) struct EndpointRuntime {
    runtime: Arc<dyn Runtime>,
    /// Number of handlers whose results this endpoint awaits.
    awaited: Cell<u64>,
    handlers: Arc<Handlers>,
}

/// The handlers of an endpoint that run in the runtime.
#[derive(Default)]
pub(super) struct Handlers {
    /// Number of handlers, plus [`WATCHED`] if there may be watchers. One variable, so that either
    /// the last handler sees the watcher, or the watcher sees that no handler runs.
    running: AtomicU64,
    /// Woken when no handler runs any more.
    watchers: Mutex<Vec<Waker>>,
}

/// See [`Handlers::running`].
const WATCHED: u64 = 1 << 63;

impl EndpointRuntime {
    pub(crate) fn new(runtime: Arc<dyn Runtime>) -> Rc<Self> {
        Rc::new(Self { runtime, awaited: Cell::new(0), handlers: Arc::default() })
    }

    pub(super) fn spawn(&self, task: SendFuture<()>) {
        self.runtime.spawn(task);
    }

    /// Counts a handler: at the endpoint until the first value is dropped, in the runtime until the
    /// second one is dropped.
    pub(super) fn handler(self: &Rc<Self>) -> (AwaitedHandler, RunningHandler) {
        self.awaited.set(self.awaited.get() + 1);
        (AwaitedHandler(Rc::clone(self)), Handlers::begin(&self.handlers))
    }

    /// Number of handlers that run although their calls have ended. May be too small while results
    /// are on their way to the endpoint.
    pub(crate) fn outliving(&self) -> usize {
        let running = self.handlers.running.load(Ordering::Relaxed) & !WATCHED;
        running.saturating_sub(self.awaited.get()) as usize
    }

    /// Waits until no handler runs.
    pub(crate) fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        self.handlers.poll_idle(cx)
    }
}

impl Handlers {
    pub(super) fn begin(this: &Arc<Self>) -> RunningHandler {
        this.running.fetch_add(1, Ordering::Relaxed);
        RunningHandler(Arc::clone(this))
    }

    pub(super) fn poll_idle(&self, cx: &Context<'_>) -> Poll<()> {
        let mut watchers = self.watchers.lock().unwrap_or_else(PoisonError::into_inner);
        if !watchers.iter().any(|watcher| watcher.will_wake(cx.waker())) {
            watchers.push(cx.waker().clone());
        }
        drop(watchers);
        match self.running.fetch_or(WATCHED, Ordering::AcqRel) & !WATCHED {
            0 => Poll::Ready(()),
            _ => Poll::Pending,
        }
    }
}

/// Exists while the endpoint awaits the result of a handler.
pub(super) struct AwaitedHandler(Rc<EndpointRuntime>);

impl Drop for AwaitedHandler {
    fn drop(&mut self) {
        self.0.awaited.set(self.0.awaited.get() - 1);
    }
}

/// Exists while the runtime has a handler.
pub(super) struct RunningHandler(Arc<Handlers>);

impl Drop for RunningHandler {
    fn drop(&mut self) {
        if self.0.running.fetch_sub(1, Ordering::AcqRel) == WATCHED + 1 {
            let watchers = &self.0.watchers;
            let watchers =
                std::mem::take(&mut *watchers.lock().unwrap_or_else(PoisonError::into_inner));
            watchers.into_iter().for_each(Waker::wake);
        }
    }
}
