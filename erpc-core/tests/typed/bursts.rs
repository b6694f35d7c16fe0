//! Burst hooks: which requests they see, when they run, and what they leave for the handlers.

use std::collections::HashSet;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use erpc_core::protocol::CallError;
use erpc_core::service::{
    Borrowed, Burst, DecodeError, FieldSink, Fixed, FixedLayout, Method, Mode, Outgoing, Prost,
    Request, Response, Routes, Viewable,
};
use erpc_core::serving::WorkerPool;
use erpc_core::status::{Code, Status};
use erpc_core::transport::Transport;
use erpc_core::transport::fault::{FaultPlan, Faults};
use erpc_core::zerocopy::little_endian::U64;
use erpc_core::zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};
use prost::Message;

use crate::plain::{Outcome, Pair, faulty_pair, mem_pair};
use crate::support::{Number, number};

type Result<T> = std::result::Result<T, Status>;

const GET: Method<Number, Number> = Method::new("test.Bursts/Get");
const PUT: Method<Number, Number> = Method::new("test.Bursts/Put");
const WORKER: Method<Number, Number> = Method::new("test.Bursts/Worker");
const ASYNC: Method<Number, Number> = Method::new("test.Bursts/Async");
/// Without a hook.
const PLAIN: Method<Number, Number> = Method::new("test.Bursts/Plain");

/// The methods with a hook.
const HOOKED: [Method<Number, Number>; 4] = [GET, PUT, WORKER, ASYNC];

/// What the service's functions did, in order.
#[derive(PartialEq, Eq, Debug)]
enum Step {
    /// A hook ran, on these values.
    Hook(Vec<u64>),
    /// A handler ran, on this value and with this note.
    Handler(u64, Option<u64>),
}

use Step::{Handler, Hook};

#[derive(Default)]
struct Service(Mutex<Vec<Step>>);

impl Service {
    fn handle(&self, request: Request<'_, Number>) -> Result<Response<Number>> {
        self.log(Handler(request.message().value, request.note()));
        Ok(Response::new(request.into_message()))
    }

    /// Leaves ten times the value as the note, except for 3. Panics if there is a 13.
    fn hook(&self, burst: Burst<'_, Number>) {
        let values: Vec<_> = burst.iter().map(|request| request.message().value).collect();
        assert!(!values.contains(&13), "the hook panics on 13");
        self.log(Hook(values));
        for request in &burst {
            if request.message().value != 3 {
                request.set_note(request.message().value * 10);
            }
        }
    }

    fn log(&self, step: Step) {
        self.0.lock().unwrap().push(step);
    }

    fn steps(&self) -> Vec<Step> {
        std::mem::take(&mut *self.0.lock().unwrap())
    }

    fn routes(self: &Arc<Self>) -> Routes {
        let mut routes = Routes::new();
        for method in [GET, PUT, PLAIN] {
            routes.unary(method, Mode::Dispatch, self, Self::handle).unwrap();
        }
        routes.unary(WORKER, Mode::Worker, self, Self::handle).unwrap();
        let later = async |service: &Self, request: Request<'_, Number>| service.handle(request);
        routes.unary_async(ASYNC, self, later).unwrap();
        for method in HOOKED {
            routes.on_burst(method, self, Self::hook);
        }
        routes
    }
}

/// A pair of endpoints with the service, and an open session.
fn served<T: Transport>(
    pair: impl Fn(Routes, &WorkerPool) -> Pair<T>,
) -> (Pair<T>, Arc<Service>, WorkerPool) {
    let (service, workers) = (Arc::new(Service::default()), WorkerPool::new(1, 16).unwrap());
    let mut pair = pair(service.routes(), &workers);
    // From now on, the client sends calls at once.
    assert!(pair.call(PLAIN.id(), &encoded(0)).is_ok());
    assert_eq!(service.steps(), [Handler(0, None)]);
    (pair, service, workers)
}

fn encoded(value: u64) -> Vec<u8> {
    number(value).encode_to_vec()
}

fn code(outcome: Outcome) -> Code {
    outcome.expect_err("the call fails").code()
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
    hooks_run_before_handlers
    messages_of_any_size_with_and_without_metadata_reach_the_hook
}

