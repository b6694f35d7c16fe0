//! Tests handlers in all modes: the metadata, deadlines and views that they get, what happens when
//! they panic or their call is cancelled, and the interceptors and size limits around them.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use erpc_core::protocol::CallError;
use erpc_core::service::{
    Borrowed, CallContext, DecodeError, FieldSink, Fields, Fixed, FixedLayout, Interceptor,
    Metadata, Method, Mode, Prost, Request, Response, Routes, Viewable,
};
use erpc_core::serving::WorkerPool;
use erpc_core::status::{Code, Status};
use erpc_core::transport::Transport;
use erpc_core::zerocopy::little_endian::U64;
use erpc_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use crate::plain::{Outcome, Pair};
use crate::support::{Gate, Number, number};

const DISPATCH: Method<Number, Number> = Method::new("test.Modes/Dispatch");
const WORKER: Method<Number, Number> = Method::new("test.Modes/Worker");
const ASYNC: Method<Number, Number> = Method::new("test.Modes/Async");
const ALL: [Method<Number, Number>; 3] = [DISPATCH, WORKER, ASYNC];

type Result<T> = std::result::Result<T, Status>;

/// A table with one handler in all modes.
fn in_all_modes<S: Send + Sync + 'static>(
    service: &Arc<S>,
    handler: fn(&S, Request<'_, Number>) -> Result<Response<Number>>,
) -> Routes {
    let mut routes = Routes::new();
    add_in_all_modes(&mut routes, service, handler);
    routes
}

fn add_in_all_modes<S: Send + Sync + 'static>(
    routes: &mut Routes,
    service: &Arc<S>,
    handler: fn(&S, Request<'_, Number>) -> Result<Response<Number>>,
) {
    routes.unary(DISPATCH, Mode::Dispatch, service, handler).unwrap();
    routes.unary(WORKER, Mode::Worker, service, handler).unwrap();
    let waiting = async move |service: &S, request: Request<'_, Number>| {
        yield_once().await;
        handler(service, request)
    };
    routes.unary_async(ASYNC, service, waiting).unwrap();
}

/// Yields to other tasks once.
async fn yield_once() {
    let mut first = true;
    std::future::poll_fn(|cx| {
        cx.waker().wake_by_ref();
        match std::mem::take(&mut first) {
            true => std::task::Poll::Pending,
            false => std::task::Poll::Ready(()),
        }
    })
    .await;
}

fn encoded(message: &impl prost::Message) -> Vec<u8> {
    message.encode_to_vec()
}

fn code(outcome: Outcome) -> Code {
    outcome.expect_err("the call fails").code()
}

fn pool() -> WorkerPool {
    WorkerPool::new(1, 16).unwrap()
}

/// Runs each test over memory and over UDP.
macro_rules! over_both {
    ($($name:ident)*) => {
        mod over_mem {
            $(#[test] fn $name() { super::$name(crate::plain::mem_pair); })*
        }
        mod over_udp {
            $(#[test] fn $name() { super::$name(crate::plain::udp_pair); })*
        }
    };
}

over_both! {
    metadata_travels_both_ways
    a_malformed_extension_is_refused
    late_requests_are_not_started
    a_request_knows_its_deadline_and_its_session
    calls_end_when_their_client_leaves
    cancelled_calls_end_at_the_server
    interceptors_reject_and_observe
    panics_become_statuses
    requests_are_read_in_the_receive_buffer
    sizes_are_limited
}

fn metadata_travels_both_ways<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    fn handler(_: &(), request: Request<'_, Number>) -> Result<Response<Number>> {
        let mut reply = Metadata::new();
        for (key, value) in request.metadata().iter() {
            reply.insert(key, [value, b"!"].concat()).unwrap();
        }
        Ok(Response::new(request.into_message()).with_metadata(reply))
    }
    let workers = pool();
    let mut pair = pair(in_all_modes(&Arc::new(()), handler), &workers);
    let large = Number { value: 7, ballast: vec![3; 100_000] };
    for method in ALL {
        for message in [&number(7), &large] {
            let outcome = pair.call(method.id(), &encoded(message));
            assert_eq!(outcome, Ok((None, encoded(message))), "{method:?} without metadata");
            let entries: [(&str, &[u8]); 2] = [("trace-id", &[0, 255]), ("user", b"me")];
            let mut expected = Metadata::new();
            expected.insert("trace-id", [0, 255, b'!']).unwrap();
            expected.insert("user", b"me!").unwrap();
            let outcome = pair.call_extended(method.id(), (&entries, None), &encoded(message));
            assert_eq!(outcome, Ok((Some(expected), encoded(message))), "{method:?}");
        }
    }
}

fn a_malformed_extension_is_refused<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    let handler =
        |_: &(), _: Request<'_, Number>| panic!("the request is refused before the handler");
    let workers = pool();
    let mut pair = pair(in_all_modes(&Arc::new(()), handler), &workers);
    for method in ALL {
        // The extension's only entry extends beyond the end of the extension.
        let front = [12, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0];
        pair.client.send_raw(method.id(), &front, None, b"", 1);
        assert_eq!(code(pair.outcome(1)), Code::InvalidArgument, "{method:?}");
    }
}

