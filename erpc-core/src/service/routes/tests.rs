use std::net::SocketAddr;
use std::sync::{LazyLock, Mutex};
use std::thread;

use std::sync::Arc;

use super::*;
use crate::buf::MsgBuf;
use crate::protocol::{ClientStats, RequestHandle};
use crate::service::{
    CallHost, Encoded, HandlerOutcome, Method, Mode, ReplySink, Request, Responder, Response,
};
use crate::status::{Code, Status};

const DOUBLE: Method<u32, u32> = Method::new("test.Math/Double");
const LATER: Method<u32, u32> = Method::new("test.Math/Later");

/// Records the answers of deferred calls.
#[derive(Default)]
struct Answers(Mutex<Vec<Result<Vec<u8>, Status>>>);

impl ReplySink for Answers {
    fn reply(&self, _: RequestHandle, result: Result<Encoded, Status>) {
        self.0.lock().unwrap().push(result.map(|reply| reply.bytes.as_slice().to_vec()));
    }
}

/// The host of the calls: allocates buffers of at most 16 bytes.
struct Host(Arc<Answers>);

impl CallHost for Host {
    fn buffer(&self, len: usize) -> Result<MsgBuf, Status> {
        let fits = (len <= 16).then(|| MsgBuf::detached(len)).flatten();
        fits.ok_or_else(|| Status::resource_exhausted("too large"))
    }

    fn peer(&self) -> Option<SocketAddr> {
        None
    }

    fn session_stats(&self, _: &RequestHandle) -> Option<ClientStats> {
        None
    }

    fn is_cancelled(&self) -> bool {
        false
    }

    fn sink(&self) -> Arc<dyn ReplySink> {
        self.0.clone()
    }
}

struct Math;

impl Math {
    #[expect(
        clippy::needless_pass_by_value,
        clippy::unused_self,
        reason = "the shape of a handler"
    )]
    fn double(&self, request: Request<'_, u32>) -> Result<Response<u32>, Status> {
        match request.message() {
            13 => panic!("the handler panics on 13"),
            number => number
                .checked_mul(2)
                .map(Response::new)
                .ok_or_else(|| Status::out_of_range("more than 32 bits")),
        }
    }
}

fn encoded(number: u32) -> Vec<u8> {
    prost::Message::encode_to_vec(&number)
}

/// Calls a method as a runtime does. Returns the outcome and the sink of deferred answers.
fn call(routes: &Routes, id: u32, body: &[u8]) -> (HandlerOutcome, Arc<Answers>) {
    let host = Host(Arc::default());
    let entry = routes.get(id).expect("the method is registered");
    let outcome = entry.call(&entry.context(RequestHandle::for_tests(), &host), body);
    (outcome, host.0)
}

fn math() -> Routes {
    let mut routes = Routes::new();
    routes.unary(DOUBLE, Mode::Dispatch, &Arc::new(Math), Math::double).unwrap();
    routes
}

/// A table whose method `LATER` defers its answer and passes the request's number and the responder
/// to `start`.
fn later(start: impl Fn(u32, Responder<u32>) + Send + Sync + 'static) -> Routes {
    let mut routes = Routes::new();
    let handler = move |_: &(), request: Request<'_, u32>| Ok(request.defer(&start));
    routes.unary(LATER, Mode::Worker, &Arc::new(()), handler).unwrap();
    routes
}

fn failure(outcome: HandlerOutcome) -> Status {
    match outcome {
        HandlerOutcome::Failed(status) => status,
        other => panic!("expected a failure, not {other:?}"),
    }
}

#[test]
fn a_call_is_answered_by_its_handler() {
    let (outcome, _) = call(&math(), DOUBLE.id(), &encoded(21));
    let HandlerOutcome::Reply(reply) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reply.bytes.as_slice(), encoded(42));
}

#[test]
fn failures_of_a_call_become_a_status() {
    let code = |body: &[u8]| failure(call(&math(), DOUBLE.id(), body).0).code();
    assert_eq!(code(&encoded(u32::MAX)), Code::OutOfRange);
    assert_eq!(code(&[0x08]), Code::InvalidArgument, "a tag without a value");
    assert_eq!(code(&encoded(13)), Code::Internal, "the handler panics");
}

#[test]
fn a_response_beyond_the_limit_is_a_failure() {
    let mut routes = Routes::new();
    let long = |_: &(), _: Request<'_, u32>| Ok(Response::new("x".repeat(100)));
    let method = Method::<u32, String>::new("test.Math/Long");
    routes.unary(method, Mode::Dispatch, &Arc::new(()), long).unwrap();
    assert_eq!(failure(call(&routes, method.id(), &[]).0).code(), Code::ResourceExhausted);
}

