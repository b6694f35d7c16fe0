//! Adapter of an asynchronous handler: each call is a task of the endpoint.
//!
//! The threads of a server share the table of methods, but a task belongs to one thread. So each
//! endpoint has its own [`TaskMethod`] for each asynchronous method. A call shares nothing with
//! other threads, not even a reference count.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use super::arrival::Arrival;
use super::handler::{check_size, malformed, panicked, returned};
use super::info::MethodInfo;
use super::interceptor::{Passage, late};
use super::method::Types;
use super::panics::handler_panicked;
use super::reply::ReplySink;
use super::runtime::EndpointRuntime;
use super::{CallContext, CallHost, Codec, HandlerOutcome, Request, Response};
use crate::buf::MsgBuf;
use crate::protocol::{ClientStats, RequestHandle};
use crate::status::Status;
use crate::sync::atomic::AtomicBool;
use crate::time::Instant;

/// A running call. It ends by passing its outcome to the [`TaskPort`]. Polling it does not unwind;
/// dropping it may.
pub(crate) type CallTask = Pin<Box<dyn Future<Output = ()>>>;

/// See [`TaskPort::sleep`].
pub(crate) type Timer = Pin<Box<dyn Future<Output = ()>>>;

/// Creates a method's [`TaskMethod`] for one endpoint.
pub(super) type TaskMaker = dyn Fn(&Arc<MethodInfo>, &Rc<dyn TaskPort>, Option<&Rc<EndpointRuntime>>) -> Rc<dyn TaskMethod>
    + Send
    + Sync;

/// The interface of the endpoint for tasks.
pub(crate) trait TaskPort {
    /// Whether a handler may still start on a request with this deadline; `Err` is the status for
    /// the caller.
    fn in_time(&self, deadline: Instant) -> Result<(), Status>;

    /// The current time.
    fn now(&self) -> Instant;

    /// Whether that is a virtual time.
    fn has_virtual_time(&self) -> bool;

    /// An empty buffer for a response of at least `len` bytes.
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status>;

    /// A future that completes at `until`.
    fn sleep(&self, until: Instant) -> Timer;

    /// Current state of the client's session.
    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats>;

    /// The receiver of deferred answers.
    fn sink(&self) -> Arc<dyn ReplySink>;

    /// The flag that is set when the client cancels a call whose answer is deferred.
    fn cancel_flag(&self, call: RequestHandle) -> Arc<AtomicBool>;

    /// Takes the outcome of a call.
    fn finish(&self, call: RequestHandle, outcome: HandlerOutcome);
}

/// An asynchronous method at one endpoint.
pub(crate) trait TaskMethod {
    /// Creates the task of a call. Costs one allocation, for the task.
    ///
    /// # Errors
    /// The status for the caller, if the request is too large or cannot be decoded.
    fn start(self: Rc<Self>, arrival: Arrival, body: &[u8]) -> Result<CallTask, Status>;
}

