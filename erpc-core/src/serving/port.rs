//! The interface of an endpoint for the tasks of handlers.

use std::future::ready;
use std::rc::Weak;
use std::sync::Arc;

use super::answer::{answer, no_memory};
use super::requests::Requests;
use crate::buf::MsgBuf;
use crate::executor::sleep::Sleep;
use crate::protocol::{ClientStats, RequestHandle};
use crate::service::{HandlerOutcome, ReplySink, TaskPort, Timer};
use crate::status::Status;
use crate::sync::atomic::AtomicBool;
use crate::time::Instant;
use crate::transport::Transport;

/// The interface of an endpoint for tasks.
pub(crate) struct HandlerPort<T: Transport> {
    /// Weak, because the endpoint holds the tasks.
    requests: Weak<Requests<T>>,
    sink: Arc<dyn ReplySink>,
}

impl<T: Transport> HandlerPort<T> {
    pub(crate) fn new(requests: Weak<Requests<T>>, sink: Arc<dyn ReplySink>) -> Self {
        Self { requests, sink }
    }
}

// Tasks run after the turn of the endpoint's `Rpc`, so the `Rpc` is not borrowed and
// `Requests::rpc` returns it. If it were borrowed, an error would be better than a panic within a
// task.
impl<T: Transport> TaskPort for HandlerPort<T> {
    fn in_time(&self, deadline: Instant) -> Result<(), Status> {
        if deadline == Instant::NEVER {
            return Ok(());
        }
        let Some(requests) = self.requests.upgrade() else { return Ok(()) };
        requests.running.in_time(deadline, || requests.scheduler().now())
    }

    fn now(&self) -> Instant {
        self.requests.upgrade().map_or(Instant::NEVER, |requests| requests.scheduler().now())
    }

    fn has_virtual_time(&self) -> bool {
        let requests = self.requests.upgrade();
        requests.is_some_and(|requests| requests.scheduler().has_virtual_time())
    }

    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        let requests = self.requests.upgrade().ok_or_else(no_memory)?;
        let mut rpc = requests.rpc().ok_or_else(no_memory)?;
        let mut cx = rpc.context_at(requests.running.turn());
        cx.response_buffer(None, len).map_err(|_| no_memory())
    }

    fn sleep(&self, until: Instant) -> Timer {
        match self.requests.upgrade() {
            Some(requests) => Box::pin(Sleep::new(requests.scheduler(), until)),
            None => Box::pin(ready(())),
        }
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        let requests = self.requests.upgrade()?;
        requests.rpc()?.context_at(requests.running.turn()).client_stats(call.client())
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(&self.sink)
    }

    fn cancel_flag(&self, call: RequestHandle) -> Arc<AtomicBool> {
        self.requests.upgrade().map_or_else(
            || Arc::new(AtomicBool::new(false)),
            |requests| requests.running.deferred(call),
        )
    }

    fn finish(&self, call: RequestHandle, outcome: HandlerOutcome) {
        let Some(requests) = self.requests.upgrade() else { return };
        let is_deferred = matches!(outcome, HandlerOutcome::Deferred);
        if !requests.running.task_ended(call, is_deferred) {
            return;
        }
        if let Some(mut rpc) = requests.rpc() {
            answer(&mut rpc.context_at(requests.running.turn()), call, outcome);
        }
    }
}
