//! One server of a channel.

use std::cell::{Cell, RefCell};
use std::rc::{Rc, Weak};
use std::sync::Arc;

use super::balance::next_turn;
use super::balancer::Balancer;
use super::health::{HealthWatch, Openings};
use crate::calling::link::{Link, LinkPhase};
use crate::calling::plan::SessionSource;
use crate::client::link_guard::LinkGuard;
use crate::client::stream::pool::StreamLoad;
use crate::endpoint::parts::EndpointParts;
use crate::executor::sleep::Sleep;
use crate::executor::tasks::TaskId;
use crate::log;
use crate::mutants::mutant;
use crate::protocol::Cause;
use crate::time::Instant;
use crate::transport::Transport;

/// The current state of a channel's server; see
/// [`Channel::backends`](crate::client::channel::Channel::backends).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct BackendStats<R> {
    /// The server's address.
    pub peer: R,
    /// Number of open sessions.
    pub sessions: usize,
    /// Number of calls on these sessions, plus streams, that have not ended.
    pub calls: u32,
    /// Longest request in bytes that the server accepts on these sessions. `None` if no session is
    /// open, and within handlers and callbacks.
    pub max_request: Option<u32>,
}

/// A server and the tasks that keep its sessions open. The tasks end when the backend is dropped.
pub(crate) struct Backend<T: Transport> {
    endpoint: Rc<EndpointParts<T>>,
    peer: T::Route,
    /// The open sessions. A session that has just closed stays here until its task has run.
    open: RefCell<Vec<Rc<Link<T::Route>>>>,
    turn: Cell<usize>,
    /// Number of sessions whose first attempt to open is in progress. These sessions may open soon.
    /// An attempt is a first one at the start of the backend, and after the session was open for at
    /// least the base of the backoff. Every other attempt follows a failure.
    trying: Cell<usize>,
    tasks: RefCell<Vec<TaskId>>,
    /// The load of streams, which have sessions of their own.
    streams: StreamLoad,
    /// Why the server last stopped getting calls: a session could not be opened, a session ended,
    /// or the server does not serve.
    failure: Cell<Option<Cause>>,
    health: Cell<Health>,
    openings: Rc<Openings>,
}

/// What a server has reported about the service.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Health {
    /// The channel does not ask, or the server serves the service.
    Serving,
    /// The server has not reported yet.
    Unknown,
    NotServing,
}

impl<T: Transport> Backend<T> {
    /// Starts the tasks that keep `sessions` sessions to `peer` open.
    pub(crate) fn start(balancer: &Rc<Balancer<T>>, peer: T::Route, sessions: usize) -> Rc<Self> {
        let endpoint = balancer.endpoint();
        let backend = Rc::new(Self {
            endpoint: Rc::clone(endpoint),
            peer,
            open: RefCell::default(),
            turn: Cell::new(0),
            trying: Cell::new(sessions),
            tasks: RefCell::default(),
            streams: balancer.streams().load(peer),
            failure: Cell::new(None),
            health: Cell::new(balancer.health().map_or(Health::Serving, |_| Health::Unknown)),
            openings: Rc::default(),
        });
        for _ in 0..sessions {
            let keeper = SessionKeeper {
                endpoint: Rc::clone(endpoint),
                balancer: Rc::downgrade(balancer),
                backend: Rc::downgrade(&backend),
                peer,
            };
            backend.tasks.borrow_mut().push(endpoint.scheduler().spawn_internal(keeper.keep()));
        }
        if let Some(service) = balancer.health() {
            let watch = HealthWatch {
                endpoint: Rc::clone(endpoint),
                balancer: Rc::downgrade(balancer),
                backend: Rc::downgrade(&backend),
                openings: Rc::clone(&backend.openings),
                service: Arc::clone(service),
            };
            backend.tasks.borrow_mut().push(endpoint.scheduler().spawn_internal(watch.run()));
        }
        backend
    }

    pub(crate) fn peer(&self) -> T::Route {
        self.peer
    }

    fn is_trying(&self) -> bool {
        self.trying.get() > 0
    }

    /// Whether the server gets calls.
    pub(super) fn is_ready(&self) -> bool {
        self.is_open() && self.health.get() == Health::Serving
    }

    /// Whether the server gets calls, or may soon get calls. A backend that has just lost its
    /// sessions counts as open until its task has run.
    pub(super) fn may_serve(&self) -> bool {
        self.is_trying() || self.is_open() && self.health.get() != Health::NotServing
    }

    /// Sets what the server has reported.
    pub(super) fn set_health(self: &Rc<Self>, health: Health, balancer: &Balancer<T>) {
        if self.health.replace(health) == health {
            return;
        }
        match health {
            Health::Serving => balancer.opened(self),
            Health::Unknown => balancer.unready(self),
            Health::NotServing => balancer.not_serving(self),
        }
    }

    pub(crate) fn is_open(&self) -> bool {
        !self.open.borrow().is_empty()
    }

    /// The server's load: calls in progress on the open sessions, plus streams.
    #[inline]
    pub(crate) fn load(&self) -> u32 {
        let calls: u32 = self.open.borrow().iter().map(|link| link.calls()).sum();
        calls + self.streams.streams()
    }