/// Counts started handlers, and has a gate that holds workers back.
#[derive(Default)]
struct Slow {
    started: AtomicU64,
    gate: Gate,
}

const BLOCK_LOOP: Method<Number, Number> = Method::new("test.Modes/BlockLoop");
const BLOCK_WORKER: Method<Number, Number> = Method::new("test.Modes/BlockWorker");
/// Time left, when it is sent, of a request that becomes late.
const SHORT: Duration = Duration::from_millis(2);
/// Time left of a request that has to reach the server in time even if this thread is delayed.
const LONG: Duration = Duration::from_millis(100);

fn late_requests_are_not_started<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    let slow = Arc::new(Slow::default());
    let count = |slow: &Slow, request: Request<'_, Number>| {
        slow.started.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(request.into_message()))
    };
    let mut routes = in_all_modes(&slow, count);
    let block_loop = |_: &Slow, request: Request<'_, Number>| {
        pass_time(2 * SHORT);
        Ok(Response::new(request.into_message()))
    };
    let block_worker = |slow: &Slow, request: Request<'_, Number>| {
        slow.gate.pass();
        Ok(Response::new(request.into_message()))
    };
    routes.unary(BLOCK_LOOP, Mode::Dispatch, &slow, block_loop).unwrap();
    routes.unary(BLOCK_WORKER, Mode::Worker, &slow, block_worker).unwrap();
    let workers = pool();
    let mut pair = pair(routes, &workers);

    // The server's event loop learns that its turns are long. This must not change which requests
    // are late.
    pair.client.send(BLOCK_LOOP.id(), b"", 1);
    pair.exchange(&[1]);
    // The two requests of a pair are one burst. In the first pair, the handler of the second
    // request runs after the blocking handler. In the second pair, the first request's task starts
    // only after the blocking handler. A socket may split the burst. Then the request with the
    // deadline is in time, and the `while` loop below tries again.
    let mut sent = 0;
    for (first, second, late) in [(BLOCK_LOOP, DISPATCH, 1), (ASYNC, BLOCK_LOOP, 2)] {
        while pair.late() < late {
            for (method, token) in [(first, 1), (second, 2)] {
                let left = if method.id() == BLOCK_LOOP.id() { None } else { Some(SHORT) };
                pair.client.send_extended(method.id(), (&[], left), b"", token);
            }
            pair.exchange(&[1, 2]);
            sent += 1;
            assert!(sent < 200, "a request after a long handler is late");
        }
    }
    // The next request waits for the only worker until its deadline has passed.
    pair.client.send(BLOCK_WORKER.id(), b"", 1);
    pair.run_until(|_| slow.gate.has_arrivals());
    let requests = pair.requests();
    pair.client.send_extended(WORKER.id(), (&[], Some(LONG)), b"", 2);
    pair.client.turn();
    // Until `exchange`, only the server's loop runs. The client's loop would notice the deadline
    // itself, and would end and cancel the call.
    pair.serve_until(|pair| pair.requests() > requests);
    pass_time(LONG);
    slow.gate.open();
    pair.serve_until(|pair| pair.late() == 3);
    pair.exchange(&[1, 2]);
    assert_eq!(slow.started.load(Ordering::Relaxed), sent - 2, "late requests have not started");
    let in_time = (&[][..], Some(Duration::from_secs(60)));
    for method in ALL {
        assert!(pair.call_extended(method.id(), in_time, b"").is_ok());
    }
    assert_eq!(slow.started.load(Ordering::Relaxed), sent - 2 + 3);
}

/// Spins for `time`, like a long handler.
fn pass_time(time: Duration) {
    let start = Instant::now();
    while start.elapsed() < time {
        std::hint::spin_loop();
    }
}

