//! Handlers that answer later, and handlers that call other servers.

use std::future::poll_fn;
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::Duration;

use erpc_core::client::Session;
use erpc_core::endpoint::{Endpoint, Handle};
use erpc_core::protocol::CallError;
use erpc_core::service::{Method, Mode, Request, Responder, Response, Routes};
use erpc_core::serving::WorkerPool;
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemHub, MemRoute, MemTransport};

use crate::support::{Background, DOUBLE, Number, client, math, number, server};
use crate::test_bed::{TestBed, poll};

/// Calls `DOUBLE` on the backend and answers with the result plus one.
const ASK: Method<Number, Number> = Method::new("test.Front/Ask");
/// Like `ASK`, on a worker.
const SLOW_ASK: Method<Number, Number> = Method::new("test.Front/SlowAsk");
/// Defers the answer, and drops the responder without an answer.
const FORGET: Method<Number, Number> = Method::new("test.Front/Forget");

/// An endpoint's session to the backend.
struct Backend(Session<MemTransport>);

struct Front {
    backend: MemRoute,
}

impl Front {
    fn backend(&self, endpoint: &Endpoint<MemTransport>) -> Session<MemTransport> {
        endpoint.local(|endpoint| Backend(endpoint.open(self.backend))).0.clone()
    }

    fn forward(session: &Session<MemTransport>, message: &Number, responder: Responder<Number>) {
        session.call_with(&DOUBLE, message, move |reply| match reply {
            Ok(reply) => responder.send(&number(reply.value + 1)),
            Err(CallError::Status(status)) => responder.fail(status),
            Err(error) => responder.fail(Status::unavailable(error.to_string())),
        });
    }

    fn ask(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        let endpoint = Endpoint::current().ok_or_else(|| Status::internal("not in a loop"))?;
        let session = self.backend(&endpoint);
        Ok(request.defer(|message, responder| Self::forward(&session, &message, responder)))
    }

    fn slow_ask(
        self: &Arc<Self>,
        request: Request<'_, Number>,
    ) -> Result<Response<Number>, Status> {
        if Endpoint::<MemTransport>::current().is_some() {
            return Err(Status::internal("a worker runs in no loop"));
        }
        let handle =
            Handle::<MemTransport>::current().ok_or_else(|| Status::internal("no handle"))?;
        let front = Arc::clone(self);
        Ok(request.defer(|message, responder| {
            let submitted = handle.submit(move |endpoint| {
                Self::forward(&front.backend(endpoint), &message, responder)
            });
            submitted.expect("the endpoint is alive");
        }))
    }

    fn routes(backend: MemRoute) -> Arc<Routes> {
        let front = Arc::new(Self { backend });
        let again = Arc::new(Arc::clone(&front));
        let mut routes = Routes::new();
        routes.unary(ASK, Mode::Dispatch, &front, Self::ask).unwrap();
        routes.unary(SLOW_ASK, Mode::Worker, &again, Self::slow_ask).unwrap();
        let forget = |_: &Self, request: Request<'_, Number>| {
            Ok(request.defer(|_, responder| drop(responder)))
        };
        routes.unary(FORGET, Mode::Dispatch, &front, forget).unwrap();
        Arc::new(routes)
    }
}

#[test]
fn a_handler_calls_a_backend_and_answers_from_the_callback() {
    let hub = MemHub::new();
    let back = Background::start(&hub, math(), None);
    let workers = WorkerPool::new(2, 16).unwrap();
    let front = Background::start(&hub, Front::routes(back.route), Some(workers));
    let (endpoint, session) = front.connect(&hub);
    for method in [ASK, SLOW_ASK] {
        for value in [1, 2, 3] {
            let reply = endpoint.block_on(session.call(&method, &number(value)));
            assert_eq!(reply, Ok(number(value * 2 + 1)), "{method:?}");
        }
        let reply = endpoint.block_on(session.call(&method, &number(0)));
        let Err(CallError::Status(status)) = reply else { panic!("{reply:?}") };
        assert_eq!(status.code(), Code::NotFound, "the backend's failure is passed on");
    }
}

#[test]
fn a_call_whose_responder_is_dropped_fails() {
    let hub = MemHub::new();
    let front = Background::start(&hub, Front::routes(MemRoute::new(999)), None);
    let (endpoint, session) = front.connect(&hub);
    let reply = endpoint.block_on(session.call(&FORGET, &number(1)));
    let Err(CallError::Status(status)) = reply else { panic!("{reply:?}") };
    assert_eq!(status.code(), Code::Internal);
}

/// The answers are deferred until the test sends them.
const KEEP: Method<Number, Number> = Method::new("test.Keeper/Keep");
const KEEP_TASK: Method<Number, Number> = Method::new("test.Keeper/KeepTask");

/// Stores the responders of its calls.
#[derive(Default)]
struct Keeper(Mutex<Vec<Responder<Number>>>);

