//! The call as users make it: endpoints, sessions and handlers, awaited in tasks or with callbacks.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};

use erpc::service::{Codec, Method};
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{CallError, Endpoint, EndpointConfig, Session};

use super::messages::{Checked, Keyed, Store};
use super::{Subject, Width};
use crate::failure::Failure;

/// Both sides.
struct Endpoints {
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    progress: Rc<Progress>,
    start: Start,
}

/// Sets the calls off.
type Start = Box<dyn Fn(&Rc<Progress>)>;

/// How far the calls are.
#[derive(Default)]
struct Progress {
    left: Cell<u64>,
    under_way: Cell<usize>,
    next: Cell<u64>,
    failure: RefCell<Option<Failure>>,
    /// Tasks that wait for the next run.
    resting: RefCell<Vec<Waker>>,
}

impl Progress {
    /// The key of the next call, if there is one to make.
    #[inline]
    fn take(&self) -> Option<u64> {
        let left = self.left.get().checked_sub(1)?;
        self.left.set(left);
        self.under_way.set(self.under_way.get() + 1);
        let key = self.next.get();
        self.next.set(key + 1);
        Some(key)
    }

    #[inline]
    fn ended<M: Checked>(&self, key: u64, result: Result<M, CallError>) {
        let failure = match result {
            Ok(answer) if answer.is_answer(key) => None,
            Ok(_) => Some(format!("the answer for key {key} is wrong")),
            Err(error) => Some(format!("a call failed: {error}")),
        };
        self.under_way.set(self.under_way.get() - 1);
        if let Some(failure) = failure {
            self.left.set(0);
            self.failure.borrow_mut().get_or_insert(Failure::new(failure));
        }
    }

    /// Waits until there are calls to make.
    async fn rest(&self) {
        poll_fn(|cx| {
            if self.left.get() > 0 {
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
        self.progress.left.set(calls);
        (self.start)(&self.progress);
        while self.progress.left.get() > 0 || self.progress.under_way.get() > 0 {
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

/// One task per call under way, for ever, so that the tasks' own making is not counted.
pub(super) fn awaited<Req: Keyed, Resp: Checked + 'static, C: Codec<Req>, D: Codec<Resp>>(
    Width { sessions, outstanding }: Width,
    method: Method<Req, Resp, C, D>,
) -> Result<Box<dyn Subject>, Failure> {
    let (client, server, sessions) = connected(sessions)?;
    let progress = Rc::new(Progress::default());
    for task in 0..outstanding {
        let (progress, session) = (Rc::clone(&progress), sessions[task % sessions.len()].clone());
        client.spawn(async move {
            loop {
                match progress.take() {
                    Some(key) => progress.ended(key, session.call(&method, &Req::of(key)).await),
                    None => progress.rest().await,
                }
            }
        });
    }
    let start = |progress: &Rc<Progress>| {
        progress.resting.borrow_mut().drain(..).for_each(Waker::wake);
    };
    Ok(Box::new(Endpoints { client, server, progress, start: Box::new(start) }))
}

/// Each answer's callback makes the next call.
pub(super) fn with_callbacks<Req: Keyed, Resp: Checked + 'static, C: Codec<Req>, D: Codec<Resp>>(
    Width { sessions, outstanding }: Width,
    method: Method<Req, Resp, C, D>,
) -> Result<Box<dyn Subject>, Failure> {
    let (client, server, sessions) = connected(sessions)?;
    let sessions = Rc::new(sessions);
    let start = move |progress: &Rc<Progress>| {
        for _ in 0..outstanding {
            call_next(method, Rc::clone(&sessions), Rc::clone(progress));
        }
    };
    let progress = Rc::new(Progress::default());
    Ok(Box::new(Endpoints { client, server, progress, start: Box::new(start) }))
}

fn call_next<Req: Keyed, Resp: Checked + 'static, C: Codec<Req>, D: Codec<Resp>>(
    method: Method<Req, Resp, C, D>,
    sessions: Rc<Sessions>,
    progress: Rc<Progress>,
) {
    let Some(key) = progress.take() else { return };
    let session = &sessions[key as usize % sessions.len()];
    let (next, done) = (Rc::clone(&sessions), Rc::clone(&progress));
    session.call_with(&method, &Req::of(key), move |result| {
        done.ended(key, result);
        call_next(method, next, done);
    });
}