fn a_request_knows_its_deadline_and_its_session<T: Transport>(
    pair: impl Fn(Routes, &WorkerPool) -> Pair<T>,
) {
    fn handler(_: &(), request: Request<'_, Number>) -> Result<Response<Number>> {
        let left = request.time_left().map_or(0, |left| left.as_millis() as u64);
        let is_worker = request.method() == Some(WORKER.full_name());
        assert_eq!(request.session_stats().is_none(), is_worker, "{:?}", request.context());
        assert!(!request.is_cancelled());
        Ok(Response::new(number(left)))
    }
    let workers = pool();
    let mut pair = pair(in_all_modes(&Arc::new(()), handler), &workers);
    for method in ALL {
        assert_eq!(pair.call(method.id(), b""), Ok((None, encoded(&number(0)))), "{method:?}");
        let minute = (&[][..], Some(Duration::from_secs(60)));
        let (_, reply) = pair.call_extended(method.id(), minute, b"").unwrap();
        let left = <Number as prost::Message>::decode(&reply[..]).unwrap().value;
        assert!((1..=60_001).contains(&left), "{method:?}: {left} ms");
    }
}

/// Handlers that do not return by themselves.
#[derive(Default)]
struct Endless {
    started: AtomicU64,
    ended: AtomicU64,
}

/// Increments the counter when it is dropped.
struct Held<'a>(&'a AtomicU64);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Release);
    }
}

impl Endless {
    fn routes(self: &Arc<Self>) -> Routes {
        let mut routes = Routes::new();
        let task = async |endless: &Self, _: Request<'_, Number>| {
            endless.started.fetch_add(1, Ordering::Release);
            let _held = Held(&endless.ended);
            std::future::pending::<Result<Response<Number>>>().await
        };
        let worker = |endless: &Self, request: Request<'_, Number>| {
            endless.started.fetch_add(1, Ordering::Release);
            let _held = Held(&endless.ended);
            while !request.is_cancelled() {
                std::thread::yield_now();
            }
            Err::<Response<Number>, _>(Status::cancelled("the caller has cancelled the call"))
        };
        routes.unary_async(ASYNC, self, task).unwrap();
        routes.unary(WORKER, Mode::Worker, self, worker).unwrap();
        routes
    }

    fn counts(&self) -> (u64, u64) {
        (self.started.load(Ordering::Acquire), self.ended.load(Ordering::Acquire))
    }
}

fn calls_end_when_their_client_leaves<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    let endless = Arc::new(Endless::default());
    let workers = pool();
    let mut pair = pair(endless.routes(), &workers);
    pair.client.send(ASYNC.id(), b"", 1);
    pair.client.send(WORKER.id(), b"", 2);
    pair.run_until(|_| endless.counts() == (2, 0));
    pair.client.leave();
    pair.run_until(|_| endless.counts() == (2, 2));
}

fn cancelled_calls_end_at_the_server<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    let endless = Arc::new(Endless::default());
    let seen = Arc::new(Mutex::new(Vec::new()));
    let mut routes = endless.routes();
    routes.intercept(Watch { name: "watch", seen: Arc::clone(&seen) });
    let workers = pool();
    let mut pair = pair(routes, &workers);
    pair.client.send(ASYNC.id(), b"", 1);
    pair.client.send(WORKER.id(), b"", 2);
    pair.run_until(|_| endless.counts() == (2, 0));
    assert!(pair.client.cancel(1) && pair.client.cancel(2));
    for token in [1, 2] {
        assert_eq!(code(pair.outcome(token)), Code::Cancelled);
    }
    pair.run_until(|_| endless.counts() == (2, 2));
    pair.run_until(|_| seen.lock().unwrap().len() == 4);
    assert_eq!(seen.lock().unwrap()[2..], ["after watch: Cancelled", "after watch: Cancelled"]);
}

