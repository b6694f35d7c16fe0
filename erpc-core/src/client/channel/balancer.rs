//! The servers of a channel, and the queue of calls that wait for a session.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::{Rc, Weak};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::backend::{Backend, BackendStats};
use super::balance::{Balance, next_turn};
use super::stale::StaleFlag;
use crate::calling::link::Link;
use crate::calling::plan::{NoSession, SessionSource};
use crate::calling::retry::{Backoff, RetryBudgets};
use crate::client::connect_error::{ConnectFailed, ConnectFailure, servers_and_reasons};
use crate::client::stream::pool::StreamPool;
use crate::endpoint::parts::EndpointParts;
use crate::executor::tasks::{TaskId, WakeSlot};
use crate::log;
use crate::mutants::mutant;
use crate::protocol::{Cause, NoServer};
use crate::transport::{Route, Transport};

/// Starts the task that asks the resolver. Called when the channel is first used.
pub(super) type StartResolving<T> = Box<dyn FnOnce(&Rc<Balancer<T>>)>;

/// See [`ChannelBuilder`](crate::client::channel::ChannelBuilder).
#[derive(Clone, Debug)]
pub(crate) struct BalancerSettings {
    pub(in crate::client) balance: Balance,
    pub(crate) sessions: usize,
    pub(crate) backoff: Backoff,
    pub(in crate::client) resolve_pause: Duration,
    pub(crate) queue_limit: usize,
    /// The service whose health decides which servers get calls.
    pub(in crate::client) health: Option<Arc<str>>,
}

impl Default for BalancerSettings {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            sessions: 1,
            backoff: Backoff { base: Duration::from_millis(50), cap: Duration::from_secs(5) },
            resolve_pause: Duration::from_secs(1),
            queue_limit: 1_024,
            health: None,
        }
    }
}

pub(in crate::client) struct Balancer<T: Transport> {
    me: Weak<Self>,
    endpoint: Rc<EndpointParts<T>>,
    settings: BalancerSettings,
    backends: RefCell<Vec<Rc<Backend<T>>>>,
    /// The backends that get calls ([`Backend::is_ready`]). A backend that has just lost its last
    /// session stays here until its task has run.
    ready: RefCell<Vec<Rc<Backend<T>>>>,
    turn: Cell<usize>,
    /// Keys of the calls that wait for a session, by ticket: in order of arrival.
    line: RefCell<BTreeMap<u64, usize>>,
    tickets: Cell<u64>,
    /// Tasks that wait in [`Balancer::ready`].
    waiters: RefCell<Vec<WakeSlot>>,
    /// The last failure to resolve or to connect, or the last end of a session.
    failure: RefCell<Option<ConnectProblem<T::Route>>>,
    start: Cell<Option<StartResolving<T>>>,
    asking: Cell<Option<TaskId>>,
    /// Whether the resolver has not answered yet.
    unresolved: Cell<bool>,
    stale: Rc<StaleFlag>,
    budgets: RetryBudgets,
    reconnects: Cell<u64>,
    /// Pool of further sessions to the servers, for streams.
    streams: Rc<StreamPool<T>>,
}

/// Why no server is available.
enum ConnectProblem<R> {
    /// The name could not be resolved.
    Resolve(String, io::Error),
    /// The name has no address.
    NoAddress(String),
    Session(R, Cause),
}

impl<R: Route> ConnectProblem<R> {
    fn error(&self) -> ConnectFailed {
        match self {
            Self::Session(peer, cause) => ConnectFailed::new(peer.to_string(), (*cause).into()),
            Self::Resolve(name, error) => {
                let error = io::Error::new(error.kind(), error.to_string());
                ConnectFailed::new(name.clone(), ConnectFailure::Resolve(error))
            }
            Self::NoAddress(name) => ConnectFailed::new(name.clone(), ConnectFailure::NoAddress),
        }
    }
}

