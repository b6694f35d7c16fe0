//! Calls: awaited, with callbacks, many, large, rejected, dropped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use erpc_core::endpoint::Endpoint;
use erpc_core::executor::join_all;
use erpc_core::protocol::{CallError, Cause, EndpointConfig, RejectReason};
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemConfig, MemHub};

use crate::support::{Background, DOUBLE, Number, client, math, number, server};

#[test]
fn a_call_is_awaited() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(21))), Ok(number(42)));
}

#[test]
fn a_failure_arrives_as_its_status() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let code = |error| match error {
        CallError::Status(status) => status.code(),
        other => panic!("not a status: {other:?}"),
    };
    let failed = endpoint.block_on(session.call(&DOUBLE, &number(0))).unwrap_err();
    assert_eq!(code(failed), Code::NotFound);
    let panicked = endpoint.block_on(session.call(&DOUBLE, &number(13))).unwrap_err();
    assert_eq!(code(panicked), Code::Internal);
    assert_eq!(
        endpoint.block_on(session.call(&DOUBLE, &number(1))),
        Ok(number(2)),
        "the server still serves"
    );
}

/// Fails every call with `Unimplemented`, with the details that the runtime uses for unknown
/// methods.
fn unimplemented(_: &(), request: Request<'_, Number>) -> Result<Response<Number>, Status> {
    let id = u32::try_from(request.message().value).unwrap();
    Err(Status::unimplemented("not today").with_details(&id.to_le_bytes()))
}

#[test]
fn an_unknown_method_is_named_in_the_error() {
    const TRIPLE: Method<Number, Number> = Method::new("test.Math/Triple");
    const LATER: Method<Number, Number> = Method::new("test.Math/Later");
    let mut routes = Routes::new();
    routes.unary(LATER, Mode::Dispatch, &Arc::new(()), unimplemented).unwrap();
    let (hub, serving) = (MemHub::new(), Arc::new(routes));
    let server = Background::start(&hub, serving, None);
    let (endpoint, session) = server.connect(&hub);
    let lacking = CallError::NoSuchMethod("test.Math/Triple");
    assert_eq!(endpoint.block_on(session.call(&TRIPLE, &number(1))), Err(lacking.clone()));
    let with_metadata = session.call(&TRIPLE, &number(1)).with_metadata();
    assert_eq!(endpoint.block_on(with_metadata), Err(lacking.clone()));
    let told = Rc::new(RefCell::new(None));
    let place = Rc::clone(&told);
    session.call_with(&TRIPLE, &number(1), move |result| *place.borrow_mut() = Some(result));
    endpoint.run_until(|| told.borrow().is_some());
    assert_eq!(told.take(), Some(Err(lacking.clone())));
    assert_eq!(lacking.code(), Code::Unimplemented);
    assert!(lacking.to_string().contains("no method test.Math/Triple"), "{lacking}");
    // A status from a handler stays unchanged, even if it names another method in its details.
    let own = endpoint.block_on(session.call(&LATER, &number(TRIPLE.id().into())));
    assert!(matches!(own, Err(CallError::Status(status)) if status.message() == "not today"));
    // A handler that passes the failure on must not report its own method as unknown.
    let passed_on = Status::from(lacking);
    assert!(passed_on.details().is_empty() && passed_on.message().contains("test.Math/Triple"));
}

#[test]
fn a_server_without_methods_knows_no_method() {
    let hub = MemHub::new();
    let (client, server) = (client(&hub), client(&hub));
    server.listen();
    let session = client.open(server.local_route().unwrap());
    let call = session.call(&DOUBLE, &number(1));
    while !call.is_ready() {
        client.run_once();
        server.run_once();
    }
    assert_eq!(client.block_on(call), Err(CallError::NoSuchMethod("test.Math/Double")));
}

#[test]
fn a_callback_makes_further_calls() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let result = Rc::new(Cell::new(0));
    let (again, out) = (session.clone(), Rc::clone(&result));
    session.call_with(&DOUBLE, &number(1), move |reply| {
        let two = reply.unwrap();
        let last = again.clone();
        again.call_with(&DOUBLE, &two, move |reply| {
            last.call_with(&DOUBLE, &reply.unwrap(), move |reply| out.set(reply.unwrap().value));
        });
    });
    assert_eq!(result.get(), 0, "callbacks run in the loop only");
    endpoint.run_until(|| result.get() != 0);
    assert_eq!(result.get(), 8);
}

#[test]
fn many_calls_are_outstanding_at_once() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let calls =
        (1..=500).filter(|value| *value != 13).map(|value| session.call(&DOUBLE, &number(value)));
    for (reply, value) in
        endpoint.block_on(join_all(calls)).into_iter().zip((1..=500).filter(|value| *value != 13))
    {
        assert_eq!(reply, Ok(number(value * 2)));
    }
    let done = Rc::new(Cell::new(0));
    for _ in 0..500 {
        let done = Rc::clone(&done);
        session.call_with(&DOUBLE, &number(4), move |reply| {
            done.set(done.get() + reply.unwrap().value)
        });
    }
    endpoint.run_until(|| done.get() == 4_000);
}

