//! Watches the health of a channel's server.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::backend::{Backend, Health};
use super::balancer::Balancer;
use crate::client::stream::start::watch_peer;
use crate::endpoint::parts::EndpointParts;
use crate::executor::sleep::Sleep;
use crate::executor::tasks::Executor;
use crate::executor::waiters::Waiters;
use crate::health::{HealthCheckRequest, HealthCheckResponse, ServingStatus};
use crate::protocol::CallError;
use crate::service::Incoming;
use crate::status::Code;
use crate::transport::Transport;

/// How long a server that has accepted a session may take for its first report. A server that takes
/// longer counts as not serving until it reports: calls that wait for no server would hang
/// otherwise.
const FIRST_REPORT: Duration = Duration::from_secs(2);

/// Counts how often a backend has opened a session.
#[derive(Default)]
pub(super) struct Openings {
    count: Cell<OpeningCount>,
    waiters: RefCell<Waiters>,
}

#[derive(Clone, Copy, Default)]
struct OpeningCount {
    /// Sessions that opened while no other was open. Then the server may have restarted, so its
    /// last report may be out of date.
    first: u64,
    /// All sessions that opened.
    any: u64,
}

impl Openings {
    /// Counts an opening. `is_first`: no other session is open.
    pub(super) fn count(&self, is_first: bool, executor: &Executor) {
        let OpeningCount { first, any } = self.count.get();
        self.count.set(OpeningCount { first: first + u64::from(is_first), any: any + 1 });
        let waiters = self.waiters.take();
        waiters.wake(executor);
    }

    /// Waits until `is_over` is true for the openings so far.
    async fn until(&self, executor: &Executor, is_over: impl Fn(OpeningCount) -> bool) {
        poll_fn(|cx| {
            if is_over(self.count.get()) {
                return Poll::Ready(());
            }
            self.waiters.borrow_mut().add(executor, cx);
            Poll::Pending
        })
        .await
    }
}

/// Watches whether a server serves. Begins anew when the server may have restarted.
pub(super) struct HealthWatch<T: Transport> {
    pub(super) endpoint: Rc<EndpointParts<T>>,
    pub(super) balancer: Weak<Balancer<T>>,
    pub(super) backend: Weak<Backend<T>>,
    pub(super) openings: Rc<Openings>,
    pub(super) service: Arc<str>,
}

impl<T: Transport> HealthWatch<T> {
    pub(super) async fn run(self) {
        let executor = self.endpoint.scheduler().executor();
        self.openings.until(executor, |now| now.first > 0).await;
        let mut failures = 0;
        loop {
            let seen = self.openings.count.get();
            let Some(mut reports) = self.watch() else { return };
            let restarted = || self.openings.until(executor, move |now| now.first > seen.first);
            let ended = {
                let mut follow = pin!(self.follow(&mut reports, &mut failures));
                let mut restarted = pin!(restarted());
                poll_fn(|cx| match restarted.as_mut().poll(cx) {
                    Poll::Ready(()) => Poll::Ready(None),
                    Poll::Pending => follow.as_mut().poll(cx).map(Some),
                })
                .await
            };
            drop(reports);
            match ended {
                // The server may have restarted, so its last report may be out of date.
                None => self.set(Health::Unknown),
                // No watch shows that the server has restarted, perhaps as one that reports. Then
                // each session opens again, but the backend may not know yet that the others have
                // ended. So any opening counts.
                Some(Watched::Unsupported) => {
                    self.set(Health::Serving);
                    self.openings.until(executor, move |now| now.any > seen.any).await;
                }
                Some(Watched::Lost) => {
                    failures += 1;
                    self.set(Health::NotServing);
                    let Some(backoff) = self.balancer.upgrade().map(|balancer| balancer.backoff())
                    else {
                        return;
                    };
                    let scheduler = self.endpoint.scheduler();
                    let pause = backoff.pause(failures, scheduler.random());
                    let sleep = Sleep::new(scheduler, scheduler.now() + pause);
                    sleep.limit(restarted()).await.unwrap_or(());
                }
            }
        }
    }

    /// Starts to watch. `None` if the channel or the backend was dropped.
    fn watch(&self) -> Option<Incoming<HealthCheckResponse>> {
        let (balancer, backend) = (self.balancer.upgrade()?, self.backend.upgrade()?);
        let request = HealthCheckRequest { service: self.service.as_ref().to_owned() };
        Some(watch_peer(balancer.streams(), &self.endpoint, backend.peer(), &request))
    }

    /// Reads the reports until the stream ends.
    async fn follow(
        &self,
        reports: &mut Incoming<HealthCheckResponse>,
        failures: &mut u32,
    ) -> Watched {
        let scheduler = self.endpoint.scheduler();
        let limit = Sleep::new(scheduler, scheduler.now() + FIRST_REPORT);
        let mut first = limit.limit(reports.next()).await.ok();
        if first.is_none() {
            self.set(Health::NotServing);
        }
        loop {
            let next = match first.take() {
                Some(next) => next,
                None => reports.next().await,
            };
            match next {
                Ok(Some(report)) => {
                    *failures = 0;
                    self.set(match report.status() {
                        ServingStatus::Serving => Health::Serving,
                        _ => Health::NotServing,
                    });
                }
                Err(CallError::NoSuchMethod(_)) => return Watched::Unsupported,
                Err(error) if error.code() == Code::Unimplemented => return Watched::Unsupported,
                Ok(None) | Err(_) => return Watched::Lost,
            }
        }
    }

    fn set(&self, health: Health) {
        if let (Some(balancer), Some(backend)) = (self.balancer.upgrade(), self.backend.upgrade()) {
            backend.set_health(health, &balancer);
        }
    }
}

/// How a watch has ended.
enum Watched {
    /// The server does not report its health.
    Unsupported,
    /// The stream of reports has ended, although the server may report its health: for example, the
    /// server shuts down or cannot be reached.
    Lost,
}