/// Records the calls that it sees, and refuses or panics if the metadata says so.
struct Watch {
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Interceptor for Watch {
    fn before(&self, call: &CallContext<'_>) -> Result<()> {
        let name = self.name;
        if call.metadata().get("refuse") == Some(name.as_bytes()) {
            return Err(Status::permission_denied(name));
        }
        if call.metadata().get("panic") == Some(name.as_bytes()) {
            panic!("the interceptor panics");
        }
        self.seen.lock().unwrap().push(format!("before {name}"));
        Ok(())
    }

    fn after(&self, call: &CallContext<'_>, outcome: std::result::Result<(), &Status>) {
        let code = outcome.map_or_else(Status::code, |()| Code::Ok);
        let name = self.name;
        assert!(ALL.iter().any(|method| method.full_name() == call.method()));
        self.seen.lock().unwrap().push(format!("after {name}: {code}"));
    }
}

fn interceptors_reject_and_observe<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    /// Fails with `NOT_FOUND` for 0, panics for 13, and defers its answer for 7.
    fn handler(_: &(), request: Request<'_, Number>) -> Result<Response<Number>> {
        match request.message().value {
            0 => Err(Status::not_found("zero is nothing")),
            13 => panic!("the handler panics on 13"),
            7 => Ok(request.defer(|number, responder| responder.send(&number))),
            _ => Ok(Response::new(request.into_message())),
        }
    }
    let seen = Arc::new(Mutex::new(Vec::new()));
    let watch = |name| Watch { name, seen: Arc::clone(&seen) };
    // One interceptor is added before the methods, one after them.
    let mut routes = Routes::new();
    routes.intercept(watch("outer"));
    add_in_all_modes(&mut routes, &Arc::new(()), handler);
    routes.intercept(watch("inner"));
    let workers = pool();
    let mut pair = pair(routes, &workers);
    let passed = |code: Code| {
        let after = ["inner", "outer"].map(|name| format!("after {name}: {code}"));
        [&["before outer".to_owned(), "before inner".to_owned()][..], &after].concat()
    };
    for method in ALL {
        for (value, expected) in
            [(1, Code::Ok), (0, Code::NotFound), (13, Code::Internal), (7, Code::Ok)]
        {
            let outcome = pair.call(method.id(), &encoded(&number(value)));
            let got = outcome.as_ref().map_or_else(CallError::code, |_| Code::Ok);
            assert_eq!(got, expected, "{method:?} of {value}");
            assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), passed(expected), "{method:?}");
        }
        for (what, interceptor, expected, seen_then) in [
            ("refuse", "outer", Code::PermissionDenied, &[][..]),
            (
                "refuse",
                "inner",
                Code::PermissionDenied,
                &["before outer", "after outer: PermissionDenied"],
            ),
            ("panic", "inner", Code::Internal, &["before outer", "after outer: Internal"]),
        ] {
            let entries = [(what, interceptor.as_bytes())];
            let outcome = pair.call_extended(method.id(), (&entries, None), &encoded(&number(1)));
            assert_eq!(code(outcome), expected, "{method:?}");
            assert_eq!(std::mem::take(&mut *seen.lock().unwrap()), seen_then, "{method:?}");
        }
    }
}

fn panics_become_statuses<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    fn handler(_: &(), request: Request<'_, Number>) -> Result<Response<Number>> {
        match request.message().value {
            13 => panic!("the handler panics on 13"),
            _ => Ok(Response::new(request.into_message())),
        }
    }
    let workers = pool();
    let mut pair = pair(in_all_modes(&Arc::new(()), handler), &workers);
    for method in ALL {
        assert_eq!(code(pair.call(method.id(), &encoded(&number(13)))), Code::Internal);
        assert!(pair.call(method.id(), &encoded(&number(1))).is_ok(), "{method:?} still works");
    }
}

/// A message with a view.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Put {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(bytes = "vec", tag = "2")]
    value: Vec<u8>,
}

#[derive(Clone, Copy, Default)]
struct PutView<'a> {
    key: &'a str,
    value: &'a [u8],
}

impl Viewable for Put {
    type View<'a> = PutView<'a>;

    fn merge_view<'a>(
        view: &mut PutView<'a>,
        bytes: &'a [u8],
    ) -> std::result::Result<(), DecodeError> {
        let mut fields = Fields::new(bytes);
        while let Some(key) = fields.next()? {
            match key {
                0x0a => view.key = fields.string()?,
                0x12 => view.value = fields.bytes()?,
                _ => fields.other(key, &[1, 2])?,
            }
        }
        Ok(())
    }

    fn write_view(view: &PutView<'_>, fields: &mut impl FieldSink) {
        if !view.key.is_empty() {
            fields.string(1, view.key);
        }
        if !view.value.is_empty() {
            fields.bytes(2, view.value);
        }
    }
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[zerocopy(crate = "erpc_core::zerocopy")]
#[repr(C)]
struct Point {
    x: U64,
    y: U64,
}