    pub(crate) fn stats(&self) -> BackendStats<T::Route> {
        let open = self.open.borrow();
        let open = open.iter().filter(|link| link.phase() == LinkPhase::Open);
        let sessions = open.clone().count();
        let limit = |link: &Rc<Link<T::Route>>| {
            let stats = self.endpoint.rpc()?.context().session_stats(link.id()?)?;
            Some(stats.max_request)
        };
        let max_request = open.filter_map(limit).min();
        BackendStats { peer: self.peer, sessions, calls: self.load(), max_request }
    }

    /// An open session, in round robin. `None` if no session is open.
    #[inline]
    pub(crate) fn session(&self) -> Option<Rc<Link<T::Route>>> {
        let open = self.open.borrow();
        let turn = next_turn(&self.turn, open.len());
        // A session that has just closed is in the list until its task has run.
        let is_open = |link: &&Rc<Link<T::Route>>| link.phase() == LinkPhase::Open;
        let session = open.get(turn).filter(is_open);
        session.or_else(|| open.iter().find(is_open)).cloned()
    }

    pub(crate) fn has(&self, link: &Rc<Link<T::Route>>) -> bool {
        self.open.borrow().iter().any(|open| Rc::ptr_eq(open, link))
    }

    /// Records why the server stopped getting calls.
    pub(super) fn failed(&self, cause: Cause) {
        self.failure.set(Some(cause));
    }

    /// Why the server last stopped getting calls; `None` if that has not happened.
    pub(super) fn failure(&self) -> Option<Cause> {
        self.failure.get()
    }

    fn tried(&self) {
        self.trying.set(self.trying.get().saturating_sub(1));
    }
}

impl<T: Transport> Drop for Backend<T> {
    fn drop(&mut self) {
        for task in self.tasks.take() {
            self.endpoint.scheduler().executor().abort(task);
        }
    }
}

/// Keeps one session open: opens it, waits for its end, and opens it again.
struct SessionKeeper<T: Transport> {
    endpoint: Rc<EndpointParts<T>>,
    balancer: Weak<Balancer<T>>,
    backend: Weak<Backend<T>>,
    peer: T::Route,
}

impl<T: Transport> SessionKeeper<T> {
    async fn keep(self) {
        let (mut failures, mut trying) = (0, true);
        // When the last session ended, and the number of attempts that failed since.
        let mut lost: Option<(Instant, u32)> = None;
        loop {
            let channel = Weak::clone(&self.balancer) as Weak<dyn SessionSource<T::Route>>;
            let session = LinkGuard::open_for(&self.endpoint, self.peer, channel);
            let link = Rc::clone(session.link());
            let executor = self.endpoint.scheduler().executor();
            let phase = link.after(LinkPhase::Opening, executor).await;
            let Some(KeeperTarget { balancer, backend }) = self.target() else { return };
            if std::mem::take(&mut trying) {
                backend.tried();
            }
            if let LinkPhase::Closed(cause) = phase {
                failures += 1;
                lost = lost.map(|(at, attempts)| (at, attempts + 1));
                balancer.failed(&backend, cause);
                // A channel that was dropped ends although sessions of it pause.
                drop((balancer, backend));
            } else {
                let opened = self.endpoint.scheduler().now();
                // If another session is open, the last report holds: if the server has restarted,
                // the watch itself ends.
                let is_first = !backend.is_open();
                backend.open.borrow_mut().push(Rc::clone(&link));
                backend.openings.count(is_first, executor);
                if let Some((at, attempts)) = lost.take() {
                    log::reconnected(opened, &self.peer, opened - at, attempts);
                    balancer.reconnected();
                }
                balancer.opened(&backend);
                drop((balancer, backend));
                let phase = link.after(LinkPhase::Open, executor).await;
                let Some(KeeperTarget { balancer, backend }) = self.target() else { return };
                backend.open.borrow_mut().retain(|open| !Rc::ptr_eq(open, &link));
                let base = balancer.backoff().base;
                // The calls of a session whose server shuts down go on without this backend.
                let cause = match phase {
                    LinkPhase::Draining => Cause::PeerDraining,
                    LinkPhase::Closed(cause) => cause,
                    LinkPhase::Opening | LinkPhase::Open => return,
                };
                // A server that accepts sessions only to end them is tried again only after a
                // pause.
                let now = self.endpoint.scheduler().now();
                lost = Some((now, 0));
                if now - opened < base {
                    failures += 1;
                } else {
                    failures = if mutant!(FailuresKept) { failures } else { 0 };
                    if !mutant!(NotTryingAgain) {
                        trying = true;
                        backend.trying.set(backend.trying.get() + 1);
                    }
                }
                balancer.lost(&backend, cause);
            }
            drop(session);
            self.pause(failures).await;
        }
    }

    /// `None` if the channel or the backend was dropped.
    fn target(&self) -> Option<KeeperTarget<T>> {
        Some(KeeperTarget { balancer: self.balancer.upgrade()?, backend: self.backend.upgrade()? })
    }

    async fn pause(&self, failures: u32) {
        let Some(backoff) = self.balancer.upgrade().map(|balancer| balancer.backoff()) else {
            return;
        };
        if failures > 0 {
            let pause = backoff.pause(failures, self.endpoint.scheduler().random());
            Sleep::new(self.endpoint.scheduler(), self.endpoint.scheduler().now() + pause).await;
        }
    }
}

/// The owners of a kept session. The task holds these references only while it updates the owners,
/// so that it does not keep them alive.
struct KeeperTarget<T: Transport> {
    balancer: Rc<Balancer<T>>,
    backend: Rc<Backend<T>>,
}
