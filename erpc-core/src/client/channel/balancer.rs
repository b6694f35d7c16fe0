//! The servers of a channel, and the calls that wait for one.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use crate::calling::link::Link;
use crate::calling::retry::Budget;
use crate::client::channel::backend::Backend;
use crate::client::channel::balance::next_turn;
use crate::client::channel::builder::Start;
use crate::client::channel::resolver::Doubt;
use crate::client::channel::{BackendStats, Balance, Unpicked};
use crate::client::session::{ConnectFailed, ConnectFailure};
use crate::client::stream::{StreamPool, is_same};
use crate::endpoint::state::Shared;
use crate::executor::tasks::{TaskId, WakeSlot};
use crate::protocol::Cause;
use crate::transport::Transport;

/// See [`ChannelBuilder`](crate::client::channel::ChannelBuilder).
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) balance: Balance,
    pub(crate) sessions: usize,
    pub(crate) backoff: (Duration, Duration),
    pub(crate) resolve_pause: Duration,
    pub(crate) queue_limit: usize,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            balance: Balance::default(),
            sessions: 1,
            backoff: (Duration::from_millis(50), Duration::from_secs(5)),
            resolve_pause: Duration::from_secs(1),
            queue_limit: 1_024,
        }
    }
}

pub(crate) struct Balancer<T: Transport> {
    shared: Rc<Shared<T>>,
    settings: Settings,
    backends: RefCell<Vec<Rc<Backend<T>>>>,
    /// Those that are open, as far as they have noticed.
    ready: RefCell<Vec<Rc<Backend<T>>>>,
    turn: Cell<usize>,
    /// Calls that wait for a session, in order.
    line: RefCell<BTreeMap<u64, usize>>,
    tickets: Cell<u64>,
    /// Who waits for [`Balancer::ready`].
    waiters: RefCell<Vec<WakeSlot>>,
    /// How it went wrong last.
    failure: RefCell<Option<Failure<T::Route>>>,
    start: Cell<Option<Start<T>>>,
    asking: Cell<Option<TaskId>>,
    /// Whether the resolver has not answered yet.
    unresolved: Cell<bool>,
    doubt: Rc<Doubt>,
    budget: Budget,
    reconnects: Cell<u64>,
    /// Further sessions to the servers, for streams.
    streams: Rc<StreamPool<T>>,
}

/// Why there is no server.
enum Failure<R> {
    Resolve(io::Error),
    NoAddress,
    Session(R, Cause),
}

impl<R> Failure<R> {
    fn cause(&self) -> Cause {
        match self {
            Self::Resolve(_) | Self::NoAddress => Cause::Unresolved,
            Self::Session(_, cause) => *cause,
        }
    }
}

