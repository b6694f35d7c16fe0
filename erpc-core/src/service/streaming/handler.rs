//! Adapter of a streaming handler: each stream is a task of the endpoint.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use super::{Incoming, Outgoing, Sink, Source};
use crate::buf::MsgBuf;
use crate::protocol::{ClientStats, RequestHandle};
use crate::service::arrival::Arrival;
use crate::service::detached::Nowhere;
use crate::service::info::MethodInfo;
use crate::service::interceptor::Passage;
use crate::service::panics::handler_panicked;
use crate::service::runtime::EndpointRuntime;
use crate::service::task::CallTask;
use crate::service::{CallContext, CallHost, Codec, MetadataRef, ReplySink, Request, Response};
use crate::status::Status;
use crate::stream::StreamResult;
use crate::time::Instant;

/// A handler's end of a stream.
pub(crate) trait ServerStream: Source + Sink {
    /// Sets the metadata of the handler's first message. Must be called before that message is
    /// sent.
    fn set_metadata(&self, metadata: MetadataRef<'_>);

    /// Ends the stream after its handler has ended, with the handler's result.
    fn finish(&self, end: StreamResult);

    /// Current state of the client's session.
    fn session_stats(&self) -> Option<ClientStats>;

    /// The current time of the endpoint's clock.
    fn now(&self) -> Instant;
}

/// A streaming method at one endpoint.
pub(crate) trait StreamMethod {
    /// Creates the task of a stream. Costs one allocation, for the task.
    fn start(self: Rc<Self>, arrival: Arrival, stream: Rc<dyn ServerStream>) -> CallTask;
}

/// Creates a streaming method for one endpoint.
pub(in crate::service) type StreamMaker =
    dyn Fn(&Arc<MethodInfo>, Option<&Rc<EndpointRuntime>>) -> Rc<dyn StreamMethod> + Send + Sync;

/// Runs one kind of handler on a stream. The kinds differ in their arguments and results.
pub(in crate::service) trait Shape<S, H, Req, Resp, C, D>: 'static {
    async fn run(
        handler: &H,
        service: &S,
        context: &CallContext<'_>,
        stream: Rc<dyn ServerStream>,
    ) -> Result<(), Status>;
}

/// One request, many responses.
pub(in crate::service) enum ServerStreaming {}
/// Many requests, one response.
pub(in crate::service) enum ClientStreaming {}
/// Many requests, many responses.
pub(in crate::service) enum BidiStreaming {}

