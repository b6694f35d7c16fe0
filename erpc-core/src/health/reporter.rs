//! The state of a server's services, and the service that reports it.

use std::collections::HashMap;
use std::fmt;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use super::{CHECK, HealthCheckRequest, HealthCheckResponse, ServingStatus, WATCH};
use crate::service::{MethodCollision, Mode, Outgoing, Request, Response, Routes, Service};
use crate::status::Status;

/// Reports whether a server's services serve. Cheap to clone; all clones are the same reporter. See
/// [`ServerBuilder::health`](crate::server::ServerBuilder::health).
///
/// ```
/// use erpc_core::health::{HealthReporter, ServingStatus};
///
/// let health = HealthReporter::new();
/// assert_eq!(health.status(""), ServingStatus::Serving);
/// health.set("pkg.Service", ServingStatus::NotServing);
/// assert_eq!(health.status("pkg.Service"), ServingStatus::NotServing);
/// ```
#[derive(Clone, Default)]
pub struct HealthReporter {
    shared: Arc<Mutex<HealthState>>,
}

struct HealthState {
    services: HashMap<String, ServingStatus>,
    /// The server shuts down: no service serves any more.
    ended: bool,
    /// Streams that wait for a change.
    watchers: HashMap<u64, Waker>,
    next_watcher: u64,
}

impl Default for HealthState {
    fn default() -> Self {
        Self {
            services: HashMap::from([(String::new(), ServingStatus::Serving)]),
            ended: false,
            watchers: HashMap::new(),
            next_watcher: 0,
        }
    }
}

impl HealthState {
    fn status(&self, service: &str) -> ServingStatus {
        match self.services.get(service) {
            None => ServingStatus::ServiceUnknown,
            Some(_) if self.ended => ServingStatus::NotServing,
            Some(status) => *status,
        }
    }
}

impl HealthReporter {
    /// A reporter that knows only the server as a whole, the service `""`, which serves.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the status of a service, by its full name, or of the server as a whole, `""`. Tells the
    /// clients that watch it.
    pub fn set(&self, service: &str, status: ServingStatus) {
        let before = self.state().services.insert(service.to_owned(), status);
        if before != Some(status) {
            self.tell();
        }
    }

    /// The status that clients see.
    #[must_use]
    pub fn status(&self, service: &str) -> ServingStatus {
        self.state().status(service)
    }

    /// Reports from now on that no service serves, and ends the streams of clients that watch. A
    /// server with this reporter does so when it begins to drain.
    pub fn shut_down(&self) {
        self.state().ended = true;
        self.tell();
    }

    /// Adds a service that serves, unless its status was set before.
    pub(crate) fn add(&self, service: &str) {
        self.state().services.entry(service.to_owned()).or_insert(ServingStatus::Serving);
    }

    fn state(&self) -> MutexGuard<'_, HealthState> {
        // Under the lock only an allocation can panic, and it leaves the state consistent.
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn tell(&self) {
        let watchers = std::mem::take(&mut self.state().watchers);
        watchers.into_values().for_each(Waker::wake);
    }

    fn check(
        &self,
        request: Request<'_, HealthCheckRequest>,
    ) -> Result<Response<HealthCheckResponse>, Status> {
        let service = &request.message().service;
        match self.status(service) {
            ServingStatus::ServiceUnknown => {
                Err(Status::not_found(format!("the server has no service {service}")))
            }
            status => Ok(Response::new(HealthCheckResponse { status: status.into() })),
        }
    }

    async fn watch(
        &self,
        request: Request<'_, HealthCheckRequest>,
        out: Outgoing<HealthCheckResponse>,
    ) -> Result<(), Status> {
        let service = request.into_message().service;
        let watcher = Watcher::new(self);
        let mut told = None;
        loop {
            let (status, ended) = poll_fn(|cx| watcher.poll_change(&service, told, cx)).await;
            if told != Some(status) {
                out.send(HealthCheckResponse { status: status.into() }).await?;
            }
            if ended {
                return Ok(());
            }
            told = Some(status);
        }
    }
}

/// A stream that waits for changes. Dropping it removes its waker.
struct Watcher<'r> {
    reporter: &'r HealthReporter,
    id: u64,
}

impl<'r> Watcher<'r> {
    fn new(reporter: &'r HealthReporter) -> Self {
        let mut state = reporter.state();
        let id = state.next_watcher;
        state.next_watcher += 1;
        Self { reporter, id }
    }

    /// Waits until the status of a service differs from `told`, or the server shuts down. Returns
    /// the status, and whether the server shuts down.
    fn poll_change(
        &self,
        service: &str,
        told: Option<ServingStatus>,
        cx: &Context<'_>,
    ) -> Poll<(ServingStatus, bool)> {
        // Cloning or dropping a waker may run any code, so the state must not be locked.
        let waker = cx.waker().clone();
        let mut state = self.reporter.state();
        let (status, ended) = (state.status(service), state.ended);
        let (outcome, unused) = if told != Some(status) || ended {
            (Poll::Ready((status, ended)), Some(waker))
        } else {
            (Poll::Pending, state.watchers.insert(self.id, waker))
        };
        drop(state);
        drop(unused);
        outcome
    }
}

impl Drop for Watcher<'_> {
    fn drop(&mut self) {
        let waker = self.reporter.state().watchers.remove(&self.id);
        // Dropping a waker may run any code; the state is no longer locked.
        drop(waker);
    }
}

impl Service for HealthReporter {
    const NAME: &'static str = "erpc.health.v1.Health";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(CHECK, Mode::Dispatch, &self, Self::check)?;
        routes.server_streaming(WATCH, &self, Self::watch)
    }
}

impl fmt::Debug for HealthReporter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HealthReporter").field("services", &self.state().services).finish()
    }
}

#[cfg(test)]
mod tests {
    use erpc_test_tools::limit::{secs, within};
    use erpc_test_tools::wakers::on_clone;

    use super::*;

    #[test]
    fn a_waker_may_use_the_reporter_while_it_is_cloned() {
        within(secs(10), || {
            let reporter = HealthReporter::new();
            let other = reporter.clone();
            let waker = on_clone(move || other.set("", ServingStatus::NotServing));
            let (watcher, cx) = (Watcher::new(&reporter), Context::from_waker(&waker));
            let change = watcher.poll_change("", Some(ServingStatus::Serving), &cx);
            assert_eq!(change, Poll::Ready((ServingStatus::NotServing, false)));
        });
    }
}