fn hooks_run_before_handlers<T: Transport>(pair: impl Fn(Routes, &WorkerPool) -> Pair<T>) {
    let (mut pair, service, _workers) = served(pair);
    for value in 100..200 {
        pair.client.send(GET.id(), &encoded(value), value);
    }
    pair.exchange(&Vec::from_iter(100..200));
    // How many requests a burst brings depends on the transport.
    let mut foreseen = Vec::new();
    for step in service.steps() {
        match step {
            Hook(values) => {
                assert!(foreseen.is_empty(), "the handlers of {foreseen:?} did not run");
                foreseen = values;
            }
            Handler(value, _) => assert_eq!(foreseen.remove(0), value),
        }
    }
}

#[test]
fn each_hook_runs_once_per_burst_before_the_handlers() {
    let (mut pair, service, _workers) = served(mem_pair);
    let burst = [(GET, 1), (PLAIN, 2), (PUT, 3), (GET, 4), (PLAIN, 5), (PUT, 6), (GET, 7)];
    for round in 0..2 {
        for (method, value) in burst {
            pair.client.send(method.id(), &encoded(value), value);
        }
        pair.client.turn();
        pair.exchange(&[1, 2, 3, 4, 5, 6, 7]);
        let expected = [
            Hook(vec![1, 4, 7]),
            Hook(vec![3, 6]),
            Handler(1, Some(10)),
            Handler(2, None),
            Handler(3, None),
            Handler(4, Some(40)),
            Handler(5, None),
            Handler(6, Some(60)),
            Handler(7, Some(70)),
        ];
        assert_eq!(service.steps(), expected, "round {round}");
    }
}

fn messages_of_any_size_with_and_without_metadata_reach_the_hook<T: Transport>(
    pair: impl Fn(Routes, &WorkerPool) -> Pair<T>,
) {
    let (mut pair, service, _workers) = served(pair);
    let large = Number { value: 8, ballast: vec![3; 100_000] };
    for method in HOOKED {
        for message in [number(0), number(7), large.clone()] {
            let bytes = message.encode_to_vec();
            assert_eq!(pair.call(method.id(), &bytes), Ok((None, bytes.clone())));
            let entries: [(&str, &[u8]); 1] = [("user", b"me")];
            let outcome = pair.call_extended(method.id(), (&entries, None), &bytes);
            assert_eq!(outcome, Ok((None, bytes)), "{method:?}");
            // Workers and tasks get no notes.
            let in_loop = method.id() == GET.id() || method.id() == PUT.id();
            let call = [
                Hook(vec![message.value]),
                Handler(message.value, in_loop.then_some(message.value * 10)),
            ];
            let steps = service.steps();
            assert_eq!((&steps[..2], &steps[2..]), (&call[..], &call[..]), "{method:?}");
        }
    }
}

#[test]
fn a_call_that_is_cancelled_in_its_burst_runs_like_any_other_and_frees_its_slot() {
    let (mut pair, service, _workers) = served(mem_pair);
    for method in HOOKED {
        // All slots of the session, so that a slot that stays occupied is noticed.
        for round in 0..2 {
            for token in 0..8 {
                pair.client.send(method.id(), &encoded(token), token);
            }
            for token in 0..7 {
                assert!(pair.client.cancel(token));
            }
            pair.client.turn();
            for token in 0..7 {
                let outcome = pair.outcome(token);
                assert!(
                    matches!(outcome, Err(CallError::MaybeExecuted(_))),
                    "{method:?}, round {round}, call {token}: {outcome:?}"
                );
            }
            assert_eq!(pair.outcome(7), Ok((None, encoded(7))));
            assert_eq!(service.steps()[0], Hook((0..8).collect()), "{method:?}, round {round}");
        }
    }
    let stats = pair.server.stats().unwrap();
    assert_eq!(stats.protocol.orphaned_responses, 0);
}

