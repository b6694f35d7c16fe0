//! Methods whose handlers run in tokio.

use std::sync::Arc;

use super::entry::{Place, Run};
use super::{MethodCollision, Routes};
use crate::service::runtime::Runtime;
use crate::service::runtime::stream::{bidi_streams, client_streams, server_streams};
use crate::service::runtime::task::runtime_tasks;
use crate::service::{Codec, Method, Response, SharedIncoming, SharedOutgoing, SharedRequest};
use crate::status::Status;

impl Routes {
    /// Sets the tokio runtime that runs the handlers of [`Routes::unary_tokio`] and its kin. Needs
    /// the feature `tokio`.
    #[cfg(feature = "tokio")]
    pub fn tokio(&mut self, runtime: ::tokio::runtime::Handle) {
        self.runtime = Some(Arc::new(runtime));
    }

    /// The runtime that runs handlers.
    pub(crate) fn runtime(&self) -> Option<&Arc<dyn Runtime>> {
        self.runtime.as_ref()
    }

    /// Adds a method whose asynchronous `handler` runs as a task of a tokio runtime. The handler's
    /// state is `service`.
    ///
    /// The handler may use everything that needs the runtime, such as `tokio::time::sleep`. Its
    /// future is `Send`. If the caller cancels the call or is gone, or the deadline passes, the
    /// future is dropped at its current `await`, soon after. Without a [runtime](Routes::tokio),
    /// calls are answered
    /// [`Code::FailedPrecondition`](crate::status::Code::FailedPrecondition).
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
    pub fn unary_tokio<S, Req, Resp, C, D, F>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl Fn(Arc<S>, SharedRequest<Req>) -> F + Send + Sync + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: Send + 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
        F: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let tasks = runtime_tasks::<S, Req, Resp, C, D, F>(Arc::clone(service), handler);
        self.insert(&method, Run::Task(Place::Runtime, tasks))
    }

    /// Adds a method whose asynchronous `handler` answers one request with a stream of messages, as
    /// a task of a tokio runtime; otherwise like [`Routes::unary_tokio`]. The stream ends when the
    /// handler returns, with the handler's status.
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
    pub fn server_streaming_tokio<S, Req, Resp, C, D, F>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl Fn(Arc<S>, SharedRequest<Req>, SharedOutgoing<Resp>) -> F + Send + Sync + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: Send + 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let streams = server_streams::<S, Req, Resp, C, D, F>(Arc::clone(service), handler);
        self.insert(&method, Run::Stream(Place::Runtime, streams))
    }

    /// Adds a method whose asynchronous `handler` reads a stream of messages and answers with one;
    /// otherwise like [`Routes::server_streaming_tokio`]. The handler may answer before it has read
    /// all messages.
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
    pub fn client_streaming_tokio<S, Req, Resp, C, D, F>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl Fn(Arc<S>, SharedRequest<SharedIncoming<Req>>) -> F + Send + Sync + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
        F: Future<Output = Result<Response<Resp>, Status>> + Send + 'static,
    {
        let streams = client_streams::<S, Req, Resp, C, D, F>(Arc::clone(service), handler);
        self.insert(&method, Run::Stream(Place::Runtime, streams))
    }

    /// Adds a method whose asynchronous `handler` reads and sends a stream of messages, in any
    /// order; otherwise like [`Routes::server_streaming_tokio`].
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
    pub fn bidi_streaming_tokio<S, Req, Resp, C, D, F>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl Fn(Arc<S>, SharedRequest<SharedIncoming<Req>>, SharedOutgoing<Resp>) -> F
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
        F: Future<Output = Result<(), Status>> + Send + 'static,
    {
        let streams = bidi_streams::<S, Req, Resp, C, D, F>(Arc::clone(service), handler);
        self.insert(&method, Run::Stream(Place::Runtime, streams))
    }
}