impl Keeper {
    fn keep(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        Ok(request.defer(|_, responder| self.0.lock().unwrap().push(responder)))
    }

    async fn keep_task(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.keep(request)
    }

    fn is_cancelled(&self) -> Option<bool> {
        self.0.lock().unwrap().last().map(Responder::is_cancelled)
    }

    fn answer(&self) {
        self.0.lock().unwrap().pop().unwrap().send(&number(1));
    }
}

fn keeper() -> (TestBed, Arc<Keeper>) {
    let keeper = Arc::new(Keeper::default());
    let mut routes = Routes::new();
    routes.unary(KEEP, Mode::Dispatch, &keeper, Keeper::keep).unwrap();
    routes.unary_async(KEEP_TASK, &keeper, Keeper::keep_task).unwrap();
    (TestBed::new(routes), keeper)
}

#[test]
fn an_answer_of_a_task_leaves_in_the_turn_that_gives_it() {
    let (hub, keeper) = (MemHub::new(), Arc::new(Keeper::default()));
    let mut routes = Routes::new();
    routes.unary(KEEP, Mode::Dispatch, &keeper, Keeper::keep).unwrap();
    let (server, peer) = server(&hub, Arc::new(routes));
    let client = client(&hub);
    let session = client.open(peer);
    while !session.is_open() {
        client.run_once();
        server.run_once();
    }
    // Runs in every turn, and answers what the turn has received.
    drop(server.spawn(poll_fn(move |cx| {
        cx.waker().wake_by_ref();
        if keeper.is_cancelled().is_some() {
            keeper.answer();
        }
        Poll::<()>::Pending
    })));
    for round in 1..=3 {
        let call = client.spawn(session.call(&KEEP, &number(1)));
        client.run_once();
        server.run_once();
        client.run_once();
        assert!(call.is_finished(), "call {round} has its answer after one turn of the server");
    }
}

#[test]
fn a_responder_knows_when_its_call_was_cancelled() {
    for method in [KEEP, KEEP_TASK] {
        let (bed, keeper) = keeper();
        let session = bed.session();
        let call = |value| {
            let mut call = Box::pin(session.call(&method, &number(value)));
            assert!(poll(call.as_mut()).is_pending());
            bed.until("the handler runs", || keeper.is_cancelled().is_some());
            bed.run_for(Duration::from_millis(10));
            assert_eq!(keeper.is_cancelled(), Some(false), "the caller waits");
            call
        };
        drop(call(1));
        bed.until("the cancel arrives", || keeper.is_cancelled() == Some(true));
        keeper.answer();
        bed.run_for(Duration::from_millis(10));
        let mut answered = call(2);
        keeper.answer();
        assert_eq!(bed.wait(answered.as_mut()), Ok(number(1)));
        let _call = call(3);
        bed.client().shutdown();
        bed.until("the session ends", || keeper.is_cancelled() == Some(true));
        keeper.answer();
    }
}

#[test]
fn a_responder_knows_when_the_deadline_has_passed() {
    let (bed, keeper) = keeper();
    let session = bed.session();
    let mut call = Box::pin(session.call(&KEEP.deadline(Duration::from_millis(20)), &number(1)));
    assert!(poll(call.as_mut()).is_pending());
    bed.until("the handler runs", || keeper.is_cancelled().is_some());
    bed.until("the deadline passes", || keeper.is_cancelled() == Some(true));
    keeper.answer();
    assert!(bed.wait(call).is_err());
}

#[test]
fn a_handler_that_blocks_the_loop_fails() {
    const BLOCK: Method<Number, Number> = Method::new("test.Front/Block");
    let block = |_: &(), request: Request<'_, Number>| {
        let endpoint = Endpoint::<MemTransport>::current().unwrap();
        endpoint.block_on(async {});
        endpoint.run_once();
        Ok(Response::new(request.into_message()))
    };
    let mut routes = Routes::new();
    routes.unary(BLOCK, Mode::Dispatch, &Arc::new(()), block).unwrap();
    let hub = MemHub::new();
    let server = Background::start(&hub, Arc::new(routes), None);
    let (endpoint, session) = server.connect(&hub);
    let reply = endpoint.block_on(session.call(&BLOCK, &number(1)));
    assert!(matches!(reply, Err(CallError::Status(status)) if status.code() == Code::Internal));
}

#[test]
fn there_is_no_current_endpoint_outside_of_a_loop() {
    assert!(Endpoint::<MemTransport>::current().is_none());
    assert!(Handle::<MemTransport>::current().is_none());
    let endpoint = client(&MemHub::new());
    endpoint.block_on(async {
        assert!(Endpoint::<MemTransport>::current().is_some());
        assert!(Endpoint::<erpc_core::transport::udp::UdpTransport>::current().is_none());
    });
    assert!(Endpoint::<MemTransport>::current().is_none());
}
