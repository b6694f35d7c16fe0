//! Edge cases: foreign wakers, endpoints and worker pools that end while their own tasks, callbacks
//! or handlers hold them, pools without threads, responses of worker threads.

use std::cell::Cell;
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::{CallError, EndpointConfig};
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::serving::WorkerPool;
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::{MemConfig, MemHub, MemTransport};

use crate::support::{Background, DOUBLE, Number, math, number};

#[test]
fn a_call_is_polled_with_a_foreign_waker_that_has_no_data() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let mut call = pin!(session.call(&DOUBLE, &number(4)));
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        let mut cx = Context::from_waker(Waker::noop());
        if let Poll::Ready(reply) = call.as_mut().poll(&mut cx) {
            assert_eq!(reply, Ok(number(8)));
            return;
        }
        endpoint.run_once();
    }
    panic!("no reply");
}

/// Increments a counter when it is dropped.
struct Canary(Rc<Cell<u32>>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

/// Holds `kept` in the callback of a call. The callback makes the next call and passes `kept` on.
fn call_for_ever(session: Session<MemTransport>, kept: Rc<Canary>) {
    let next = session.clone();
    session.call_with(&DOUBLE, &number(1), move |_: Result<Number, CallError>| {
        assert_eq!(kept.0.get(), 0, "the callback holds the canary");
        call_for_ever(next, kept);
    });
}

#[test]
fn a_callback_that_always_calls_again_ends_with_its_endpoint() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let ended = Rc::new(Cell::new(0));
    let (endpoint, session) = server.connect(&hub);
    call_for_ever(session, Rc::new(Canary(Rc::clone(&ended))));
    endpoint.run_for(Duration::from_millis(20));
    drop(endpoint);
    assert_eq!(ended.get(), 1);
}

#[test]
fn shutdown_ends_an_endpoint_that_one_of_its_tasks_holds() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let ended = Rc::new(Cell::new(0));
    let (endpoint, session) = server.connect(&hub);
    let (held, canary) = (endpoint.clone(), Canary(Rc::clone(&ended)));
    drop(endpoint.spawn(async move {
        let _held = (held, canary);
        std::future::pending::<()>().await;
    }));
    endpoint.run_once();
    endpoint.shutdown();
    endpoint.shutdown();
    assert_eq!(ended.get(), 1);
    let late = endpoint.block_on(session.call(&DOUBLE, &number(1)));
    assert!(matches!(late, Err(CallError::NotExecuted(_))), "{late:?}");
}

#[test]
fn a_pool_without_threads_is_refused() {
    let error = WorkerPool::new(0, 8).expect_err("a pool needs a thread");
    assert_eq!(error.kind(), std::io::ErrorKind::InvalidInput);
}

struct Big;

const BIG: Method<Number, Number> = Method::new("test.Big/Big");

impl Big {
    fn big(&self, _: Request<'_, Number>) -> Result<Response<Number>, Status> {
        Ok(Response::new(Number { value: 1, ballast: vec![7; 500_000] }))
    }
}

#[test]
fn responses_of_worker_threads_count_against_the_endpoints_memory() {
    const LIMIT: usize = 4 << 20;
    let hub = MemHub::new();
    let config = EndpointConfig::new().max_message(1 << 20).memory_limit(LIMIT);
    let server = Endpoint::new(hub.port(MemConfig::default()), config).expect("a server");
    let mut routes = Routes::new();
    routes.unary(BIG, Mode::Worker, &Arc::new(Big), Big::big).expect("one method");
    let pool = WorkerPool::new(1, 64).expect("a thread");
    server.listen();
    assert!(server.serve(Arc::new(routes), Some(&pool)));
    let route = server.local_route().expect("outside of the loop");
    let client =
        Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new()).expect("a client");

    // The client does not run after its calls, so the responses stay at the server.
    let sessions: Vec<_> = (0..4).map(|_| client.open(route)).collect();
    let turn = || client.run_once() + server.run_once();
    while !sessions.iter().all(Session::is_open) {
        turn();
    }
    let call = |session: &Session<MemTransport>| session.call(&BIG, &number(1));
    let calls: Vec<_> =
        sessions.iter().flat_map(|session| [(); 8].map(|()| call(session))).collect();
    client.run_once();
    let stats = || server.stats().expect("outside of the loop");
    let before = stats().transport.tx_packets;
    let end = Instant::now() + Duration::from_secs(20);
    while stats().transport.tx_packets < before + 32 && Instant::now() < end {
        server.run_once();
    }
    assert_eq!(stats().transport.tx_packets - before, 32, "one packet for each call");
    let held = stats().pool.in_use_bytes;
    assert!((LIMIT / 2..=LIMIT + (64 << 10)).contains(&held), "{held} bytes are counted");

    let mut refused = 0;
    for call in calls {
        while !call.is_ready() {
            turn();
        }
        match client.block_on(call) {
            Ok(number) => assert_eq!(number.ballast.len(), 500_000),
            Err(CallError::Status(status)) if status.code() == Code::ResourceExhausted => {
                refused += 1
            }
            Err(error) => panic!("{error}"),
        }
    }
    assert!(refused > 0, "16 MB of responses exceed the limit of 4 MiB");
}

/// A handler that drops the pool that runs it, when the test allows it.
struct Ending {
    pool: Mutex<Option<WorkerPool>>,
    arrived: AtomicBool,
    go: Mutex<Receiver<()>>,
}

const END: Method<Number, Number> = Method::new("test.Ending/End");

impl Ending {
    fn end(&self, request: Request<'_, Number>) -> Result<Response<Number>, Status> {
        self.arrived.store(true, Ordering::Release);
        // `recv` returns an error when the test drops the sender.
        let _held = self.go.lock().expect("one handler at a time").recv();
        drop(self.pool.lock().expect("one handler at a time").take());
        Ok(Response::new(request.into_message()))
    }
}

#[test]
fn a_handler_drops_its_own_pool_while_the_queue_is_full() {
    let hub = MemHub::new();
    let port = || Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new());
    let (server, client) = (port().expect("a server"), port().expect("a client"));
    let (hold, go) = channel();
    let pool = WorkerPool::new(1, 1).expect("a thread");
    let arrived = AtomicBool::new(false);
    let ending = Arc::new(Ending { pool: Mutex::new(None), arrived, go: Mutex::new(go) });
    let mut routes = Routes::new();
    routes.unary(END, Mode::Worker, &ending, Ending::end).expect("one method");
    server.listen();
    assert!(server.serve(Arc::new(routes), Some(&pool)));
    *ending.pool.lock().expect("no handler yet") = Some(pool);
    let session = client.open(server.local_route().expect("outside of the loop"));
    let end = Instant::now() + Duration::from_secs(20);
    let run_until = |condition: &dyn Fn() -> bool| {
        while !condition() {
            assert!(Instant::now() < end, "a call is not answered");
            client.run_once();
            server.run_once();
        }
    };
    run_until(&|| session.is_open());
    let first = session.call(&END, &number(0));
    run_until(&|| ending.arrived.load(Ordering::Acquire));
    // The only worker is busy: one call is queued, the other six find the queue full.
    let others: Vec<_> = (1..8).map(|n| session.call(&END, &number(n))).collect();
    let ready = || others.iter().filter(|call| call.is_ready()).count();
    run_until(&|| ready() == 6);
    drop(hold);
    run_until(&|| first.is_ready() && ready() == 7);
    assert_eq!(client.block_on(first), Ok(number(0)));
    let served = others.into_iter().filter_map(|call| client.block_on(call).ok()).count();
    assert_eq!(served, 1, "the call queued before the end is served");
}
