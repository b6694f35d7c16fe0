//! Adapter of a streaming handler that runs in another runtime.
//!
//! The stream's task stays at the endpoint. It moves the client's batches to a pipe, which the
//! handler reads, and the handler's items from another pipe to the stream.

use std::future::poll_fn;
use std::marker::PhantomData;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::BufMut;

use super::{EndpointRuntime, SendFuture, SharedRequest, no_runtime, start};
use crate::service::arrival::Arrival;
use crate::service::detached::DetachedCall;
use crate::service::info::MethodInfo;
use crate::service::streaming::handler::{ServerStream, StreamMaker, StreamMethod};
use crate::service::streaming::pipe::{InPipe, InPump, OutPipe, OutPump, Reader};
use crate::service::streaming::shared::{SharedIncoming, SharedOutgoing};
use crate::service::task::CallTask;
use crate::service::{Codec, Metadata, Response};
use crate::status::Status;
use crate::stream::StreamResult;

/// The result of a handler: the response of a method that takes a stream and answers with one
/// message.
type StreamEnd = Result<Option<LastItem>, Status>;

/// A response, encoded.
struct LastItem {
    metadata: Metadata,
    message: Vec<u8>,
}

/// A streaming handler of any kind.
type StreamHandler<Req, Resp> = dyn Fn(Arc<DetachedCall>, SharedIncoming<Req>, SharedOutgoing<Resp>) -> SendFuture<StreamEnd>
    + Send
    + Sync;

/// Wraps a handler that answers one request with many messages.
pub(in crate::service) fn server_streams<S, Req, Resp, C, D, F>(
    service: Arc<S>,
    handler: impl Fn(Arc<S>, SharedRequest<Req>, SharedOutgoing<Resp>) -> F + Send + Sync + 'static,
) -> Arc<StreamMaker>
where
    S: Send + Sync + 'static,
    Req: Send + 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    streams::<Req, Resp, C, D>(move |call, mut incoming, out| {
        let (service, handler) = (Arc::clone(&service), Arc::clone(&handler));
        Box::pin(async move {
            let request = incoming.next().await?;
            let request =
                request.ok_or_else(|| Status::invalid_argument("the request is missing"))?;
            drop(incoming);
            handler(service, SharedRequest::received(request, call), out).await.map(|()| None)
        })
    })
}

/// Wraps a handler that answers many requests with one message.
pub(in crate::service) fn client_streams<S, Req, Resp, C, D, F>(
    service: Arc<S>,
    handler: impl Fn(Arc<S>, SharedRequest<SharedIncoming<Req>>) -> F + Send + Sync + 'static,
) -> Arc<StreamMaker>
where
    S: Send + Sync + 'static,
    Req: 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
    F: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    streams::<Req, Resp, C, D>(move |call, incoming, out| {
        let (service, handler) = (Arc::clone(&service), Arc::clone(&handler));
        Box::pin(async move {
            let response = handler(service, SharedRequest::received(incoming, call)).await?;
            let metadata = response.metadata().to_owned();
            match response.into_message() {
                Some(message) => Ok(Some(LastItem { metadata, message: out.encoded(&message)? })),
                None => Err(Status::internal("the response to a stream cannot be deferred")),
            }
        })
    })
}

/// Wraps a handler that reads and sends many messages.
pub(in crate::service) fn bidi_streams<S, Req, Resp, C, D, F>(
    service: Arc<S>,
    handler: impl Fn(Arc<S>, SharedRequest<SharedIncoming<Req>>, SharedOutgoing<Resp>) -> F
    + Send
    + Sync
    + 'static,
) -> Arc<StreamMaker>
where
    S: Send + Sync + 'static,
    Req: 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
    F: Future<Output = Result<(), Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    streams::<Req, Resp, C, D>(move |call, incoming, out| {
        let (service, handler) = (Arc::clone(&service), Arc::clone(&handler));
        Box::pin(async move {
            handler(service, SharedRequest::received(incoming, call), out).await.map(|()| None)
        })
    })
}

fn streams<Req: 'static, Resp: 'static, C: Codec<Req>, D: Codec<Resp>>(
    handler: impl Fn(
        Arc<DetachedCall>,
        SharedIncoming<Req>,
        SharedOutgoing<Resp>,
    ) -> SendFuture<StreamEnd>
    + Send
    + Sync
    + 'static,
) -> Arc<StreamMaker> {
    let handler: Arc<StreamHandler<Req, Resp>> = Arc::new(handler);
    Arc::new(move |method, runtime| {
        Rc::new(RuntimeStreaming::<Req, Resp, C, D> {
            method: Arc::clone(method),
            runtime: runtime.cloned(),
            handler: Arc::clone(&handler),
            codecs: PhantomData,
        }) as Rc<dyn StreamMethod>
    })
}

struct RuntimeStreaming<Req, Resp, C, D> {
    method: Arc<MethodInfo>,
    runtime: Option<Rc<EndpointRuntime>>,
    handler: Arc<StreamHandler<Req, Resp>>,
    codecs: PhantomData<fn(C) -> D>,
}

impl<Req, Resp, C, D> StreamMethod for RuntimeStreaming<Req, Resp, C, D>
where
    Req: 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
{
    fn start(self: Rc<Self>, arrival: Arrival, stream: Rc<dyn ServerStream>) -> CallTask {
        Box::pin(async move {
            let end = match &self.runtime {
                Some(runtime) => self.run(runtime, arrival, &stream).await,
                None => Err(no_runtime(&self.method)),
            };
            stream.finish(end);
        })
    }
}

