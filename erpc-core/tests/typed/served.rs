//! Server-side options of methods: deadlines for calls without one, limits, idempotence.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::Channel;
use erpc_core::protocol::CallError;
use erpc_core::service::{
    CallContext, Interceptor, Method, MethodOptions, Mode, Outgoing, Request, Response, Routes,
    ServiceOptions,
};
use erpc_core::serving::WorkerPool;
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::MemHub;

use crate::support::{Background, Gate, Number, number};
use crate::test_bed::TestBed;

/// Returns the remaining time in us, 0 if there is no deadline, and the request's ballast.
const LEFT: Method<Number, Number> = Method::new("test.Served/Left");
/// Like `LEFT`, on a worker, after the gate has opened.
const GATED: Method<Number, Number> = Method::new("test.Served/Gated");
/// Waits forever, unless the request is 0.
const WAIT: Method<Number, Number> = Method::new("test.Served/Wait");
/// Sends one number and waits forever.
const STREAM: Method<Number, Number> = Method::new("test.Served/Stream");

const WITHIN: Duration = Duration::from_millis(20);

const DECLARED: ServiceOptions<4> = ServiceOptions::new(
    "test.Served has no such method",
    [
        ("Left", Some(Mode::Dispatch)),
        ("Gated", Some(Mode::Worker)),
        ("Wait", None),
        ("Stream", None),
    ],
);
const TIMED: ServiceOptions<4> = DECLARED.all_with(MethodOptions::new().deadline(WITHIN));

#[derive(Default)]
struct Served {
    gate: Gate,
    /// Number of handlers that have started, and of those that have returned or were dropped.
    begun: AtomicU64,
    gone: AtomicU64,
}

/// Counts a handler's end, by return or drop.
struct Runs<'a>(&'a Served);

impl Drop for Runs<'_> {
    fn drop(&mut self) {
        self.0.gone.fetch_add(1, Ordering::SeqCst);
    }
}

impl Served {
    fn runs(&self) -> Runs<'_> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        Runs(self)
    }

    fn left(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        let _runs = self.runs();
        let left = request.time_left().map_or(0, |left| left.as_micros() as u64);
        let ballast = request.into_message().ballast;
        Ok(Response::new(Number { value: left, ballast }))
    }

    fn gated(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.gate.pass();
        self.left(request)
    }

    async fn wait(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        let _runs = self.runs();
        match request.message().value {
            0 => Ok(Response::new(number(0))),
            _ => std::future::pending().await,
        }
    }

    async fn stream(&self, _: Request<'_, Number>, out: Outgoing<Number>) -> Result<(), Status> {
        let _runs = self.runs();
        out.send(number(1)).await?;
        std::future::pending().await
    }

    /// Number of handlers that have started, and of those that have ended.
    fn counts(&self) -> (u64, u64) {
        (self.begun.load(Ordering::SeqCst), self.gone.load(Ordering::SeqCst))
    }
}

fn routes(served: &Arc<Served>, options: ServiceOptions<4>) -> Routes {
    let mut routes = Routes::new();
    routes.unary(options.method(0, LEFT), options.mode(0), served, Served::left).unwrap();
    routes.unary(options.method(1, GATED), options.mode(1), served, Served::gated).unwrap();
    routes.unary_async(options.method(2, WAIT), served, Served::wait).unwrap();
    routes.server_streaming(options.method(3, STREAM), served, Served::stream).unwrap();
    routes
}

fn bed(options: ServiceOptions<4>) -> (Arc<Served>, TestBed) {
    let served = Arc::new(Served::default());
    let bed = TestBed::new(routes(&served, options));
    (served, bed)
}

fn code<M: std::fmt::Debug>(outcome: Result<M, CallError>) -> Code {
    outcome.expect_err("the call fails").code()
}

#[test]
fn the_server_deadline_applies_only_to_calls_without_a_deadline() {
    let (_, bed) = bed(TIMED);
    let session = bed.session();
    let large = Number { value: 0, ballast: vec![1; 50_000] };
    for request in [number(0), large] {
        let left = bed.wait(session.call(&LEFT, &request)).unwrap().value;
        assert_eq!(left, WITHIN.as_micros() as u64, "the handler starts with the full time");
    }
    let patient = CallOptions::new().deadline(Duration::from_secs(3_600));
    let patient = Channel::from(session).with(patient);
    let longer = bed.wait(patient.call(&LEFT, &number(0))).unwrap().value;
    assert!((3_599_000_000..3_600_000_000).contains(&longer), "{longer} us of an hour");
}

#[test]
fn a_call_without_any_deadline_has_no_time_limit() {
    let (served, bed) = bed(DECLARED);
    let session = bed.session();
    assert_eq!(bed.wait(session.call(&LEFT, &number(0))), Ok(number(0)));
    let call = session.call(&WAIT, &number(1));
    bed.run_for(10 * WITHIN);
    assert!(!call.is_ready());
    assert_eq!(served.counts(), (2, 1));
}