impl<T: Transport> Balancer<T> {
    pub(crate) fn new(shared: Rc<Shared<T>>, settings: Settings, start: Start<T>) -> Rc<Self> {
        Rc::new(Self {
            shared,
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
            doubt: Rc::default(),
            budget: Budget::default(),
            reconnects: Cell::new(0),
            streams: StreamPool::new(),
        })
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Rc<Shared<T>> {
        &self.shared
    }

    pub(crate) fn streams(&self) -> &Rc<StreamPool<T>> {
        &self.streams
    }

    pub(crate) fn budget(&self) -> &Budget {
        &self.budget
    }

    pub(crate) fn doubt(&self) -> &Rc<Doubt> {
        &self.doubt
    }

    pub(crate) fn backoff(&self) -> (Duration, Duration) {
        self.settings.backoff
    }

    pub(crate) fn resolve_pause(&self) -> Duration {
        self.settings.resolve_pause
    }

    /// Keeps the task that asks the resolver, to end it.
    pub(crate) fn asks(&self, task: TaskId) {
        self.asking.set(Some(task));
    }

    /// A session to call on; of another server than `avoid` is of, if there is one.
    #[inline]
    pub(crate) fn pick(
        self: &Rc<Self>,
        avoid: Option<&Rc<Link<T::Route>>>,
    ) -> Result<Rc<Link<T::Route>>, Unpicked> {
        let ready = self.ready.borrow();
        let count = ready.len();
        if count == 0 {
            drop(ready);
            return Err(self.unpicked());
        }
        let load = |index: usize| ready[index].load();
        let turn = next_turn(&self.turn, count);
        let first = self.settings.balance.choose(count, turn, load, || self.shared.random());
        if avoid.is_none()
            && let Some(session) = ready[first].session()
        {
            return Ok(session);
        }
        let session = next_best(&ready, first, avoid);
        drop(ready);
        session.ok_or_else(|| self.unpicked())
    }

    /// No server is open.
    #[cold]
    fn unpicked(self: &Rc<Self>) -> Unpicked {
        if self.shared.is_closed() {
            return Unpicked::Down(Cause::Shutdown);
        }
        if let Some(start) = self.start.take() {
            start(self);
        }
        // A backend that is open has just lost its sessions and will notice.
        let backends = self.backends.borrow();
        let soon = self.unresolved.get() || backends.iter().any(|b| b.is_trying() || b.is_open());
        if soon { Unpicked::Soon } else { Unpicked::Down(self.cause()) }
    }

    fn cause(&self) -> Cause {
        self.failure.borrow().as_ref().map_or(Cause::Unresolved, Failure::cause)
    }

    /// Puts a call into the line; returns its ticket, `None` if the line is full.
    pub(crate) fn join_line(&self, key: usize) -> Option<u64> {
        let mut line = self.line.borrow_mut();
        if line.len() >= self.settings.queue_limit {
            return None;
        }
        let ticket = self.tickets.get();
        self.tickets.set(ticket + 1);
        line.insert(ticket, key);
        Some(ticket)
    }

    pub(crate) fn leave_line(&self, ticket: u64) {
        self.line.borrow_mut().remove(&ticket);
    }

    /// The calls in the line, first come first.
    fn waiting(&self) -> Vec<usize> {
        self.line.borrow().values().copied().collect()
    }

    /// A session of `backend` has opened.
    pub(crate) fn opened(&self, backend: &Rc<Backend<T>>) {
        let mut ready = self.ready.borrow_mut();
        if !ready.iter().any(|other| Rc::ptr_eq(other, backend)) {
            ready.push(Rc::clone(backend));
        }
        drop(ready);
        for key in self.waiting() {
            self.shared.unline(key);
        }
        self.tell();
    }

    /// A session has opened that takes the place of an earlier one.
    pub(crate) fn reconnected(&self) {
        self.reconnects.set(self.reconnects.get() + 1);
    }

    pub(crate) fn reconnects(&self) -> u64 {
        self.reconnects.get()
    }

    /// A session of `backend` is gone.
    pub(crate) fn lost(&self, backend: &Rc<Backend<T>>, cause: Cause) {
        if !backend.is_open() {
            self.ready.borrow_mut().retain(|other| !Rc::ptr_eq(other, backend));
        }
        self.streams.sweep();
        self.failed(backend.peer(), cause);
    }

    /// A session could not be opened, or has ended.
    pub(crate) fn failed(&self, peer: T::Route, cause: Cause) {
        self.fails(Failure::Session(peer, cause));
        self.doubt.raise(&self.shared);
    }

    fn fails(&self, failure: Failure<T::Route>) {
        let before = self.failure.replace(Some(failure));
        drop(before);
        if !self.is_down() {
            return;
        }
        let cause = self.cause();
        for key in self.waiting() {
            if !self.shared.is_patient(key) {
                self.shared.fail_in_line(key, cause);
            }
        }
        self.tell();
    }

    /// Whether all servers were tried in vain.
    fn is_down(&self) -> bool {
        let up = |backend: &Rc<Backend<T>>| backend.is_open() || backend.is_trying();
        !self.unresolved.get() && !self.backends.borrow().iter().any(up)
    }

    fn tell(&self) {
        for waiter in self.waiters.take() {
            waiter.wake(self.shared.executor());
        }
    }

    /// The resolver has answered.
    pub(crate) fn resolved(self: &Rc<Self>, found: io::Result<Vec<T::Route>>) {
        self.unresolved.set(false);
        match found {
            Ok(routes) if routes.is_empty() => self.unanswered(Failure::NoAddress),
            Ok(routes) => self.replace(&routes),
            Err(error) => self.unanswered(Failure::Resolve(error)),
        }
    }

    /// There is no answer to go by; what was known stays, and the resolver is asked again.
    fn unanswered(&self, failure: Failure<T::Route>) {
        if self.backends.borrow().is_empty() {
            self.fails(failure);
        }
        self.doubt.raise(&self.shared);
    }

    /// Goes on with the servers at `routes` and no others.
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
        // Its sessions are disconnected when their calls have ended.
        drop(gone);
    }

    /// See [`Channel::ready`](crate::client::channel::Channel::ready).
    pub(crate) async fn ready(self: &Rc<Self>) -> Result<(), ConnectFailed> {
        poll_fn(|cx| {
            match self.pick(None) {
                Ok(_) => return Poll::Ready(Ok(())),
                Err(Unpicked::Down(_)) => return Poll::Ready(Err(self.connect_failed())),
                Err(Unpicked::Soon) => {}
            }
            let waiter = self.shared.executor().wake_slot(cx);
            let mut waiters = self.waiters.borrow_mut();
            // Noted once, however often it is polled.
            if !waiters.iter().any(|there| is_same(there, &waiter)) {
                waiters.push(waiter);
            }
            Poll::Pending
        })
        .await
    }

    fn connect_failed(&self) -> ConnectFailed {
        match &*self.failure.borrow() {
            Some(Failure::Session(peer, cause)) => {
                ConnectFailed::new(peer.to_string(), (*cause).into())
            }
            Some(Failure::Resolve(error)) => {
                let error = io::Error::new(error.kind(), error.to_string());
                ConnectFailed::new(String::new(), ConnectFailure::Resolve(error))
            }
            Some(Failure::NoAddress) | None => {
                ConnectFailed::new(String::new(), ConnectFailure::NoAddress)
            }
        }
    }

    pub(crate) fn stats(&self) -> Vec<BackendStats<T::Route>> {
        self.backends.borrow().iter().map(|backend| backend.stats()).collect()
    }
}

/// A session of the backend at `first` or of one behind it; not at `avoid` if there is another.
#[cold]
fn next_best<T: Transport>(
    ready: &[Rc<Backend<T>>],
    first: usize,
    avoid: Option<&Rc<Link<T::Route>>>,
) -> Option<Rc<Link<T::Route>>> {
    let all = ready[first..].iter().chain(&ready[..first]);
    let others = all.clone().filter(|backend| !avoid.is_some_and(|link| backend.has(link)));
    others.chain(all.clone()).find_map(|backend| backend.session())
}

impl<T: Transport> Drop for Balancer<T> {
    fn drop(&mut self) {
        if let Some(task) = self.asking.take() {
            self.shared.executor().abort(task);
        }
    }
}
