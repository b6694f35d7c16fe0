//! Shutdown of endpoints: a callback shuts its endpoint down in the middle of a turn, and users
//! make calls and await sessions after the shutdown.

use std::cell::{Cell, RefCell};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use erpc_core::calling::{CallOptions, RetryPolicy};
use erpc_core::client::{Call, Channel, Session};
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{CallError, Cause};
use erpc_core::service::{Incoming, Method, Outgoing, Request, Routes, Service};
use erpc_core::status::Status;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc_test_tools::limit::{secs, within};

use crate::support::{DOUBLE, Math, Number, client, number, server};

const SHUT_DOWN: CallError = CallError::NotExecuted(Cause::Shutdown);

/// Sends one number.
const ONE: Method<Number, Number> = Method::new("test.Ending/One");

async fn one(_: &(), _: Request<'_, Number>, numbers: Outgoing<Number>) -> Result<(), Status> {
    Ok(numbers.send(number(1)).await?)
}

/// A client and its server on one thread, with an open session.
struct Pair {
    hub: MemHub,
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    session: Session<MemTransport>,
}

impl Pair {
    fn new() -> Self {
        let mut routes = Routes::new();
        Arc::new(Math::default()).register(&mut routes).unwrap();
        routes.server_streaming(ONE, &Arc::new(()), one).unwrap();
        let hub = MemHub::new();
        let (server, route) = server(&hub, Arc::new(routes));
        let client = client(&hub);
        let session = client.open(route);
        let pair = Self { hub, client, server, session };
        while !pair.session.is_open() {
            pair.turn();
        }
        pair
    }

    fn turn(&self) {
        self.client.run_once();
        self.server.run_once();
    }

    /// Sends the client's packets, and lets the server answer all of them before the client's next
    /// turn.
    fn exchange(&self) {
        self.client.run_once();
        for _ in 0..10 {
            self.server.run_once();
        }
        self.client.run_once();
    }

    /// Makes a call. When the response arrives, shuts the endpoint down and runs `then`.
    fn end_with_a_reply(&self, then: impl FnOnce() + 'static) {
        let endpoint = self.client.clone();
        self.session.call_with(&DOUBLE, &number(1), move |reply| {
            assert_eq!(reply, Ok(number(2)));
            endpoint.shutdown();
            then();
        });
    }

    /// Drops the endpoint but keeps its session.
    fn orphan(self) -> (MemHub, MemRoute, Session<MemTransport>) {
        let route = self.client.local_route().unwrap();
        (self.hub, route, self.session)
    }
}

fn is_gone(hub: &MemHub, route: MemRoute) -> bool {
    hub.port_at(route, MemConfig::default()).is_ok()
}

fn poll<F: Future>(future: F) -> Poll<F::Output> {
    pin!(future).poll(&mut Context::from_waker(Waker::noop()))
}

#[test]
fn a_callback_shuts_the_endpoint_down_while_other_replies_are_in_the_same_turn() {
    let pair = Pair::new();
    let refused: Rc<RefCell<Vec<Call<Number, MemTransport>>>> = Rc::default();
    let (later, session) = (Rc::clone(&refused), pair.session.clone());
    pair.end_with_a_reply(move || {
        // These calls must not get the keys of calls whose replies are not delivered yet.
        let calls = (0..4).map(|_| session.call(&DOUBLE, &number(1)));
        later.borrow_mut().extend(calls);
    });
    let told = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let told = Rc::clone(&told);
        pair.session.call_with(&DOUBLE, &number(1), move |_| told.set(told.get() + 1));
    }
    let awaited = pair.session.call(&DOUBLE, &number(1));
    pair.exchange();
    assert_eq!(told.get(), 3);
    assert!(matches!(poll(awaited), Poll::Ready(_)));
    let refused = refused.take();
    assert_eq!(refused.len(), 4);
    for call in refused {
        assert_eq!(poll(call), Poll::Ready(Err(SHUT_DOWN)));
    }
}