impl<S, H, Req, Resp, C, D> Shape<S, H, Req, Resp, C, D> for ServerStreaming
where
    H: AsyncFn(&S, Request<'_, Req>, Outgoing<Resp>) -> Result<(), Status>,
    C: Codec<Req>,
    D: Codec<Resp>,
    Resp: 'static,
{
    async fn run(
        handler: &H,
        service: &S,
        context: &CallContext<'_>,
        stream: Rc<dyn ServerStream>,
    ) -> Result<(), Status> {
        let (mut incoming, out) = ends::<Req, Resp, C, D>(context, stream);
        let request = incoming.next().await?;
        let request = request.ok_or_else(|| Status::invalid_argument("the request is missing"))?;
        drop(incoming);
        handler(service, Request::received::<D, Resp>(request, context), out).await
    }
}

impl<S, H, Req, Resp, C, D> Shape<S, H, Req, Resp, C, D> for ClientStreaming
where
    H: AsyncFn(&S, Request<'_, Incoming<Req>>) -> Result<Response<Resp>, Status>,
    C: Codec<Req>,
    D: Codec<Resp>,
    Resp: 'static,
{
    async fn run(
        handler: &H,
        service: &S,
        context: &CallContext<'_>,
        stream: Rc<dyn ServerStream>,
    ) -> Result<(), Status> {
        let (incoming, out) = ends::<Req, Resp, C, D>(context, Rc::clone(&stream));
        let response = handler(service, Request::received::<D, Resp>(incoming, context)).await?;
        if !response.metadata().is_empty() {
            stream.set_metadata(response.metadata());
        }
        match response.into_message() {
            Some(message) => Ok(out.send(message).await?),
            None => Err(Status::internal("the response to a stream cannot be deferred")),
        }
    }
}

impl<S, H, Req, Resp, C, D> Shape<S, H, Req, Resp, C, D> for BidiStreaming
where
    H: AsyncFn(&S, Request<'_, Incoming<Req>>, Outgoing<Resp>) -> Result<(), Status>,
    C: Codec<Req>,
    D: Codec<Resp>,
    Resp: 'static,
{
    async fn run(
        handler: &H,
        service: &S,
        context: &CallContext<'_>,
        stream: Rc<dyn ServerStream>,
    ) -> Result<(), Status> {
        let (incoming, out) = ends::<Req, Resp, C, D>(context, stream);
        handler(service, Request::received::<D, Resp>(incoming, context), out).await
    }
}

/// The reading and the writing end of a stream, with types.
fn ends<Req, Resp, C: Codec<Req>, D: Codec<Resp>>(
    context: &CallContext<'_>,
    stream: Rc<dyn ServerStream>,
) -> (Incoming<Req>, Outgoing<Resp>) {
    let method = context.info();
    let incoming = Incoming::new::<C>(Rc::clone(&stream) as _, method.max_request());
    (incoming, Outgoing::new::<D>(stream as _, method.max_response()))
}

/// A method with a handler of shape `K`.
struct Streaming<K, S, H, Req, Resp, C, D> {
    method: Arc<MethodInfo>,
    service: Arc<S>,
    handler: Arc<H>,
    types: PhantomData<Types<K, Req, Resp, C, D>>,
}

type Types<K, Req, Resp, C, D> = fn(Req) -> (Resp, K, C, D);

/// Wraps a typed handler of shape `K` into a [`StreamMaker`].
pub(in crate::service) fn streams<K, S, H, Req, Resp, C, D>(
    service: Arc<S>,
    handler: H,
) -> Arc<StreamMaker>
where
    K: Shape<S, H, Req, Resp, C, D>,
    S: Send + Sync + 'static,
    H: Send + Sync + 'static,
    Req: 'static,
    Resp: 'static,
    C: 'static,
    D: 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |method, _| {
        Rc::new(Streaming::<K, S, H, Req, Resp, C, D> {
            method: Arc::clone(method),
            service: Arc::clone(&service),
            handler: Arc::clone(&handler),
            types: PhantomData,
        }) as Rc<dyn StreamMethod>
    })
}

impl<K, S, H, Req, Resp, C, D> StreamMethod for Streaming<K, S, H, Req, Resp, C, D>
where
    K: Shape<S, H, Req, Resp, C, D>,
    S: 'static,
    H: 'static,
    Req: 'static,
    Resp: 'static,
    C: 'static,
    D: 'static,
{
    fn start(self: Rc<Self>, arrival: Arrival, stream: Rc<dyn ServerStream>) -> CallTask {
        Box::pin(async move {
            let end = self.contained(&arrival, &stream).await;
            stream.finish(end);
        })
    }
}

impl<K, S, H, Req, Resp, C, D> Streaming<K, S, H, Req, Resp, C, D>
where
    K: Shape<S, H, Req, Resp, C, D>,
{
    /// Runs the handler. If the handler panics, the stream ends with [`Status::internal`].
    async fn contained(&self, arrival: &Arrival, stream: &Rc<dyn ServerStream>) -> StreamResult {
        let host = StreamHost { stream: &**stream, peer: arrival.peer };
        let context = CallContext::new(&self.method, arrival.call, &host)
            .with_extension(arrival.deadline, arrival.metadata.as_ref());
        let mut call = pin!(self.run(&context, Rc::clone(stream)));
        poll_fn(|cx| {
            // As with synchronous handlers, the user has to keep the service consistent after a
            // panic.
            let polled = catch_unwind(AssertUnwindSafe(|| call.as_mut().poll(cx)));
            polled.unwrap_or_else(|panic| {
                Poll::Ready(Err(handler_panicked(self.method.full_name(), &*panic)))
            })
        })
        .await
    }

    /// Runs the handler inside its interceptors.
    async fn run(&self, context: &CallContext<'_>, stream: Rc<dyn ServerStream>) -> StreamResult {
        let mut passage = match self.method.interceptors() {
            [] => None,
            _ => Some(Passage::enter(context)?),
        };
        let end = K::run(&self.handler, &self.service, context, stream).await;
        if let Some(passage) = &mut passage {
            passage.leave(end.as_ref().copied());
        }
        end
    }
}

/// The host of a stream's call.
struct StreamHost<'a> {
    stream: &'a dyn ServerStream,
    peer: Option<SocketAddr>,
}

impl CallHost for StreamHost<'_> {
    fn buffer(&self, _: usize) -> Result<MsgBuf, Status> {
        Err(Status::internal("a stream has no response buffer"))
    }

    fn peer(&self) -> Option<SocketAddr> {
        self.peer
    }

    fn session_stats(&self, _: &RequestHandle) -> Option<ClientStats> {
        self.stream.session_stats()
    }

    fn is_cancelled(&self) -> bool {
        // A cancelled stream's task is dropped, so its handler never sees the cancellation.
        false
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        Arc::new(Nowhere)
    }
}
