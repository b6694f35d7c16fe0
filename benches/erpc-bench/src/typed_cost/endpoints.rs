//! The call of workload w4 as users make it: with endpoints, sessions and handlers, awaited in
//! tasks or with callbacks.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CallError, Endpoint, EndpointConfig, Session};

use super::messages::{Called, Checked, Keyed, Store};
use super::{Subject, Width};
use crate::failure::Failure;

/// A client and a server.
struct Endpoints {
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    progress: Rc<Progress>,
    start: Start,
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
            self.client.run_once();
            self.server.run_once();
        }
        self.progress.failure.take().map_or(Ok(()), Err)
    }
}

type Sessions = Vec<Session<MemTransport>>;

/// Two endpoints with open sessions.
fn connected(
    sessions: usize,
) -> Result<(Endpoint<MemTransport>, Endpoint<MemTransport>, Sessions), Failure> {
    let hub = MemHub::new();
    let endpoint = || {
        Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new())
            .map_err(Failure::of("no endpoint"))
    };
    let (client, server) = (endpoint()?, endpoint()?);
    server.listen();
    let routes = Store::routes().map_err(Failure::of("the service does not register"))?;
    server.serve(Arc::new(routes), None);
    let peer = server.local_route().ok_or_else(|| Failure::new("the server has no address"))?;
    let sessions: Sessions = (0..sessions).map(|_| client.open(peer)).collect();
    while !sessions.iter().all(Session::is_open) {
        client.run_once();
        server.run_once();
    }
    Ok((client, server, sessions))
}

/// The calls are awaited by one task per call in flight. The tasks never end, so that the
/// measurement does not include their creation.
pub(super) fn awaited<K: Called>(
    Width { sessions, outstanding }: Width,
) -> Result<Box<dyn Subject>, Failure> {
    let (client, server, sessions) = connected(sessions)?;
    let progress = Rc::new(Progress::default());
    for task in 0..outstanding {
        let (progress, session) = (Rc::clone(&progress), sessions[task % sessions.len()].clone());
        client.spawn(async move {
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
    Ok(Box::new(Endpoints { client, server, progress, start: Box::new(start) }))
}

/// The calls have callbacks. Each callback makes the next call.
pub(super) fn with_callbacks<K: Called>(
    Width { sessions, outstanding }: Width,
) -> Result<Box<dyn Subject>, Failure> {
    let (client, server, sessions) = connected(sessions)?;
    let progress = Rc::new(Progress { sessions, ..Progress::default() });
    let first = Rc::clone(&progress);
    let start = move || (0..outstanding).for_each(|_| call_next::<K>(Rc::clone(&first)));
    Ok(Box::new(Endpoints { client, server, progress, start: Box::new(start) }))
}

fn call_next<K: Called>(progress: Rc<Progress>) {
    let Some(key) = progress.take() else { return };
    let session = &progress.sessions[key as usize % progress.sessions.len()];
    let next = Rc::clone(&progress);
    session.call_with(&K::METHOD, &K::Req::of(key), move |result| {
        next.ended(key, &result);
        call_next::<K>(next);
    });
}