impl<T: Transport> Balancer<T> {
    pub(crate) fn new(
        endpoint: Rc<EndpointParts<T>>,
        settings: BalancerSettings,
        start: StartResolving<T>,
    ) -> Rc<Self> {
        Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            endpoint,
            settings,
            backends: RefCell::default(),
            ready: RefCell::default(),
            turn: Cell::new(0),
            line: RefCell::default(),
            tickets: Cell::new(0),
            waiters: RefCell::default(),
            failure: RefCell::default(),
            start: Cell::new(Some(start)),
            asking: Cell::new(None),
            unresolved: Cell::new(true),
            stale: Rc::default(),
            budgets: RetryBudgets::default(),
            reconnects: Cell::new(0),
            streams: StreamPool::new(),
        })
    }

    #[inline]
    pub(in crate::client) fn endpoint(&self) -> &Rc<EndpointParts<T>> {
        &self.endpoint
    }

    pub(in crate::client) fn streams(&self) -> &Rc<StreamPool<T>> {
        &self.streams
    }

    pub(crate) fn budgets(&self) -> &RetryBudgets {
        &self.budgets
    }

    pub(crate) fn stale(&self) -> &Rc<StaleFlag> {
        &self.stale
    }

    pub(crate) fn backoff(&self) -> Backoff {
        self.settings.backoff
    }

    pub(super) fn health(&self) -> Option<&Arc<str>> {
        self.settings.health.as_ref()
    }

    pub(super) fn resolve_pause(&self) -> Duration {
        self.settings.resolve_pause
    }

    /// Stores the id of the task that asks the resolver, to abort it later.
    pub(crate) fn asks(&self, task: TaskId) {
        self.asking.set(Some(task));
    }

    /// A session to call on. Avoids the server of the session `avoid` if that session is still open
    /// and another server has an open session.
    #[inline]
    pub(in crate::client) fn pick(
        &self,
        avoid: Option<&Rc<Link<T::Route>>>,
    ) -> Result<Rc<Link<T::Route>>, NoSession> {
        let ready = self.ready.borrow();
        let count = ready.len();
        if count == 0 {
            drop(ready);
            return Err(self.no_session());
        }
        let first = self.choose(&ready);
        if avoid.is_none()
            && let Some(session) = ready[first].session()
        {
            return Ok(session);
        }
        let session =
            next_best(&ready, first, |backend| avoid.is_some_and(|link| backend.has(link)));
        drop(ready);
        session.ok_or_else(|| self.no_session())
    }

    /// A session to a server other than `peer`, if another one has an open session.
    #[cold]
    pub(in crate::client) fn pick_other(
        &self,
        peer: &T::Route,
    ) -> Result<Rc<Link<T::Route>>, NoSession> {
        let ready = self.ready.borrow();
        let session = if ready.is_empty() {
            None
        } else {
            next_best(&ready, self.choose(&ready), |backend| backend.peer() == *peer)
        };
        drop(ready);
        session.ok_or_else(|| self.no_session())
    }

    /// The index of the next server that the balance chooses. `ready` is not empty.
    #[inline]
    fn choose(&self, ready: &[Rc<Backend<T>>]) -> usize {
        let load = |index: usize| ready[index].load();
        let turn = next_turn(&self.turn, ready.len());
        let random = || self.endpoint.scheduler().random();
        self.settings.balance.choose(ready.len(), turn, load, random)
    }

    /// Why no session can be picked now. The first call of this function also starts the resolver's
    /// task.
    #[cold]
    fn no_session(&self) -> NoSession {
        if self.endpoint.is_closed() {
            return NoSession::Down(NoServer::new(Cause::Shutdown, Cause::Shutdown.to_string()));
        }
        if let Some(me) = self.me.upgrade()
            && let Some(start) = self.start.take()
        {
            start(&me);
        }
        // A backend may serve soon in three cases: it tries to open a session, its server has not
        // reported its health yet, or its sessions have just closed and its tasks have not run yet.
        let backends = self.backends.borrow();
        let soon = self.unresolved.get() || backends.iter().any(|b| b.may_serve());
        if soon { NoSession::Pending } else { NoSession::Down(self.no_server()) }
    }

    /// Why no server can be reached, with all addresses.
    fn no_server(&self) -> NoServer {
        match &*self.failure.borrow() {
            Some(ConnectProblem::Session(_, cause)) => {
                let backends = self.backends.borrow();
                let of = |backend: &Rc<Backend<T>>| (backend.peer(), backend.failure());
                NoServer::new(*cause, servers_and_reasons(backends.iter().map(of)))
            }
            _ => NoServer::new(Cause::Unresolved, self.connect_failed().to_string()),
        }
    }

    /// The calls in the queue, oldest first.
    fn waiting(&self) -> Vec<usize> {
        self.line.borrow().values().copied().collect()
    }

    /// Called when a session of `backend` has opened, or when its server has reported that it
    /// serves: queued calls start.
    pub(crate) fn opened(&self, backend: &Rc<Backend<T>>) {
        if !backend.is_ready() {
            return;
        }
        let mut ready = self.ready.borrow_mut();
        if mutant!(ReadyTwice) || !ready.iter().any(|other| Rc::ptr_eq(other, backend)) {
            ready.push(Rc::clone(backend));
        }
        drop(ready);
        if !mutant!(LineForgotten) {
            for key in self.waiting() {
                self.endpoint.calls().unline(key);
            }
        }
        self.tell();
    }

    /// Counts a session that opened in place of an earlier one.
    pub(super) fn reconnected(&self) {
        self.reconnects.set(self.reconnects.get() + 1);
    }

    pub(super) fn reconnects(&self) -> u64 {
        self.reconnects.get()
    }

    /// Handles the end of a session of `backend`.
    pub(crate) fn lost(&self, backend: &Rc<Backend<T>>, cause: Cause) {
        if !backend.is_ready() {
            self.unready(backend);
        }
        self.streams.sweep();
        self.failed(backend, cause);
    }

    /// The server of `backend` gets no calls for now.
    pub(super) fn unready(&self, backend: &Rc<Backend<T>>) {
        self.ready.borrow_mut().retain(|other| !Rc::ptr_eq(other, backend));
    }

    /// Called when the server of `backend` has reported that it does not serve, or does not report
    /// its health: it gets no calls.
    pub(super) fn not_serving(&self, backend: &Rc<Backend<T>>) {
        self.unready(backend);
        backend.failed(Cause::NotServing);
        self.fails(ConnectProblem::Session(backend.peer(), Cause::NotServing));
    }

    /// Called when a session of `backend` could not be opened or has ended. If no server is left
    /// that can be reached, queued calls fail, except those that wait for a server. The resolver is
    /// asked again.
    pub(crate) fn failed(&self, backend: &Backend<T>, cause: Cause) {
        backend.failed(cause);
        self.fails(ConnectProblem::Session(backend.peer(), cause));
        if !mutant!(FailureAsksNobody) {
            self.stale.set(self.endpoint.scheduler().executor());
        }
    }

    fn fails(&self, failure: ConnectProblem<T::Route>) {
        let before = self.failure.replace(Some(failure));
        drop(before);
        if !self.is_down() {
            return;
        }
        let waiting = self.waiting();
        if !waiting.is_empty() {
            let why = self.no_server();
            for key in waiting {
                if !self.endpoint.calls().waits_for_server(key) {
                    self.endpoint.calls().fail_in_line(key, why.clone());
                }
            }
        }
        self.tell();
    }

    /// Whether every server was tried and none can be reached.
    fn is_down(&self) -> bool {
        let up = |backend: &Rc<Backend<T>>| backend.may_serve();
        !self.unresolved.get() && !self.backends.borrow().iter().any(up)
    }

    fn tell(&self) {
        for waiter in self.waiters.take() {
            waiter.wake(self.endpoint.scheduler().executor());
        }
    }

    /// Handles the answer of the resolver. `name` returns what it resolves, for errors.
    pub(super) fn resolved(
        self: &Rc<Self>,
        found: io::Result<Vec<T::Route>>,
        name: impl FnOnce() -> String,
    ) {
        self.unresolved.set(false);
        match found {
            Ok(routes) if routes.is_empty() && !mutant!(EmptyAnswerTaken) => {
                self.unanswered(ConnectProblem::NoAddress(name()))
            }
            Ok(routes) => self.replace(&routes),
            Err(error) => self.unanswered(ConnectProblem::Resolve(name(), error)),
        }
    }

    /// Handles an error or an empty answer: the known servers stay, and the resolver is asked
    /// again.
    fn unanswered(&self, failure: ConnectProblem<T::Route>) {
        log::unresolved(self.endpoint.scheduler().now(), &failure.error());
        if self.backends.borrow().is_empty() {
            self.fails(failure);
        }
        self.stale.set(self.endpoint.scheduler().executor());
    }

    /// Makes the servers at `routes` the channel's only servers.
    fn replace(self: &Rc<Self>, routes: &[T::Route]) {
        let before = self.backends.take();
        let (kept, gone): (Vec<_>, Vec<_>) =
            before.into_iter().partition(|backend| routes.contains(&backend.peer()));
        self.ready.borrow_mut().retain(|backend| routes.contains(&backend.peer()));
        let mut now = kept;
        for route in routes {
            if !now.iter().any(|backend| backend.peer() == *route) {
                now.push(Backend::start(self, *route, self.settings.sessions));
            }
        }
        self.backends.replace(now);
        gone.iter().for_each(|backend| self.streams.forget(&backend.peer()));
        // Sessions of dropped backends are disconnected when their calls have ended.
        drop(gone);
    }

    /// See [`Channel::ready`](crate::client::channel::Channel::ready).
    pub(crate) async fn ready(&self) -> Result<(), ConnectFailed> {
        poll_fn(|cx| {
            match self.pick(None) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(NoSession::Down(_)) => return Poll::Ready(Err(self.connect_failed())),
                Err(NoSession::Pending) => {}
            }
            let waiter = self.endpoint.scheduler().executor().wake_slot(cx);
            let mut waiters = self.waiters.borrow_mut();
            // A task is stored once, however often it polls.
            if !waiters.iter().any(|there| there.is_same(&waiter)) {
                waiters.push(waiter);
            }
            Poll::Pending
        })
        .await
    }

    fn connect_failed(&self) -> ConnectFailed {
        match &*self.failure.borrow() {
            Some(problem) => problem.error(),
            None => ConnectFailed::new(String::new(), ConnectFailure::NoAddress),
        }
    }

    pub(crate) fn stats(&self) -> Vec<BackendStats<T::Route>> {
        self.backends.borrow().iter().map(|backend| backend.stats()).collect()
    }
}

