//! An asynchronous handler's glue: each call is a task of the endpoint.
//!
//! The table of methods is shared by the threads of a server, tasks belong to one of them. So an
//! endpoint has a [`TaskMethod`] of its own for each asynchronous method, and a call shares nothing with
//! other threads, not even a reference count.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use super::handler::{check_size, malformed, outcome, panicked};
use super::info::MethodInfo;
use super::interceptor::{Passage, late};
use super::method::Types;
use super::reply::ReplySink;
use super::{CallContext, CallHost, Codec, HandlerOutcome, Metadata, Request, Response};
use crate::buf::MsgBuf;
use crate::protocol::{ClientStats, RequestHandle};
use crate::status::Status;
use crate::sync::atomic::AtomicBool;
use crate::time::Instant;

/// A call that runs. Ends by giving its outcome to the [`TaskPort`], and does not unwind but when it is
/// dropped.
pub(crate) type CallTask = Pin<Box<dyn Future<Output = ()>>>;

/// See [`TaskPort::sleep`].
pub(crate) type Timer = Pin<Box<dyn Future<Output = ()>>>;

/// Makes a method's tasks for one endpoint.
pub(super) type TaskMaker =
    dyn Fn(&Arc<MethodInfo>, &Rc<dyn TaskPort>) -> Rc<dyn TaskMethod> + Send + Sync;

/// What tasks want of the endpoint.
pub(crate) trait TaskPort {
    /// Whether a handler may still start on a request with that deadline; if not, what it is answered.
    fn in_time(&self, deadline: Instant) -> Result<(), Status>;

    /// What time it is.
    fn now(&self) -> Instant;

    /// An empty buffer for a response of at least `len` bytes.
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status>;

    /// Ends at that instant.
    fn sleep(&self, until: Instant) -> Timer;

    /// How the client's session is.
    fn session_stats(&self, call: &RequestHandle) -> Option<ClientStats>;

    /// Where deferred answers go.
    fn sink(&self) -> Arc<dyn ReplySink>;

    /// What is set when the client has given up a call whose answer is deferred.
    fn cancel_flag(&self, call: RequestHandle) -> Arc<AtomicBool>;

    /// Takes what came of a call.
    fn finish(&self, call: RequestHandle, outcome: HandlerOutcome);
}

/// A request for an asynchronous method.
pub(crate) struct Arrival {
    pub(crate) call: RequestHandle,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) deadline: Instant,
    pub(crate) metadata: Metadata,
}

/// An asynchronous method at one endpoint.
pub(crate) trait TaskMethod {
    /// The task of a call. Costs one allocation, for the task.
    ///
    /// # Errors
    /// The status that the caller is to get, if the request is not the method's.
    fn start(self: Rc<Self>, arrival: Arrival, body: &[u8]) -> Result<CallTask, Status>;
}

/// Erases a handler's types.
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
    Arc::new(move |method: &Arc<MethodInfo>, port: &Rc<dyn TaskPort>| {
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
        check_size(&self.method, body)?;
        let message = C::decode(body).map_err(malformed)?;
        Ok(Box::pin(async move {
            let outcome = match self.port.in_time(arrival.deadline) {
                Ok(()) if self.method.has_deadline() => self.timed(&arrival, message).await,
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
    /// The call, which ends at its deadline. Callers cancel late calls themselves; those that have been
    /// given their deadline here do not.
    async fn timed(&self, arrival: &Arrival, message: Req) -> HandlerOutcome {
        let mut timer = self.port.sleep(arrival.deadline);
        let mut call = Box::pin(self.contained(arrival, message));
        let ended = poll_fn(|cx| match call.as_mut().poll(cx) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => timer.as_mut().poll(cx).map(|()| None),
        });
        ended.await.unwrap_or_else(|| {
            // What a handler holds may panic when it is dropped; the panic hook has told.
            drop(catch_unwind(AssertUnwindSafe(|| drop(call))));
            HandlerOutcome::Failed(late())
        })
    }

    /// The call; a panic becomes its outcome.
    async fn contained(&self, arrival: &Arrival, message: Req) -> HandlerOutcome {
        let host = TaskHost { port: &*self.port, peer: arrival.peer };
        let context = CallContext::new(&self.method, arrival.call, &host)
            .with_extension(arrival.deadline, arrival.metadata.as_ref());
        let mut call = pin!(self.run(&context, message));
        poll_fn(|cx| {
            // As with synchronous handlers, the state of a service after a panic is its own affair.
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            polled.unwrap_or_else(|_panic| Poll::Ready(panicked(&context)))
        })
        .await
    }

    /// The call between its interceptors.
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
        let outcome = outcome::<D, Resp>(result, context);
        if let Some(passage) = &mut passage {
            passage.leave(outcome.as_result());
        }
        outcome
    }
}

/// Where a task runs.
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
        // Its task would be gone.
        false
    }

    fn now(&self) -> Instant {
        self.port.now()
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        self.port.sink()
    }

    fn cancel_flag(&self, call: RequestHandle) -> Arc<AtomicBool> {
        self.port.cancel_flag(call)
    }
}
