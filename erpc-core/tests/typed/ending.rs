//! Endpoints that end: in the middle of a turn, and with somebody who goes on asking.

use std::cell::{Cell, RefCell};
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

use crate::support::{DOUBLE, Math, Number, client, number, server};

const SHUT_DOWN: CallError = CallError::NotExecuted(Cause::Shutdown);

/// Sends one number.
const ONE: Method<Number, Number> = Method::new("test.Ending/One");

async fn one(_: &(), _: Request<'_, Number>, numbers: Outgoing<Number>) -> Result<(), Status> {
    Ok(numbers.send(number(1)).await?)
}

/// A client, its server, and a session that is open, on one thread.
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

    /// Sends what the client has, and lets the server answer all of it before the client looks.
    fn exchange(&self) {
        self.client.run_once();
        for _ in 0..10 {
            self.server.run_once();
        }
        self.client.run_once();
    }

    /// Calls, and ends the endpoint when the response is there.
    fn end_with_a_reply(&self, then: impl FnOnce() + 'static) {
        let endpoint = self.client.clone();
        self.session.call_with(&DOUBLE, &number(1), move |reply| {
            assert_eq!(reply, Ok(number(2)));
            endpoint.shutdown();
            then();
        });
    }

    /// Gives the endpoint up; its session is what is left.
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
fn a_callback_ends_the_endpoint_while_others_have_their_replies_in_the_same_turn() {
    let pair = Pair::new();
    let refused: Rc<RefCell<Vec<Call<Number, MemTransport>>>> = Rc::default();
    let (later, session) = (Rc::clone(&refused), pair.session.clone());
    pair.end_with_a_reply(move || {
        // These must not get the keys of calls whose replies have still to be told.
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
fn a_callback_ends_the_endpoint_while_streams_have_items_in_the_same_turn() {
    let pair = Pair::new();
    let begin = || -> Vec<Incoming<Number>> {
        (0..5).map(|_| pair.session.server_streaming(&ONE, &number(0))).collect()
    };
    // Their sessions are used again, so that all is sent in one turn.
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
fn a_callback_that_is_given_after_shutdown_is_told_while_somebody_runs_the_loop() {
    let pair = Pair::new();
    pair.client.shutdown();
    let outcome = Rc::new(Cell::new(None));
    let slot = Rc::clone(&outcome);
    pair.session.call_with(&DOUBLE, &number(1), move |reply| slot.set(Some(reply)));
    assert!(outcome.take().is_none(), "not before the function has returned");
    pair.client.run_once();
    assert_eq!(outcome.take(), Some(Err(SHUT_DOWN)));
    let slot = Rc::clone(&outcome);
    pair.session.call_with(&DOUBLE, &number(1), move |reply| slot.set(Some(reply)));
    drop(pair);
    assert_eq!(outcome.take(), Some(Err(SHUT_DOWN)), "the last handle is a last chance");
}

#[test]
fn a_callback_that_is_given_when_the_endpoint_is_gone_is_dropped() {
    let (hub, route, session) = Pair::new().orphan();
    let (token, held) = (Rc::new(()), session.clone());
    let given = Rc::clone(&token);
    session.call_with(&DOUBLE, &number(1), move |_| {
        // What a callback holds must not keep what keeps the callback.
        drop((given, held));
    });
    assert_eq!(Rc::strong_count(&token), 1);
    drop(session);
    assert!(is_gone(&hub, route));
}

#[test]
fn a_call_that_might_be_retried_does_not_keep_an_endpoint_that_is_gone() {
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
fn nobody_waits_for_a_session_of_an_endpoint_that_was_shut_down() {
    let pair = Pair::new();
    pair.client.shutdown();
    let connected = poll(pair.client.connect_async(pair.session.peer()));
    assert!(matches!(connected, Poll::Ready(Err(_))));
    assert_eq!(poll(pair.session.disconnect()), Poll::Ready(()));
}