#[test]
fn a_deferred_call_is_answered_from_another_thread() {
    let routes = later(|number, responder| {
        thread::spawn(move || responder.send(&(number + 1))).join().unwrap();
    });
    let (outcome, answers) = call(&routes, LATER.id(), &encoded(1));
    assert!(matches!(outcome, HandlerOutcome::Deferred));
    assert_eq!(*answers.0.lock().unwrap(), [Ok(encoded(2))]);
}

#[test]
fn a_deferred_call_may_fail() {
    let routes = later(|_, responder| responder.fail(Status::not_found("no")));
    let (_, answers) = call(&routes, LATER.id(), &[]);
    assert_eq!(*answers.0.lock().unwrap(), [Err(Status::not_found("no"))]);
}

#[test]
fn a_dropped_responder_fails_the_call_once() {
    let (outcome, answers) = call(&later(|_, responder| drop(responder)), LATER.id(), &[]);
    assert!(matches!(outcome, HandlerOutcome::Deferred));
    let answers = answers.0.lock().unwrap();
    assert_eq!(answers.len(), 1);
    assert_eq!(answers[0].as_ref().unwrap_err().code(), Code::Internal);
}

#[test]
fn a_panic_after_deferring_fails_the_call_once() {
    let (outcome, answers) =
        call(&later(|_, _responder| panic!("a panic after deferring")), LATER.id(), &[]);
    assert!(matches!(outcome, HandlerOutcome::Deferred));
    assert_eq!(answers.0.lock().unwrap().len(), 1);
}

#[test]
fn a_failure_returned_after_deferring_does_not_answer_twice() {
    let mut routes = Routes::new();
    let handler = |_: &(), request: Request<'_, u32>| {
        let _reply = request.defer(|_, responder: Responder<u32>| responder.send(&7));
        Err::<Response<u32>, _>(Status::internal("a failure after deferring"))
    };
    routes.unary(LATER, Mode::Dispatch, &Arc::new(()), handler).unwrap();
    let (outcome, answers) = call(&routes, LATER.id(), &[]);
    assert!(matches!(outcome, HandlerOutcome::Deferred));
    assert_eq!(*answers.0.lock().unwrap(), [Ok(encoded(7))]);
}

#[test]
fn a_method_is_registered_once() {
    let mut routes = math();
    let collision = routes.unary(DOUBLE, Mode::Worker, &Arc::new(Math), Math::double).unwrap_err();
    assert_eq!(
        collision,
        MethodCollision { first: "test.Math/Double", second: "test.Math/Double" }
    );
    assert!(collision.to_string().contains("twice"));
    assert_eq!(routes.entries().count(), 1);
}

#[test]
fn a_collision_names_both_methods() {
    // Found by search: both names have the same id.
    let (one, other) = ("test.Math/M21631", "test.Math/M61262");
    let mut routes = Routes::new();
    let handler = |_: &(), _: Request<'_, u32>| Ok(Response::new(0_u32));
    routes.unary(Method::<u32, u32>::new(one), Mode::Dispatch, &Arc::new(()), handler).unwrap();
    let collision = routes
        .unary(Method::<u32, u32>::new(other), Mode::Dispatch, &Arc::new(()), handler)
        .unwrap_err();
    assert_eq!(collision, MethodCollision { first: one, second: other });
    assert!(collision.to_string().contains(one) && collision.to_string().contains(other));
}

#[test]
fn a_lookup_finds_only_registered_methods() {
    assert!(Routes::new().get(DOUBLE.id()).is_none());
    let mut routes = Routes::new();
    let mut ids = Vec::new();
    // Method names need the lifetime `'static`.
    static NAMES: LazyLock<Vec<String>> =
        LazyLock::new(|| (0..500).map(|n| format!("test.Many/M{n}")).collect());
    for name in NAMES.iter() {
        let method = Method::<u32, u32>::new(name);
        routes.unary(method, Mode::Dispatch, &Arc::new(Math), Math::double).unwrap();
        ids.push(method.id());
    }
    for (id, entry) in ids.iter().zip(routes.entries()) {
        assert_eq!(routes.get(*id).unwrap().full_name(), entry.full_name());
        assert_eq!(routes.get(id.wrapping_add(1)).map(|entry| entry.full_name()), None);
    }
    assert!(routes.get(0).is_none(), "no method has id 0");
}