#[test]
fn a_hook_sees_a_request_of_many_packets_alone_and_the_others_of_its_burst_before() {
    let (mut pair, service, _workers) = served(mem_pair);
    let large = Number { value: 9, ballast: vec![3; 5_000] }.encode_to_vec();
    pair.client.send(GET.id(), &encoded(1), 1);
    pair.client.send(GET.id(), &large, 9);
    pair.client.send(GET.id(), &encoded(2), 2);
    pair.client.turn();
    for (token, answer) in [(1, encoded(1)), (2, encoded(2)), (9, large)] {
        assert_eq!(pair.outcome(token), Ok((None, answer)));
    }
    let expected = [
        Hook(vec![1, 2]),
        Handler(1, Some(10)),
        Hook(vec![9]),
        Handler(9, Some(90)),
        Handler(2, Some(20)),
    ];
    assert_eq!(service.steps(), expected);
}

#[test]
fn each_handler_has_its_own_note_when_packets_are_lost_repeated_damaged_and_out_of_order() {
    let faults = Faults::none()
        .drop(0.05)
        .duplicate(0.2, 2, Duration::from_micros(20))
        .reorder(0.2, Duration::from_micros(20))
        .corrupt(0.05)
        .truncate(0.05);
    let (service, workers) = (Arc::new(Service::default()), WorkerPool::new(1, 16).unwrap());
    let mut pair = faulty_pair(service.routes(), &workers, &FaultPlan::new(7).both(faults));
    for value in 100..400 {
        let method = [GET, PUT, PLAIN][value as usize % 3];
        let ballast = if value % 10 == 0 { vec![3; 5_000] } else { Vec::new() };
        pair.client.send(method.id(), &Number { value, ballast }.encode_to_vec(), value);
    }
    for value in 100..400 {
        let outcome = pair.outcome(value);
        assert!(outcome.is_ok(), "{value}: {outcome:?}");
    }
    let (mut seen, mut ran) = (HashSet::new(), HashSet::new());
    for step in service.steps() {
        match step {
            Hook(values) => seen.extend(values),
            Handler(value, note) => {
                assert!(ran.insert(value), "{value} has run twice");
                let has_hook = value % 3 != 2;
                assert_eq!(note, has_hook.then_some(value * 10), "{value}");
                assert_eq!(seen.contains(&value), has_hook, "{value}");
            }
        }
    }
    assert_eq!(ran.len(), 300);
}

#[test]
fn requests_whose_session_ends_in_their_burst_leave_nothing_behind() {
    let (mut pair, _, workers) = served(mem_pair);
    for (token, method) in (1..).zip([GET, ASYNC, GET, WORKER, ASYNC]) {
        pair.client.send(method.id(), &encoded(token), token);
    }
    pair.client.leave();
    pair.serve_until(|pair| pair.server.stats().unwrap().server_sessions == 0);
    drop(workers);
    pair.serve_until(|pair| pair.server.stats().unwrap().pool.in_use == 0);
    let stats = pair.server.stats().unwrap().protocol;
    assert_eq!(stats.requests, 6);
    // Nobody waits for the worker's answer, unless it came within the burst.
    assert!(stats.orphaned_responses <= 1, "{stats:?}");
}

#[test]
fn a_hook_that_panics_stops_no_handler() {
    let (mut pair, service, _workers) = served(mem_pair);
    for value in [12, 13] {
        pair.client.send(GET.id(), &encoded(value), value);
    }
    pair.client.turn();
    for value in [12, 13] {
        assert_eq!(pair.outcome(value), Ok((None, encoded(value))));
    }
    assert_eq!(service.steps(), [Handler(12, None), Handler(13, None)]);
    assert_eq!(pair.call(GET.id(), &encoded(1)), Ok((None, encoded(1))));
    assert_eq!(service.steps(), [Hook(vec![1]), Handler(1, Some(10))]);
}

#[test]
fn requests_that_do_not_reach_their_handler_do_not_reach_the_hook() {
    let service = Arc::new(Service::default());
    let mut routes = Routes::new();
    let method = GET.max_request(100);
    routes.unary(method, Mode::Dispatch, &service, Service::handle).unwrap();
    routes.on_burst(method, &service, Service::hook);
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes, &workers);
    let large = Number { value: 1, ballast: vec![0; 100] }.encode_to_vec();
    pair.client.send(GET.id(), &large, 1);
    pair.client.send(GET.id(), &[0xff], 2);
    // The extension's only entry extends beyond the end of the extension.
    pair.client.send_raw(GET.id(), &[12, 0, 0, 0, 0, 0, 0, 0, 9, 0, 0, 0], None, b"", 3);
    pair.client.send(GET.id(), &encoded(4), 4);
    pair.client.turn();
    for token in 1..4 {
        assert_eq!(code(pair.outcome(token)), Code::InvalidArgument, "{token}");
    }
    assert_eq!(pair.outcome(4), Ok((None, encoded(4))));
    assert_eq!(service.steps(), [Hook(vec![4]), Handler(4, Some(40))]);
}