/// Wraps a typed asynchronous handler into a [`TaskMaker`].
pub(super) fn tasks<S, Req, Resp, C, D>(
    service: Arc<S>,
    handler: impl AsyncFn(&S, Request<'_, Req>) -> Result<Response<Resp>, Status>
    + Send
    + Sync
    + 'static,
) -> Arc<TaskMaker>
where
    S: Send + Sync + 'static,
    Req: 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
{
    let handler = Arc::new(handler);
    Arc::new(move |method, port, _| {
        Rc::new(Unary::<S, _, Req, Resp, C, D> {
            method: Arc::clone(method),
            port: Rc::clone(port),
            service: Arc::clone(&service),
            handler: Arc::clone(&handler),
            types: PhantomData,
        }) as Rc<dyn TaskMethod>
    })
}

struct Unary<S, H, Req, Resp, C, D> {
    method: Arc<MethodInfo>,
    port: Rc<dyn TaskPort>,
    service: Arc<S>,
    handler: Arc<H>,
    types: PhantomData<Types<Req, Resp, C, D>>,
}

impl<S, H, Req, Resp, C, D> TaskMethod for Unary<S, H, Req, Resp, C, D>
where
    S: 'static,
    H: AsyncFn(&S, Request<'_, Req>) -> Result<Response<Resp>, Status> + 'static,
    Req: 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
{
    fn start(self: Rc<Self>, arrival: Arrival, body: &[u8]) -> Result<CallTask, Status> {
        let message = decoded::<C, Req>(&self.method, body)?;
        Ok(Box::pin(async move {
            let outcome = match self.port.in_time(arrival.deadline) {
                Ok(()) if self.method.has_deadline() => {
                    let call = Box::pin(self.contained(&arrival, message));
                    timed(&*self.port, arrival.deadline, call).await
                }
                Ok(()) => self.contained(&arrival, message).await,
                Err(status) => HandlerOutcome::Failed(status),
            };
            self.port.finish(arrival.call, outcome);
        }))
    }
}

impl<S, H, Req, Resp, C, D> Unary<S, H, Req, Resp, C, D>
where
    H: AsyncFn(&S, Request<'_, Req>) -> Result<Response<Resp>, Status>,
    Resp: 'static,
    D: Codec<Resp>,
{
    /// Runs the call. If the handler panics, the call fails with [`Status::internal`].
    async fn contained(&self, arrival: &Arrival, message: Req) -> HandlerOutcome {
        let host = TaskHost { port: &*self.port, peer: arrival.peer };
        let context = CallContext::new(&self.method, arrival.call, &host)
            .with_extension(arrival.deadline, arrival.metadata.as_ref());
        let mut call = pin!(self.run(&context, message));
        poll_fn(|cx| {
            // As with synchronous handlers, the user has to keep the service consistent after a
            // panic.
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            polled.unwrap_or_else(|panic| Poll::Ready(panicked(&context, &*panic)))
        })
        .await
    }

    /// Runs the call inside its interceptors.
    async fn run(&self, context: &CallContext<'_>, message: Req) -> HandlerOutcome {
        let mut passage = match self.method.interceptors() {
            [] => None,
            _ => match Passage::enter(context) {
                Ok(passage) => Some(passage),
                Err(status) => return HandlerOutcome::Failed(status),
            },
        };
        let request = Request::received::<D, Resp>(message, context);
        let result = (self.handler)(&self.service, request).await;
        let outcome = returned::<D, Resp>(result, context);
        if let Some(passage) = &mut passage {
            passage.leave(outcome.as_result());
        }
        outcome
    }
}

/// Decodes the request of an asynchronous method.
pub(super) fn decoded<C: Codec<M>, M>(method: &MethodInfo, body: &[u8]) -> Result<M, Status> {
    check_size(method, body)?;
    // As in the handler, a panic of the codec ends only this call.
    let decoded = catch_unwind(AssertUnwindSafe(|| C::decode(body)));
    decoded.map_err(|panic| handler_panicked(method.full_name(), &*panic))?.map_err(malformed)
}

/// Runs the call at most until its deadline. Callers cancel calls when their own deadline passes,
/// but they do not know a deadline that the server has set.
pub(super) async fn timed(
    port: &dyn TaskPort,
    deadline: Instant,
    mut call: Pin<Box<impl Future<Output = HandlerOutcome>>>,
) -> HandlerOutcome {
    let mut timer = port.sleep(deadline);
    let ended = poll_fn(|cx| match call.as_mut().poll(cx) {
        Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
        Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
    });
    ended.await.unwrap_or_else(|| {
        // Dropping a handler's values may panic; the panic hook has reported it.
        drop(catch_unwind(AssertUnwindSafe(|| drop(call))));
        HandlerOutcome::Failed(late())
    })
}

/// The host of a task's call.
struct TaskHost<'a> {
    port: &'a dyn TaskPort,
    peer: Option<SocketAddr>,
}

impl CallHost for TaskHost<'_> {
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        self.port.buffer(len)
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats> {
        self.port.session_stats(call)
    }

    fn is_cancelled(&self) -> bool {
        // A cancelled call's task is dropped, so its handler never sees the cancellation.
        false
    }

    fn now(&self) -> Instant {
        self.port.now()
    }

    fn has_virtual_time(&self) -> bool {
        self.port.has_virtual_time()
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        self.port.sink()
    }

    fn cancel_flag(&self, call: RequestHandle) -> Arc<AtomicBool> {
        self.port.cancel_flag(call)
    }
}