#[test]
fn a_callback_shuts_the_endpoint_down_while_stream_items_are_in_the_same_turn() {
    let pair = Pair::new();
    let begin = || -> Vec<Incoming<Number>> {
        (0..5).map(|_| pair.session.server_streaming(&ONE, &number(0))).collect()
    };
    // The streams below reuse the sessions of these streams, so that all open in one turn.
    let mut first = begin();
    while first.iter_mut().any(|numbers| poll(numbers.next()) != Poll::Ready(Ok(None))) {
        pair.turn();
    }
    drop(first);
    pair.exchange();
    pair.end_with_a_reply(|| ());
    let streams = begin();
    pair.exchange();
    for mut numbers in streams {
        let next = poll(numbers.next());
        let told = matches!(
            next,
            Poll::Ready(Ok(Some(_)) | Err(CallError::MaybeExecuted(Cause::Shutdown)))
        );
        assert!(told, "{next:?}");
    }
}

#[test]
fn awaiting_a_task_that_ended_with_its_endpoint_panics() {
    within(secs(20), || {
        let endpoint = client(&MemHub::new());
        let waiting = endpoint.spawn(std::future::pending::<()>());
        endpoint.run_once();
        let ender = endpoint.clone();
        drop(endpoint.spawn(async move { ender.shutdown() }));
        let unpolled = endpoint.spawn(async {});
        let begun = catch_unwind(AssertUnwindSafe(|| endpoint.block_on(waiting)));
        let message = *begun.unwrap_err().downcast::<&str>().unwrap();
        assert!(message.contains("its endpoint has ended"), "{message}");
        assert!(unpolled.is_finished());
    });
}

#[test]
fn a_callback_passed_after_shutdown_still_runs_in_the_loop() {
    let pair = Pair::new();
    pair.client.shutdown();
    let outcome = Rc::new(Cell::new(None));
    let slot = Rc::clone(&outcome);
    pair.session.call_with(&DOUBLE, &number(1), move |reply| slot.set(Some(reply)));
    assert!(outcome.take().is_none(), "a callback does not run within `call_with`");
    pair.client.run_once();
    assert_eq!(outcome.take(), Some(Err(SHUT_DOWN)));
    let slot = Rc::clone(&outcome);
    pair.session.call_with(&DOUBLE, &number(1), move |reply| slot.set(Some(reply)));
    drop(pair);
    assert_eq!(outcome.take(), Some(Err(SHUT_DOWN)), "dropping the last handle runs the callback");
}

#[test]
fn a_callback_passed_after_the_endpoint_is_gone_is_dropped() {
    let (hub, route, session) = Pair::new().orphan();
    let (token, held) = (Rc::new(()), session.clone());
    let given = Rc::clone(&token);
    session.call_with(&DOUBLE, &number(1), move |_| {
        // A callback must not keep alive the session that keeps the callback alive.
        drop((given, held));
    });
    assert_eq!(Rc::strong_count(&token), 1);
    drop(session);
    assert!(is_gone(&hub, route));
}

#[test]
fn a_retryable_call_does_not_keep_a_dropped_endpoint_alive() {
    let (hub, route, session) = Pair::new().orphan();
    let channel = Channel::from(session)
        .with(CallOptions::new().retry(RetryPolicy::new(3).also_unexecuted()));
    let token = Rc::new(());
    let given = Rc::clone(&token);
    channel.call_with(&DOUBLE, &number(1), move |_| drop(given));
    assert_eq!(Rc::strong_count(&token), 1);
    drop(channel);
    assert!(is_gone(&hub, route));
}

#[test]
fn waits_for_a_session_end_when_the_endpoint_is_shut_down() {
    let pair = Pair::new();
    pair.client.shutdown();
    let connected = poll(pair.client.connect_async(pair.session.peer()));
    assert!(matches!(connected, Poll::Ready(Err(_))));
    assert_eq!(poll(pair.session.disconnect()), Poll::Ready(()));
}
