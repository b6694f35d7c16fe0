//! The call of workload w4 as users make it: with endpoints, sessions and handlers, awaited in
//! tasks or with callbacks.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use erpc::service::Codec;
use erpc::transport::mem::MemTransport;
use erpc::{CallError, Endpoint, Session};

use super::messages::{Called, Checked, Keyed, Store};
use super::{Clock, Setup, Subject, Width};
use crate::failure::Failure;

/// A client and a server.
struct Endpoints {
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    clock: Clock,
    progress: Rc<Progress>,
    start: Start,
}

impl Endpoints {
    /// Runs a turn of the client and one of the server.
    #[inline(always)]
    fn turn(&mut self) {
        turn(&self.client, &self.server, &mut self.clock);
    }
}

#[inline(always)]
fn turn(client: &Endpoint<MemTransport>, server: &Endpoint<MemTransport>, clock: &mut Clock) {
    match clock.tick() {
        None => {
            client.run_once();
            server.run_once();
        }
        Some(now) => {
            client.run_once_at(now);
            server.run_once_at(now);
        }
    }
}

/// Starts the calls of a run.
type Start = Box<dyn Fn()>;

/// Progress of the calls.
#[derive(Default)]
struct Progress {
    /// The sessions for calls with callbacks. Empty if tasks make the calls: each task has its own
    /// handle of a session.
    sessions: Sessions,
    /// The key of the next call.
    next: Cell<u64>,
    /// One more than the key of the run's last call.
    end: Cell<u64>,
    /// Calls that have ended.
    ended: Cell<u64>,
    failure: RefCell<Option<Failure>>,
    /// Tasks that wait for the next run.
    resting: RefCell<Vec<Waker>>,
}

impl Progress {
    /// Claims the key of the next call. `None` if all calls of the run are made.
    #[inline]
    fn take(&self) -> Option<u64> {
        let key = self.next.get();
        if key == self.end.get() {
            return None;
        }
        self.next.set(key + 1);
        Some(key)
    }

    #[inline]
    fn ended<M: Checked>(&self, key: u64, result: &Result<M, CallError>) {
        self.ended.set(self.ended.get() + 1);
        match result {
            Ok(answer) if answer.is_answer(key) => {}
            Ok(_) => self.fail(format!("the answer for key {key} is wrong")),
            Err(error) => self.fail(format!("a call failed: {error}")),
        }
    }

    #[cold]
    fn fail(&self, failure: String) {
        self.end.set(self.next.get());
        self.failure.borrow_mut().get_or_insert(Failure::new(failure));
    }

    /// Whether a call is still to make or in flight.
    fn goes_on(&self) -> bool {
        self.ended.get() < self.end.get()
    }

    /// Waits until there are calls to make.
    async fn rest(&self) {
        poll_fn(|cx| {
            if self.next.get() < self.end.get() {
                return Poll::Ready(());
            }
            self.resting.borrow_mut().push(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }
}

impl Subject for Endpoints {
    fn run(&mut self, calls: u64) -> Result<(), Failure> {
        self.progress.end.set(self.progress.end.get() + calls);
        (self.start)();
        while self.progress.goes_on() {
            self.turn();
        }
        self.progress.failure.take().map_or(Ok(()), Err)
    }
}

type Sessions = Vec<Session<MemTransport>>;

/// Two endpoints with open sessions.
struct Connected {
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    clock: Clock,
    sessions: Sessions,
}

impl Connected {
    fn new(setup: &Setup) -> Result<Self, Failure> {
        let endpoint =
            |port| Endpoint::new(port, setup.config.clone()).map_err(Failure::of("no endpoint"));
        let (client, server) = setup.ports();
        let (client, server) = (endpoint(client)?, endpoint(server)?);
        server.listen();
        let routes = Store::routes().map_err(Failure::of("the service does not register"))?;
        server.serve(Arc::new(routes), None);
        let peer = server.local_route().ok_or_else(|| Failure::new("the server has no address"))?;
        let sessions: Sessions = (0..setup.width.sessions).map(|_| client.open(peer)).collect();
        let mut clock = setup.clock;
        while !sessions.iter().all(Session::is_open) {
            turn(&client, &server, &mut clock);
        }
        Ok(Self { client, server, clock, sessions })
    }

    fn into_subject(self, progress: Rc<Progress>, start: Start) -> Box<dyn Subject> {
        let Self { client, server, clock, .. } = self;
        Box::new(Endpoints { client, server, clock, progress, start })
    }
}

/// The calls are awaited by one task per call in flight. The tasks never end, so that the
/// measurement does not include their creation.
pub(super) fn awaited<K: Called>(setup: &Setup) -> Result<Box<dyn Subject>, Failure> {
    let Width { sessions, outstanding } = setup.width;
    let ends = Connected::new(setup)?;
    let progress = Rc::new(Progress::default());
    for task in 0..outstanding {
        let (progress, session) = (Rc::clone(&progress), ends.sessions[task % sessions].clone());
        ends.client.spawn(async move {
            loop {
                match progress.take() {
                    Some(key) => {
                        let result = session.call(&K::METHOD, &K::Req::of(key)).await;
                        progress.ended(key, &result);
                    }
                    None => progress.rest().await,
                }
            }
        });
    }
    let wake = Rc::clone(&progress);
    let start = move || wake.resting.borrow_mut().drain(..).for_each(Waker::wake);
    Ok(ends.into_subject(progress, Box::new(start)))
}

/// The calls have callbacks. Each callback makes the next call.
pub(super) fn with_callbacks<K>(setup: &Setup) -> Result<Box<dyn Subject>, Failure>
where
    K: Called,
    for<'v> View<'v, K>: Checked,
{
    let outstanding = setup.width.outstanding;
    let mut ends = Connected::new(setup)?;
    let sessions = std::mem::take(&mut ends.sessions);
    let progress = Rc::new(Progress { sessions, ..Progress::default() });
    let first = Rc::clone(&progress);
    let start = move || (0..outstanding).for_each(|_| call_next::<K>(Rc::clone(&first)));
    Ok(ends.into_subject(progress, Box::new(start)))
}

/// What a callback gets.
type View<'v, K> = <<K as Called>::Answers as Codec<<K as Called>::Resp>>::View<'v>;

fn call_next<K>(progress: Rc<Progress>)
where
    K: Called,
    for<'v> View<'v, K>: Checked,
{
    let Some(key) = progress.take() else { return };
    let session = &progress.sessions[key as usize % progress.sessions.len()];
    let next = Rc::clone(&progress);
    session.call_with(&K::METHOD, &K::Req::of(key), move |result| {
        next.ended(key, &result);
        call_next::<K>(next);
    });
}
