//! Handlers on worker threads.

use std::sync::Arc;

use erpc_core::executor::join_all;
use erpc_core::protocol::CallError;
use erpc_core::service::{Method, Response, Routes, Service, SharedRequest};
use erpc_core::serving::WorkerPool;
use erpc_core::status::Code;
use erpc_core::transport::mem::MemHub;

use crate::support::{Background, GATED, Gate, Math, Number, SLOW_DOUBLE, math, number};

fn code(reply: Result<Number, CallError>) -> Code {
    match reply {
        Err(CallError::Status(status)) => status.code(),
        other => panic!("not a status: {other:?}"),
    }
}

#[test]
fn workers_answer_and_survive_panics() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), Some(WorkerPool::new(1, 64).unwrap()));
    let (endpoint, session) = server.connect(&hub);
    for _ in 0..3 {
        assert_eq!(endpoint.block_on(session.call(&SLOW_DOUBLE, &number(4))), Ok(number(8)));
        assert_eq!(
            code(endpoint.block_on(session.call(&SLOW_DOUBLE, &number(13)))),
            Code::Internal
        );
    }
    let large = Number { value: 1, ballast: vec![7; 100_000] };
    let reply = endpoint.block_on(session.call(&SLOW_DOUBLE, &large));
    assert_eq!(reply, Ok(Number { value: 2, ballast: vec![7; 100_000] }));
    let calls = (100..140).map(|value| session.call(&SLOW_DOUBLE, &number(value)));
    let replies = endpoint.block_on(join_all(calls));
    assert_eq!(replies, (100..140).map(|value| Ok(number(value * 2))).collect::<Vec<_>>());
}

#[test]
fn a_full_worker_queue_refuses_immediately() {
    let hub = MemHub::new();
    let gate = Arc::new(Gate::default());
    let mut routes = Routes::new();
    Arc::new(Math { gate: Arc::clone(&gate) }).register(&mut routes).unwrap();
    let server = Background::start(&hub, Arc::new(routes), Some(WorkerPool::new(1, 2).unwrap()));
    let (endpoint, session) = server.connect(&hub);
    // A session has 8 slots, so all 8 calls reach the server. The only worker runs at most one of
    // them, and the queue holds two, so at least five are refused.
    let mut calls: Vec<_> = (0..8).map(|value| session.call(&GATED, &number(value))).collect();
    endpoint.run_until(|| calls.iter().filter(|call| call.is_ready()).count() >= 5);
    gate.open();
    let (mut served, mut refused) = (0, 0);
    for call in calls.drain(..) {
        match endpoint.block_on(call) {
            Ok(_) => served += 1,
            error => {
                assert_eq!(code(error), Code::ResourceExhausted);
                refused += 1;
            }
        }
    }
    assert!(served >= 2 && refused >= 5, "{served} served, {refused} refused");
}

#[test]
fn a_method_of_tokio_without_a_runtime_is_refused() {
    const LATER: Method<Number, Number> = Method::new("test.Tokio/Later");
    let mut routes = Routes::new();
    let later = async |_: Arc<()>, request: SharedRequest<Number>| {
        Ok(Response::new(request.into_message()))
    };
    routes.unary_tokio(LATER, &Arc::new(()), later).unwrap();
    let hub = MemHub::new();
    let server = Background::start(&hub, Arc::new(routes), None);
    let (endpoint, session) = server.connect(&hub);
    let refused = endpoint.block_on(session.call(&LATER, &number(1)));
    assert_eq!(code(refused), Code::FailedPrecondition);
}

#[test]
fn a_worker_method_without_workers_is_refused() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    assert_eq!(
        code(endpoint.block_on(session.call(&SLOW_DOUBLE, &number(1)))),
        Code::FailedPrecondition
    );
}