#[test]
fn tasks_call_concurrently() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let tasks: Vec<_> = (1..=20u64)
        .map(|task| {
            let session = session.clone();
            endpoint.spawn(async move {
                let mut value = number(task * 100);
                for _ in 0..5 {
                    value = session.call(&DOUBLE, &value).await?;
                }
                Ok::<_, CallError>(value.value)
            })
        })
        .collect();
    let results = endpoint.block_on(join_all(tasks));
    assert_eq!(results, (1..=20).map(|task| Ok(task * 3_200)).collect::<Vec<_>>());
}

#[test]
fn large_messages_travel_in_both_directions() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let ballast: Vec<u8> = (0..300_000u32).map(|i| (i * 7) as u8).collect();
    let request = Number { value: 1, ballast: ballast.clone() };
    assert_eq!(
        endpoint.block_on(session.call(&DOUBLE, &request)),
        Ok(Number { value: 2, ballast: ballast.clone() })
    );
    let got = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&got);
    session.call_with(&DOUBLE, &request, move |reply| *slot.borrow_mut() = Some(reply));
    endpoint.run_until(|| got.borrow().is_some());
    assert_eq!(got.take(), Some(Ok(Number { value: 2, ballast })));
}

#[test]
fn a_call_that_cannot_be_sent_is_rejected_in_its_result() {
    let hub = MemHub::new();
    let (server, route) = server(&hub, math());
    let config = EndpointConfig::new().queue_limit(4);
    let endpoint = Endpoint::new(hub.port(MemConfig::default()), config).unwrap();
    let session = endpoint.open(route);
    while !session.is_open() {
        endpoint.run_once();
        server.run_once();
    }
    // The session has 8 slots, its queue holds 4 calls, and the server does not run. So call 13 is
    // rejected.
    let mut calls: Vec<_> = (1..=13).map(|value| session.call(&DOUBLE, &number(value))).collect();
    let rejected = endpoint.block_on(calls.pop().unwrap());
    assert_eq!(rejected, Err(CallError::Rejected(RejectReason::QueueFull)));
    let error = Rc::new(RefCell::new(None));
    let slot = Rc::clone(&error);
    session.call_with(&DOUBLE, &number(1), move |reply| *slot.borrow_mut() = reply.err());
    assert!(error.borrow().is_none(), "a callback does not run within `call_with`");
    endpoint.run_once();
    assert_eq!(error.take(), Some(CallError::Rejected(RejectReason::QueueFull)));

    let huge = Number { value: 1, ballast: vec![0; 9 << 20] };
    let rejected = endpoint.block_on(session.call(&DOUBLE, &huge)).unwrap_err();
    assert!(matches!(rejected, CallError::Rejected(RejectReason::TooLarge { .. })), "{rejected:?}");
}

#[test]
fn a_dropped_call_leaks_no_buffer() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    drop(session.call(&DOUBLE, &number(1)));
    let call = session.call(&DOUBLE, &number(2));
    endpoint.run_once();
    drop(call);
    let call = session.call(&DOUBLE, &number(2));
    endpoint.run_until(|| call.is_ready());
    drop(call);
    assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(3))), Ok(number(6)));
    let in_use = || endpoint.stats().map(|stats| stats.pool.in_use);
    endpoint.run_until(|| in_use() == Some(0));
}

#[test]
fn a_response_of_another_type_is_malformed() {
    #[derive(Clone, PartialEq, prost::Message)]
    struct Text {
        #[prost(string, tag = "1")]
        text: String,
    }
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let wrong = Method::<Number, Text>::new("test.Math/Double");
    let result = endpoint.block_on(session.call(&wrong, &number(5)));
    assert_eq!(result, Err(CallError::ResponseLost(Cause::Malformed)));
}

#[test]
fn disconnecting_lets_calls_end_and_refuses_new_ones() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let call = session.call(&DOUBLE, &number(5));
    let gone = session.disconnect();
    let late = session.call(&DOUBLE, &number(6));
    assert_eq!(endpoint.block_on(call), Ok(number(10)));
    assert_eq!(endpoint.block_on(late), Err(CallError::Rejected(RejectReason::Disconnecting)));
    endpoint.block_on(gone);
    let after = endpoint.block_on(session.call(&DOUBLE, &number(7)));
    assert_eq!(after, Err(CallError::NotExecuted(Cause::Disconnected)));
}

#[test]
fn dropping_the_last_session_disconnects_in_the_background() {
    let hub = MemHub::new();
    let (server, route) = server(&hub, math());
    let endpoint = client(&hub);
    let session = endpoint.open(route);
    let call = session.call(&DOUBLE, &number(5));
    drop(session);
    while !call.is_ready() {
        endpoint.run_once();
        server.run_once();
    }
    assert_eq!(endpoint.block_on(call), Ok(number(10)));
    while server.stats().unwrap().server_sessions + endpoint.stats().unwrap().client_sessions > 0 {
        endpoint.run_once();
        server.run_once();
    }
}

#[test]
fn a_panic_in_a_callback_propagates_and_the_endpoint_still_works() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    session.call_with(&DOUBLE, &number(1), |_| panic!("in a callback"));
    let turned =
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| endpoint.run_until(|| false)));
    assert_eq!(*turned.unwrap_err().downcast::<&str>().unwrap(), "in a callback");
    assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(1))), Ok(number(2)));
}
