//! Calls that do not end where they arrive: tasks of asynchronous handlers.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::dispatch::no_memory;
use super::executor::TaskId;
use super::shared::Shared;
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;
use crate::service::{CallTask, Outcome, ReplySink, Status, TaskPort};
use crate::transport::Transport;

/// The calls of an endpoint that run as tasks.
#[derive(Default)]
pub(super) struct Running {
    tasks: RefCell<HashMap<RequestHandle, TaskId>>,
    /// Whether a task has answered since somebody asked.
    answered: Cell<bool>,
}

impl Running {
    /// Whether tasks have answered since this was asked last.
    #[inline]
    pub(super) fn take_answered(&self) -> bool {
        self.answered.get() && self.answered.replace(false)
    }
}

impl<T: Transport> Shared<T> {
    /// Starts the task of a call.
    pub(super) fn start_call(&self, call: RequestHandle, task: CallTask) {
        let id = self.executor().start_boxed(task);
        self.running.tasks.borrow_mut().insert(call, id);
    }
}

/// What tasks see of their endpoint.
pub(super) struct Port<T: Transport> {
    /// Weak, because the endpoint holds the tasks.
    shared: Weak<Shared<T>>,
    sink: Arc<dyn ReplySink>,
}

impl<T: Transport> Port<T> {
    pub(super) fn new(shared: &Rc<Shared<T>>) -> Self {
        Self { shared: Rc::downgrade(shared), sink: Arc::clone(shared.mailbox()) as _ }
    }
}

impl<T: Transport> TaskPort for Port<T> {
    /// The slot's own buffer, as for a dispatch handler.
    fn buffer(&self, call: &RequestHandle, len: usize) -> Result<MsgBuf, Status> {
        let shared = self.shared.upgrade().ok_or_else(no_memory)?;
        let mut rpc = shared.rpc().ok_or_else(no_memory)?;
        rpc.context().response_buffer(call, len).map_err(|_| no_memory())
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::clone(&self.sink)
    }

    fn finish(&self, call: RequestHandle, outcome: Outcome) {
        let Some(shared) = self.shared.upgrade() else { return };
        // Gone if the call was cancelled, and answered, from within its own poll.
        if shared.running.tasks.borrow_mut().remove(&call).is_none() {
            return;
        }
        let Some(mut rpc) = shared.rpc() else { return };
        shared.running.answered.set(true);
        let mut cx = rpc.context();
        match outcome {
            Outcome::Reply(reply) => cx.respond(call, reply.message),
            Outcome::Failed(status) => cx.respond_status(call, &status),
            Outcome::Deferred => {}
        }
    }
}