#[derive(FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
struct Key(U64);

impl FixedLayout for Key {}

/// A view of the text in a `Text`.
#[derive(Default)]
struct TextView<'a>(&'a [u8]);

#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Text {}

impl Viewable for Text {
    type View<'a> = TextView<'a>;

    fn merge_view<'a>(
        view: &mut TextView<'a>,
        bytes: &'a [u8],
    ) -> std::result::Result<(), DecodeError> {
        view.0 = bytes;
        Ok(())
    }

    fn write_view(view: &TextView<'_>, fields: &mut impl FieldSink) {
        fields.raw(view.0);
    }
}

#[test]
fn a_hook_reads_the_same_bytes_as_its_handler() {
    #[derive(Default)]
    struct Places(AtomicU64);

    impl Places {
        fn handle(&self, place: *const u8) -> Result<Response<Number>> {
            assert_eq!(place.addr() as u64, self.0.load(Ordering::Relaxed));
            Ok(Response::new(number(1)))
        }

        fn note(&self, place: *const u8) {
            self.0.store(place.addr() as u64, Ordering::Relaxed);
        }
    }

    const FIXED: Method<Key, Number, Fixed, Prost> = Method::new("test.Bursts/Fixed");
    const BORROWED: Method<Text, Number, Borrowed, Prost> = Method::new("test.Bursts/Borrowed");
    let (service, mut routes) = (Arc::new(Places::default()), Routes::new());
    let handler = |service: &Places, request: Request<'_, &Key>| {
        service.handle(std::ptr::from_ref(*request.message()).cast())
    };
    routes.unary(FIXED, Mode::Dispatch, &service, handler).unwrap();
    routes.on_burst(FIXED, &service, |service, burst: Burst<'_, &Key>| {
        burst.into_iter().for_each(|key| service.note(std::ptr::from_ref(*key.message()).cast()));
    });
    let handler = |service: &Places, request: Request<'_, TextView<'_>>| {
        service.handle(request.message().0.as_ptr())
    };
    routes.unary(BORROWED, Mode::Dispatch, &service, handler).unwrap();
    routes.on_burst(BORROWED, &service, |service, burst: Burst<'_, TextView<'_>>| {
        burst.into_iter().for_each(|text| service.note(text.message().0.as_ptr()));
    });
    let workers = WorkerPool::new(1, 16).unwrap();
    let mut pair = mem_pair(routes, &workers);
    let large = vec![7; 50_000];
    for (method, bytes) in
        [(FIXED.id(), &[1; 8][..]), (BORROWED.id(), b"text"), (BORROWED.id(), &large)]
    {
        assert_eq!(pair.call(method, bytes), Ok((None, encoded(1))));
    }
}

#[test]
#[should_panic(
    expected = "test.Bursts/Get has no handler yet; add its handler before its burst hook"
)]
fn a_hook_needs_a_handler() {
    Routes::new().on_burst(GET, &Arc::new(Service::default()), Service::hook);
}

#[test]
#[should_panic(expected = "test.Bursts/Get has a burst hook already")]
fn a_method_has_one_hook() {
    let service = Arc::new(Service::default());
    service.routes().on_burst(GET, &service, Service::hook);
}

#[test]
#[should_panic(expected = "test.Bursts/Get streams; a burst hook is for methods with one request")]
fn a_stream_has_no_hook() {
    let (service, mut routes) = (Arc::new(Service::default()), Routes::new());
    let stream = async |_: &Service, _: Request<'_, Number>, _: Outgoing<Number>| Ok(());
    routes.server_streaming(GET, &service, stream).unwrap();
    routes.on_burst(GET, &service, Service::hook);
}
