//! The methods that an endpoint serves.

use std::rc::Rc;
use std::sync::Arc;

use super::worker::WorkerQueue;
use crate::service::{EndpointRuntime, Routes, StreamMethod, TaskMethod, TaskPort};

/// The methods that an endpoint serves.
pub(crate) struct Methods {
    pub(super) routes: Arc<Routes>,
    pub(super) workers: Option<WorkerQueue>,
    /// The runtime of handlers that run neither here nor on workers.
    pub(super) runtime: Option<Rc<EndpointRuntime>>,
    /// The asynchronous methods that do not stream, by index in `routes`.
    pub(super) tasks: Vec<Option<Rc<dyn TaskMethod>>>,
    /// The streaming methods, by index in `routes`.
    pub(super) streams: Vec<Option<Rc<dyn StreamMethod>>>,
}

impl Methods {
    pub(crate) fn new(
        routes: Arc<Routes>,
        workers: Option<WorkerQueue>,
        port: Rc<dyn TaskPort>,
    ) -> Self {
        let runtime = routes.runtime().map(|runtime| EndpointRuntime::new(Arc::clone(runtime)));
        let of_endpoint = runtime.as_ref();
        let tasks = routes.entries().map(|entry| entry.tasks(&port, of_endpoint)).collect();
        let streams = routes.entries().map(|entry| entry.streams(of_endpoint)).collect();
        Self { routes, workers, runtime, tasks, streams }
    }
}