impl<Req, Resp, C, D> RuntimeStreaming<Req, Resp, C, D>
where
    Req: 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
{
    async fn run(
        &self,
        runtime: &Rc<EndpointRuntime>,
        arrival: Arrival,
        stream: &Rc<dyn ServerStream>,
    ) -> StreamResult {
        let (batches, items) =
            (Arc::new(InPipe::new(Reader::Handler)), Arc::new(OutPipe::default()));
        let (most_in, most_out) = (self.method.max_request(), self.method.max_response());
        let incoming = SharedIncoming::new::<C>(Arc::clone(&batches), most_in, None);
        let out = SharedOutgoing::new::<D>(Arc::clone(&items), most_out, None);
        let mut reads = pin!(InPump::new(&batches).run(Rc::clone(stream) as _));
        let mut writes = pin!(OutPump::new(&items).run(Rc::clone(stream) as _));
        let call = Arc::new(DetachedCall::arrived(&self.method, arrival, stream.now()));
        let (handler, shared) = (Arc::clone(&self.handler), Arc::clone(&call));
        let mut handled = pin!(start(runtime, call, move || handler(shared, incoming, out)));
        let (mut is_reading, mut is_writing, mut end) = (true, true, None);
        // Moves items until the handler has ended and all of its items are put.
        let last = poll_fn(|cx| {
            is_reading = is_reading && reads.as_mut().poll(cx).is_pending();
            if end.is_none()
                && let Poll::Ready(result) = handled.as_mut().poll(cx)
            {
                end = Some(result);
                // The handler may have left its ends of the stream to other tasks.
                items.close();
                batches.close();
            }
            if is_writing && let Poll::Ready(written) = writes.as_mut().poll(cx) {
                if let Err(error) = written {
                    return Poll::Ready(Err(error.into()));
                }
                is_writing = false;
            }
            match is_writing {
                true => Poll::Pending,
                false => end.take().map_or(Poll::Pending, Poll::Ready),
            }
        });
        if let Some(LastItem { metadata, message }) = last.await? {
            if !metadata.is_empty() {
                stream.set_metadata(metadata.as_ref());
            }
            let mut put = |out: &mut &mut [u8]| out.put_slice(&message);
            poll_fn(|cx| stream.poll_put(cx, message.len(), &mut put)).await?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::task::{Context, Waker};
    use std::time::Duration;

    use super::super::Runtime;
    use super::*;
    use crate::buf::MsgBuf;
    use crate::protocol::{CallError, ClientStats, RequestHandle};
    use crate::service::{DecodeError, MetadataRef, Method, Prost, Sink, Source};
    use crate::stream::Batch;
    use crate::time::Instant;

    /// The time of the endpoint's virtual clock, far from that of the system's clock.
    const NOW: Instant = Instant::from_nanos(u64::MAX / 2);

    /// A runtime for tasks that do not wait.
    struct AtOnce;

    impl Runtime for AtOnce {
        fn spawn(&self, mut task: SendFuture<()>) {
            let poll = task.as_mut().poll(&mut Context::from_waker(Waker::noop()));
            assert!(poll.is_ready(), "the task waits");
        }
    }

    /// A stream without messages.
    struct Silent;

    impl Source for Silent {
        fn poll_batch(&self, _: &Context<'_>) -> Poll<Result<Option<Batch>, CallError>> {
            Poll::Ready(Ok(None))
        }

        fn batch_read(&self, _: MsgBuf) {}

        fn drop_reader(&self) {}

        fn malformed(&self, error: &DecodeError) -> CallError {
            panic!("{error}")
        }
    }

    impl Sink for Silent {
        fn poll_put(
            &self,
            _: &Context<'_>,
            _: usize,
            _: &mut dyn FnMut(&mut &mut [u8]),
        ) -> Poll<Result<(), CallError>> {
            Poll::Ready(Ok(()))
        }

        fn is_closed(&self) -> bool {
            false
        }

        fn drop_writer(&self) {}
    }

    impl ServerStream for Silent {
        fn set_metadata(&self, _: MetadataRef<'_>) {}

        fn finish(&self, end: StreamResult) {
            assert_eq!(end, Ok(()));
        }

        fn session_stats(&self) -> Option<ClientStats> {
            None
        }

        fn now(&self) -> Instant {
            NOW
        }
    }

    #[test]
    fn a_streams_deadline_is_as_far_away_as_on_the_endpoints_clock() {
        const SUM: Method<u32, u32> = Method::new("test.v1.Test/Sum");
        let left = Arc::new(Mutex::new(None));
        let handler = |left: Arc<Mutex<Option<Duration>>>,
                       request: SharedRequest<SharedIncoming<u32>>| async move {
            *left.lock().expect("no panic") = request.time_left();
            Ok(Response::new(0))
        };
        let make = client_streams::<_, u32, u32, Prost, Prost, _>(Arc::clone(&left), handler);
        let runtime = EndpointRuntime::new(Arc::new(AtOnce));
        let method = make(&Arc::new(MethodInfo::new(&SUM, &[])), Some(&runtime));
        let arrival = Arrival {
            call: RequestHandle::for_tests(),
            peer: None,
            deadline: NOW + Duration::from_secs(60),
            metadata: Metadata::new(),
        };
        let mut task = method.start(arrival, Rc::new(Silent));
        assert!(task.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
        let left = left.lock().expect("no panic").expect("the handler has seen a deadline");
        assert!((1..=60).contains(&left.as_secs()), "{left:?} of 60 s are left");
    }
}
