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
//! deadlines, limits and the end of the server work in the same way: they drop the task. The
//! handler's future follows at its current `await`. Until then it counts against the limit, and a
//! drain waits for it ([`EndpointRuntime`]). Outcomes travel with the wakes of the endpoint's tasks:
//! those that arrive during a turn wake the thread once.

mod endpoint;
mod request;
#[cfg(all(test, loom))]
mod schedules;
mod spawn;
pub(super) mod stream;
pub(super) mod task;

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use futures_channel::oneshot;

use self::endpoint::RunningHandler;

pub(crate) use endpoint::EndpointRuntime;
pub use request::SharedRequest;
pub(crate) use spawn::{Runtime, SendFuture};

use super::detached::{DetachedCall, DetachedPassage};
use super::info::MethodInfo;
use super::panics::handler_panicked;
use crate::status::Status;

/// Runs the future of `handler` in the runtime, inside of the call's interceptors, and returns a
/// future of its result. When that is dropped, the handler's future is dropped at its current
/// `await`. If the handler panics, the result is [`Status::internal`].
fn start<O, H, F>(
    runtime: &Rc<EndpointRuntime>,
    call: Arc<DetachedCall>,
    handler: H,
) -> impl Future<Output = Result<O, Status>> + use<O, H, F>
where
    O: Send + 'static,
    H: FnOnce() -> F + Send + 'static,
    F: Future<Output = Result<O, Status>> + Send + 'static,
{
    let (sender, receiver) = oneshot::channel();
    let (awaited, running) = runtime.handler();
    runtime.spawn(Box::pin(run(running, call, handler, sender)));
    async move {
        let result = receiver.await.unwrap_or_else(|_gone| Err(runtime_ended()));
        drop(awaited);
        result
    }
}

/// The task of a handler. It takes a function instead of the future, which would otherwise be part
/// of this future twice.
async fn run<O, F>(
    counted: RunningHandler,
    call: Arc<DetachedCall>,
    handler: impl FnOnce() -> F,
    mut sender: oneshot::Sender<Result<O, Status>>,
) where
    F: Future<Output = Result<O, Status>>,
{
    let mut running = pin!(Some(async {
        let passage = DetachedPassage::enter(&call)?;
        let result = handler().await;
        passage.leave(result.as_ref().map(|_| ()));
        result
    }));
    let result = poll_fn(|cx| {
        if sender.poll_canceled(cx).is_ready() {
            return Poll::Ready(None);
        }
        let Some(handler) = running.as_mut().as_pin_mut() else { return Poll::Ready(None) };
        // As with synchronous handlers, the user has to keep the service consistent after a panic.
        let polled = catch_unwind(AssertUnwindSafe(|| handler.poll(cx)));
        let ended = |panic: Box<dyn Any + Send>| {
            Poll::Ready(Err(handler_panicked(call.method().full_name(), &*panic)))
        };
        polled.unwrap_or_else(ended).map(Some)
    })
    .await;
    // Dropping a handler's values may panic; the panic hook has reported it.
    drop(catch_unwind(AssertUnwindSafe(|| running.set(None))));
    drop(counted);
    if let Some(result) = result {
        // Fails if the call has ended meanwhile.
        drop(sender.send(result));
    }
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
