//! Asynchronous handlers: tasks of the endpoint that received the call.

use std::sync::Arc;

use erpc_core::endpoint::Endpoint;
use erpc_core::service::{Method, Request, Response, Routes};
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemHub, MemRoute, MemTransport};

use crate::support::{Background, DOUBLE, Number, math, number, server};
use crate::test_bed::poll;

const RELAY: Method<Number, Number> = Method::new("test.Front/Relay");

/// A service trait of the form that generated code declares.
trait Front: Send + Sync + 'static {
    fn relay(
        &self,
        request: Request<'_, Number>,
    ) -> impl Future<Output = Result<Response<Number>, Status>>;
}

fn routes<S: Front>(service: &Arc<S>) -> Arc<Routes> {
    let mut routes = Routes::new();
    routes.unary_async(RELAY, service, S::relay).unwrap();
    Arc::new(routes)
}

/// Passes calls on to another server.
struct Relay(MemRoute);

impl Front for Relay {
    async fn relay(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        let endpoint = Endpoint::<MemTransport>::current().expect("tasks run in the loop");
        let back = endpoint.open(self.0);
        let doubled = back.call(&DOUBLE, request.message()).await?;
        Ok(Response::new(back.call(&DOUBLE, &doubled).await?))
    }
}

#[test]
fn a_handler_that_calls_another_service_waits_without_blocking_the_loop() {
    let hub = MemHub::new();
    let back = Background::start(&hub, math(), None);
    let front = Background::start(&hub, routes(&Arc::new(Relay(back.route))), None);
    let (endpoint, session) = front.connect(&hub);
    assert_eq!(endpoint.block_on(session.call(&RELAY, &number(3))), Ok(number(12)));
    let failed = endpoint.block_on(session.call(&RELAY, &number(0))).unwrap_err();
    assert_eq!(failed.code(), Code::NotFound, "the nested call's status is passed on");
}

/// A handler that never returns. The caller has to cancel the call.
struct Patient;

impl Front for Patient {
    async fn relay(&self, _: Request<'_, Number>) -> Result<Response<Number>, Status> {
        std::future::pending().await
    }
}

#[test]
fn calls_beyond_the_task_limit_are_refused() {
    let hub = MemHub::new();
    let (endpoint, route) = server(&hub, routes(&Arc::new(Patient)));
    endpoint.set_task_limit(3);
    let session = endpoint.connect(route).unwrap();
    let start = || {
        let mut call = Box::pin(session.call(&RELAY, &number(1)));
        assert!(poll(call.as_mut()).is_pending());
        call
    };
    let run = || {
        for _ in 0..10 {
            endpoint.run_once();
        }
    };
    let mut calls = vec![start(), start(), start()];
    run();
    for _ in 0..3 {
        let refused = endpoint.block_on(session.call(&RELAY, &number(1))).unwrap_err();
        assert_eq!(refused.code(), Code::ResourceExhausted);
        // The end of a cancelled call makes room for another task.
        drop(calls.pop());
        run();
        calls.push(start());
        run();
    }
    assert!(calls.iter_mut().all(|call| poll(call.as_mut()).is_pending()));
}