#[test]
fn an_asynchronous_handler_is_dropped_at_the_servers_deadline() {
    let (served, bed) = bed(TIMED);
    let session = bed.session();
    let start = bed.now();
    assert_eq!(code(bed.wait(session.call(&WAIT, &number(1)))), Code::DeadlineExceeded);
    let took = bed.now() - start;
    assert!((WITHIN..2 * WITHIN).contains(&took), "{took:?}");
    assert_eq!(served.counts(), (1, 1));
    assert_eq!(bed.wait(session.call(&WAIT, &number(0))), Ok(number(0)), "in time");
    // The deadline's timer has no effect on a call that has ended.
    bed.run_for(2 * WITHIN);
    assert_eq!(served.counts(), (2, 2));
}

#[test]
fn a_stream_ends_at_the_servers_deadline() {
    let (served, bed) = bed(TIMED);
    let mut numbers = bed.session().server_streaming(&STREAM, &number(0));
    let start = bed.now();
    assert_eq!(bed.wait(numbers.next()), Ok(Some(number(1))));
    assert_eq!(code(bed.wait(numbers.next())), Code::DeadlineExceeded);
    let took = bed.now() - start;
    assert!((WITHIN..2 * WITHIN).contains(&took), "{took:?}");
    assert_eq!(served.counts(), (1, 1));
}

#[test]
fn a_call_that_waits_too_long_for_a_worker_does_not_start() {
    const BRIEF: ServiceOptions<4> =
        DECLARED.with("Gated", MethodOptions::new().deadline(Duration::from_micros(1)));
    const BLOCK: Method<Number, Number> = Method::new("test.Served/Block");
    let served = Arc::new(Served::default());
    let mut routes = Routes::new();
    routes.unary(BLOCK, Mode::Worker, &served, Served::gated).unwrap();
    routes.unary(BRIEF.method(1, GATED), BRIEF.mode(1), &served, Served::gated).unwrap();
    let hub = MemHub::new();
    let pool = WorkerPool::new(1, 16).unwrap();
    let server = Background::start(&hub, Arc::new(routes), Some(pool));
    let (client, session) = server.connect(&hub);
    let first = session.call(&BLOCK, &number(0));
    let late = session.call(&GATED, &number(0));
    client.run_until(|| served.gate.has_arrivals());
    client.run_for(Duration::from_millis(5));
    served.gate.open();
    assert!(client.block_on(first).is_ok());
    assert_eq!(code(client.block_on(late)), Code::DeadlineExceeded);
    assert_eq!(served.counts(), (1, 1), "the second handler has not started");
}

#[test]
fn the_server_limits_apply_whatever_the_client_limits_are() {
    const SMALL: MethodOptions = MethodOptions::new().max_request(64).max_response(32);
    let (served, bed) = bed(DECLARED.with("Left", SMALL));
    let session = bed.session();
    let filled = |len| Number { value: 0, ballast: vec![7; len] };
    assert_eq!(code(bed.wait(session.call(&LEFT, &filled(64)))), Code::InvalidArgument);
    assert_eq!(served.counts(), (0, 0));
    assert_eq!(code(bed.wait(session.call(&LEFT, &filled(40)))), Code::OutOfRange);
    assert_eq!(bed.wait(session.call(&LEFT, &filled(20))), Ok(filled(20)));
}

/// Records the end of each call.
struct Note(Arc<Mutex<Vec<Told>>>);

/// Whether the call is idempotent, and the code of its failure.
type Told = (bool, Option<Code>);

impl Interceptor for Note {
    fn after(&self, call: &CallContext<'_>, outcome: Result<(), &Status>) {
        let code = outcome.err().map(Status::code);
        self.0.lock().unwrap().push((call.is_idempotent(), code));
    }
}

#[test]
fn interceptors_see_the_options_of_the_server() {
    let notes = Arc::default();
    let served = Arc::new(Served::default());
    let options = DECLARED
        .with("Left", MethodOptions::new().idempotent(true))
        .with("Wait", MethodOptions::new().deadline(Duration::from_nanos(1)));
    let mut routes = routes(&served, options);
    routes.intercept(Note(Arc::clone(&notes)));
    let bed = TestBed::new(routes);
    let session = bed.session();
    bed.wait(session.call(&LEFT, &number(0))).unwrap();
    assert_eq!(code(bed.wait(session.call(&WAIT, &number(1)))), Code::DeadlineExceeded);
    let patient = CallOptions::new().deadline(Duration::from_secs(60));
    let patient = Channel::from(session).with(patient);
    let given_up = patient.call(&WAIT, &number(1));
    bed.run_for(Duration::from_millis(1));
    drop(given_up);
    bed.until("the server receives the cancel", || notes.lock().unwrap().len() == 3);
    let expected =
        [(true, None), (false, Some(Code::DeadlineExceeded)), (false, Some(Code::Cancelled))];
    assert_eq!(*notes.lock().unwrap(), expected);
}