impl<T: Transport> SessionSource<T::Route> for Balancer<T> {
    fn pick(&self, avoid: Option<&Rc<Link<T::Route>>>) -> Result<Rc<Link<T::Route>>, NoSession> {
        self.pick(avoid)
    }

    fn join_line(&self, key: usize) -> Option<u64> {
        let mut line = self.line.borrow_mut();
        if line.len() >= self.settings.queue_limit && !mutant!(LineUnbounded) {
            return None;
        }
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        line.insert(ticket, key);
        Some(ticket)
    }

    fn leave_line(&self, ticket: u64) {
        if !mutant!(TicketKept) {
            self.line.borrow_mut().remove(&ticket);
        }
    }

    fn budgets(&self) -> &RetryBudgets {
        &self.budgets
    }
}

/// A session of the first backend that has an open one, starting at index `first`. Prefers backends
/// that `is_avoided` does not name.
#[cold]
fn next_best<T: Transport>(
    ready: &[Rc<Backend<T>>],
    first: usize,
    is_avoided: impl Fn(&Backend<T>) -> bool,
) -> Option<Rc<Link<T::Route>>> {
    let all = ready[first..].iter().chain(&ready[..first]);
    let others = all.clone().filter(|backend| !is_avoided(backend));
    others.chain(all.clone()).find_map(|backend| backend.session())
}

impl<T: Transport> Drop for Balancer<T> {
    fn drop(&mut self) {
        if let Some(task) = self.asking.take() {
            self.endpoint.scheduler().executor().abort(task);
        }
    }
}