impl FixedLayout for Point {}

const PUT: Method<Put, Number, Borrowed, Prost> = Method::new("test.Views/Put");
const PUT_WORKER: Method<Put, Number, Borrowed, Prost> = Method::new("test.Views/PutWorker");
const MOVE: Method<Point, Point, Fixed> = Method::new("test.Views/Move");

/// Whether the message directly follows the metadata in memory, as in the receive buffer.
fn follows(metadata: &[u8], message: *const u8) -> bool {
    std::ptr::eq(metadata.as_ptr_range().end, message)
}

fn requests_are_read_in_the_receive_buffer<T: Transport>(
    pair: impl Fn(Routes, &WorkerPool) -> Pair<T>,
) {
    fn put(_: &(), request: Request<'_, PutView<'_>>) -> Result<Response<Number>> {
        let PutView { key, value } = *request.message();
        let metadata = request.metadata().get("m").ok_or_else(|| Status::internal("none"))?;
        // Tag and length precede the key.
        assert!(follows(metadata, key.as_ptr().wrapping_sub(2)), "the request was copied");
        assert!(std::ptr::eq(key.as_bytes().as_ptr_range().end.wrapping_add(2), value.as_ptr()));
        Ok(Response::new(number(value.len() as u64)))
    }
    fn shift(_: &(), request: Request<'_, &Point>) -> Result<Response<Point>> {
        let point: &Point = request.message();
        let metadata = request.metadata().get("m").ok_or_else(|| Status::internal("none"))?;
        assert!(follows(metadata, std::ptr::from_ref(point).cast()), "the request was copied");
        Ok(Response::new(Point { x: point.y, y: point.x }))
    }
    let mut routes = Routes::new();
    let service = Arc::new(());
    routes.unary(PUT, Mode::Dispatch, &service, put).unwrap();
    routes.unary(PUT_WORKER, Mode::Worker, &service, put).unwrap();
    routes.unary(MOVE, Mode::Dispatch, &service, shift).unwrap();
    let workers = pool();
    let mut pair = pair(routes, &workers);
    let entries: (&[(&str, &[u8])], _) = (&[("m", b"v")], None);
    let body = encoded(&Put { key: "key".into(), value: vec![9; 100] });
    for method in [PUT, PUT_WORKER] {
        let (_, reply) = pair.call_extended(method.id(), entries, &body).unwrap();
        assert_eq!(reply, encoded(&number(100)));
        let bad = pair.call_extended(method.id(), entries, &[0x0a, 200]);
        assert_eq!(code(bad), Code::InvalidArgument);
    }
    let point = Point { x: U64::new(1), y: U64::new(2) };
    let (_, reply) = pair.call_extended(MOVE.id(), entries, point.as_bytes()).unwrap();
    assert_eq!(reply, Point { x: point.y, y: point.x }.as_bytes());
    let short = pair.call_extended(MOVE.id(), entries, &point.as_bytes()[1..]);
    assert_eq!(code(short), Code::InvalidArgument);
}

fn sizes_are_limited<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    const UP_TO: Method<Number, Number> =
        Method::new("test.Limits/UpTo").max_request(10).max_response(100);
    const ASYNC_UP_TO: Method<Number, Number> =
        Method::new("test.Limits/AsyncUpTo").max_request(10).max_response(100);
    fn grow(_: &(), request: Request<'_, Number>) -> Result<Response<Number>> {
        let ballast = vec![1; request.message().value as usize];
        Ok(Response::new(Number { value: 0, ballast }))
    }
    let mut routes = Routes::new();
    let service = Arc::new(());
    routes.unary(UP_TO, Mode::Dispatch, &service, grow).unwrap();
    let grow_later = async |unit: &(), request: Request<'_, Number>| grow(unit, request);
    routes.unary_async(ASYNC_UP_TO, &service, grow_later).unwrap();
    let workers = pool();
    let mut pair = pair(routes, &workers);
    for method in [UP_TO, ASYNC_UP_TO] {
        let (_, reply) = pair.call(method.id(), &encoded(&number(98))).unwrap();
        assert_eq!(reply.len(), 100);
        assert_eq!(code(pair.call(method.id(), &encoded(&number(99)))), Code::OutOfRange);
        let large = Number { value: 1, ballast: vec![0; 7] };
        assert_eq!(encoded(&large).len(), 11);
        assert_eq!(code(pair.call(method.id(), &encoded(&large))), Code::InvalidArgument);
    }
}
