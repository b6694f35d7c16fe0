//! Handlers that run as tasks of another runtime: of tokio.
//!
//! ```text
//!   endpoint's thread                               the runtime's threads
//!   task of the call  -- starts -->  the handler's future, inside of its interceptors
//!                     <- outcome --  oneshot; wakes the task
//!                     -- dropped ->  the future is dropped at its current `await`
//! ```
//!
//! Each call has a task at its endpoint, as an asynchronous handler there has. So cancels,
//! deadlines, limits and the end of the server work in the same way: they drop the task. Outcomes
//! travel with the wakes of the endpoint's tasks: those that arrive during a turn wake the thread
//! once.

mod request;
mod spawn;
pub(super) mod stream;
pub(super) mod task;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::Arc;
use std::task::Poll;

use futures_channel::oneshot;

pub use request::SharedRequest;
pub(crate) use spawn::{Runtime, SendFuture};

use super::detached::{DetachedCall, DetachedPassage};
use super::info::MethodInfo;
use super::panics::panicked;
use crate::status::Status;

/// Starts `handler` in the runtime, inside of the call's interceptors, and returns a future of its
/// result. When that is dropped, the handler's future is dropped at its current `await`. If the
/// handler panics, the result is [`Status::internal`].
fn start<O, H>(
    runtime: &dyn Runtime,
    call: Arc<DetachedCall>,
    handler: H,
) -> impl Future<Output = Result<O, Status>> + use<O, H>
where
    O: Send + 'static,
    H: Future<Output = Result<O, Status>> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    runtime.spawn(Box::pin(run(call, handler, sender)));
    async move { receiver.await.unwrap_or_else(|_gone| Err(runtime_ended())) }
}

async fn run<O>(
    call: Arc<DetachedCall>,
    handler: impl Future<Output = Result<O, Status>>,
    mut sender: oneshot::Sender<Result<O, Status>>,
) {
    let mut running = pin!(Some(intercepted(&call, handler)));
    let result = poll_fn(|cx| {
        if sender.poll_canceled(cx).is_ready() {
            return Poll::Ready(None);
        }
        let Some(handler) = running.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        // As with synchronous handlers, the user has to keep the service consistent after a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| handler.poll(cx)));
        polled
            .unwrap_or_else(|panic| Poll::Ready(Err(panicked(call.method().full_name(), &*panic))))
            .map(Some)
    })
    .await;
    // Dropping a handler's values may panic; the panic hook has reported it.
    drop(catch_unwind(AssertUnwindSafe(|| running.set(None))));
    if let Some(result) = result {
        // Fails if the call has ended meanwhile.
        drop(sender.send(result));
    }
}

/// Runs `handler` inside of the call's interceptors.
async fn intercepted<O>(
    call: &Arc<DetachedCall>,
    handler: impl Future<Output = Result<O, Status>>,
) -> Result<O, Status> {
    let passage = DetachedPassage::enter(call)?;
    let result = handler.await;
    passage.leave(result.as_ref().map(|_| ()));
    result
}

#[cold]
fn runtime_ended() -> Status {
    Status::unavailable("the tokio runtime in which the server runs its handlers has ended")
}

/// The status of a call whose server has no runtime.
#[cold]
fn no_runtime(method: &MethodInfo) -> Status {
    Status::failed_precondition(format!(
        "the handler of {} runs in tokio and the server has no runtime",
        method.full_name()
    ))
}
