//! Adapter of a handler without streams that runs in another runtime.

use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;

use super::{EndpointRuntime, SharedRequest, no_runtime, start};
use crate::service::arrival::Arrival;
use crate::service::detached::DetachedCall;
use crate::service::handler::promised_elsewhere;
use crate::service::info::MethodInfo;
use crate::service::method::Types;
use crate::service::responder::Encoder;
use crate::service::task::{CallTask, TaskMaker, TaskMethod, TaskPort, decoded, timed};
use crate::service::{Codec, HandlerOutcome, Response};
use crate::status::Status;

/// Wraps a typed handler into a [`TaskMaker`].
pub(in crate::service) fn runtime_tasks<S, Req, Resp, C, D, F>(
    service: Arc<S>,
    handler: impl Fn(Arc<S>, SharedRequest<Req>) -> F + Send + Sync + 'static,
) -> Arc<TaskMaker>
where
    S: Send + Sync + 'static,
    Req: Send + 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
    F: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
{
    let handler = Arc::new(handler);
    Arc::new(move |method, port, runtime| {
        Rc::new(RuntimeUnary::<S, _, Req, Resp, C, D> {
            method: Arc::clone(method),
            port: Rc::clone(port),
            runtime: runtime.cloned(),
            service: Arc::clone(&service),
            handler: Arc::clone(&handler),
            types: PhantomData,
        }) as Rc<dyn TaskMethod>
    })
}

struct RuntimeUnary<S, H, Req, Resp, C, D> {
    method: Arc<MethodInfo>,
    port: Rc<dyn TaskPort>,
    runtime: Option<Rc<EndpointRuntime>>,
    service: Arc<S>,
    handler: Arc<H>,
    types: PhantomData<Types<Req, Resp, C, D>>,
}

impl<S, H, F, Req, Resp, C, D> TaskMethod for RuntimeUnary<S, H, Req, Resp, C, D>
where
    S: Send + Sync + 'static,
    H: Fn(Arc<S>, SharedRequest<Req>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    Req: Send + 'static,
    Resp: 'static,
    C: Codec<Req>,
    D: Codec<Resp>,
{
    fn start(self: Rc<Self>, arrival: Arrival, body: &[u8]) -> Result<CallTask, Status> {
        let runtime = self.runtime.clone().ok_or_else(|| no_runtime(&self.method))?;
        let message = decoded::<C, Req>(&self.method, body)?;
        Ok(Box::pin(async move {
            let (call, deadline) = (arrival.call, arrival.deadline);
            let outcome = match self.port.in_time(deadline) {
                Ok(()) => {
                    let started = self.started(&runtime, arrival, message);
                    match self.method.has_deadline() {
                        true => timed(&*self.port, deadline, Box::pin(started)).await,
                        false => started.await,
                    }
                }
                Err(status) => HandlerOutcome::Failed(status),
            };
            self.port.finish(call, outcome);
        }))
    }
}

impl<S, H, F, Req, Resp, C, D> RuntimeUnary<S, H, Req, Resp, C, D>
where
    S: Send + Sync + 'static,
    H: Fn(Arc<S>, SharedRequest<Req>) -> F + Send + Sync + 'static,
    F: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    Req: Send + 'static,
    Resp: 'static,
    D: Codec<Resp>,
{
    /// Starts the handler. The response is encoded where the handler runs.
    fn started(
        &self,
        runtime: &Rc<EndpointRuntime>,
        arrival: Arrival,
        message: Req,
    ) -> impl Future<Output = HandlerOutcome> + use<S, H, F, Req, Resp, C, D> {
        let call = Arc::new(DetachedCall::arrived(&self.method, arrival, self.port.now()));
        let request = SharedRequest::received(message, Arc::clone(&call));
        let (service, handler) = (Arc::clone(&self.service), Arc::clone(&self.handler));
        let limit = self.method.max_response();
        let handled = move || async move {
            let response = handler(service, request).await?;
            let message = response.message().ok_or_else(promised_elsewhere)?;
            Encoder::of::<D>().encode(message, response.metadata(), limit)
        };
        let result = start(runtime, call, handled);
        async move { result.await.into() }
    }
}
