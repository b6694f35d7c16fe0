//! Endpoints and threads: sleeping, waking, sharing a thread, shutdown.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::channel;
use std::task::Poll;
use std::thread;
use std::time::{Duration, Instant};

use erpc_core::endpoint::{Endpoint, SubmitError};
use erpc_core::event_loop::{App, IdlePolicy, MAILBOX_LIMIT, Rpc};
use erpc_core::protocol::{Acceptor, CallError, Cause, EndpointConfig, ListenGroup, NewCall};
use erpc_core::transport::Transport as _;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};

use crate::support::{Background, DOUBLE, client, math, number, server};

/// A limit for wakeups: much longer than a wakeup takes, and much shorter than the time to any
/// other event that could hide a lost wakeup.
const PROMPT: Duration = Duration::from_millis(500);

#[test]
fn a_handle_wakes_a_sleeping_endpoint() {
    let (send, receive) = channel();
    let stop = Arc::new(AtomicBool::new(false));
    let stopped = Arc::clone(&stop);
    let sleeper = thread::spawn(move || {
        let endpoint = client(&MemHub::new());
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        send.send(endpoint.handle()).unwrap();
        endpoint.run_until(|| stopped.load(Ordering::Acquire));
    });
    let handle = receive.recv().unwrap();
    for _ in 0..100 {
        let (send, receive) = channel();
        let asked = Instant::now();
        handle
            .submit(move |endpoint| send.send(endpoint.local_route().is_some()).unwrap())
            .unwrap();
        assert_eq!(receive.recv_timeout(PROMPT), Ok(true));
        assert!(asked.elapsed() < PROMPT);
    }
    stop.store(true, Ordering::Release);
    handle.wake();
    sleeper.join().unwrap();
    assert_eq!(handle.submit(|_| ()), Err(SubmitError::Gone));
}

#[test]
fn a_future_that_is_ready_immediately_does_not_keep_the_loop_from_running() {
    let endpoint = client(&MemHub::new());
    let has_run = Rc::new(Cell::new(false));
    let mark = Rc::clone(&has_run);
    drop(endpoint.spawn(async move { mark.set(true) }));
    endpoint.block_on(async {});
    assert!(has_run.get(), "the loop ran once");
}

#[test]
fn a_wake_right_after_the_condition_is_checked_is_not_lost() {
    let (send, receive) = channel();
    thread::spawn(move || {
        let endpoint = client(&MemHub::new());
        endpoint.set_idle_policy(IdlePolicy::Sleep);
        let (handle, looks) = (endpoint.handle(), Cell::new(0));
        endpoint.run_until(|| {
            looks.set(looks.get() + 1);
            if looks.get() == 1 {
                // This call simulates another thread that changes the condition right after this
                // check.
                handle.wake();
            }
            looks.get() == 2
        });
        send.send(looks.get()).unwrap();
    });
    assert_eq!(receive.recv_timeout(Duration::from_secs(10)), Ok(2));
}

#[test]
fn another_thread_wakes_a_task_of_a_sleeping_endpoint() {
    let endpoint = client(&MemHub::new());
    endpoint.set_idle_policy(IdlePolicy::Sleep);
    let flag = Arc::new(AtomicBool::new(false));
    let (send, receive) = channel::<std::task::Waker>();
    let waker = thread::spawn({
        let flag = Arc::clone(&flag);
        move || {
            for waker in receive {
                flag.store(true, Ordering::Release);
                waker.wake();
            }
        }
    });
    let task = endpoint.spawn(std::future::poll_fn(move |cx| {
        if flag.load(Ordering::Acquire) {
            return std::task::Poll::Ready(7);
        }
        send.send(cx.waker().clone()).unwrap();
        std::task::Poll::Pending
    }));
    let started = Instant::now();
    assert_eq!(endpoint.block_on(task), 7);
    assert!(started.elapsed() < PROMPT);
    waker.join().unwrap();
}

#[test]
fn a_full_mailbox_refuses_jobs() {
    let endpoint = client(&MemHub::new());
    let handle = endpoint.handle();
    let ran = Arc::new(AtomicUsize::new(0));
    for _ in 0..MAILBOX_LIMIT {
        let ran = Arc::clone(&ran);
        let count = move |_: &_| {
            ran.fetch_add(1, Ordering::Relaxed);
        };
        handle.submit(count).unwrap();
    }
    assert_eq!(handle.submit(|_| ()), Err(SubmitError::Full));
    endpoint.run_once();
    assert_eq!(ran.load(Ordering::Relaxed), MAILBOX_LIMIT);
    assert_eq!(handle.submit(|_| ()), Ok(()));
}

#[test]
fn sleeping_endpoints_exchange_calls() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let endpoint = client(&hub);
    endpoint.set_idle_policy(IdlePolicy::Sleep);
    let session = endpoint.connect(server.route).unwrap();
    for value in 20..120 {
        let asked = Instant::now();
        assert_eq!(endpoint.block_on(session.call(&DOUBLE, &number(value))), Ok(number(value * 2)));
        assert!(asked.elapsed() < PROMPT);
    }
}

#[test]
fn several_endpoints_share_a_thread() {
    let hub = MemHub::new();
    let (server, route) = server(&hub, math());
    let clients: Vec<_> = (0..3).map(|_| client(&hub)).collect();
    let sum = Rc::new(Cell::new(0));
    let sessions: Vec<_> = clients.iter().map(|client| client.open(route)).collect();
    for (session, value) in sessions.iter().zip(1..) {
        let sum = Rc::clone(&sum);
        session.call_with(&DOUBLE, &number(value), move |reply| {
            sum.set(sum.get() + reply.unwrap().value)
        });
    }
    while sum.get() != 2 + 4 + 6 {
        server.run_once();
        for client in &clients {
            client.run_once();
        }
    }
    // A task of one endpoint awaits a future of another endpoint: both loops have to run.
    let call = sessions[0].call(&DOUBLE, &number(50));
    let task = clients[1].spawn(call);
    while !task.is_finished() {
        server.run_once();
        for client in &clients {
            client.run_once();
        }
    }
    assert_eq!(clients[1].block_on(task), Ok(number(100)));
}

#[test]
fn connecting_to_a_missing_peer_fails_in_time_and_names_the_address() {
    let hub = MemHub::new();
    let config = EndpointConfig::new().connect_timeout(Duration::from_millis(50));
    let endpoint = Endpoint::new(hub.port(MemConfig::default()), config).unwrap();
    let started = Instant::now();
    let error = endpoint.connect(MemRoute::new(77)).unwrap_err();
    let took = started.elapsed();
    assert!(
        (Duration::from_millis(50)..Duration::from_millis(50) + PROMPT).contains(&took),
        "{took:?}"
    );
    assert_eq!(error.address(), "mem:77");
    assert!(error.to_string().contains("mem:77"), "{error}");

    let session = endpoint.open(MemRoute::new(77));
    let early = endpoint.block_on(session.call(&DOUBLE, &number(1)));
    assert!(matches!(early, Err(CallError::NotExecuted(Cause::Connect(_)))), "{early:?}");
    let late = endpoint.block_on(session.call(&DOUBLE, &number(1)));
    assert!(matches!(late, Err(CallError::NotExecuted(Cause::Connect(_)))), "{late:?}");
}

#[test]
fn a_dropped_endpoint_ends_its_calls() {
    let hub = MemHub::new();
    let (_idle_server, route) = server(&hub, math());
    let endpoint = client(&hub);
    let session = endpoint.open(route);
    let outcome = Rc::new(RefCell::new(None));
    // The callback holds the session, which must not keep the endpoint alive.
    let (slot, held) = (Rc::clone(&outcome), session.clone());
    session.call_with(&DOUBLE, &number(1), move |reply| {
        let _held = held;
        *slot.borrow_mut() = Some(reply);
    });
    let task = endpoint.spawn({
        let session = session.clone();
        async move { session.call(&DOUBLE, &number(1)).await }
    });
    endpoint.run_once();
    let awaited = session.call(&DOUBLE, &number(2));
    drop(endpoint);
    assert!(matches!(
        outcome.take(),
        Some(Err(CallError::NotExecuted(_) | CallError::MaybeExecuted(_)))
    ));
    assert!(awaited.is_ready() && task.is_finished());
    let other = client(&hub);
    let result = other.block_on(awaited);
    assert!(
        matches!(result, Err(CallError::NotExecuted(_) | CallError::MaybeExecuted(_))),
        "{result:?}"
    );
    let refused = other.block_on(session.call(&DOUBLE, &number(3)));
    assert_eq!(refused, Err(CallError::NotExecuted(Cause::Shutdown)));
    assert_eq!(Rc::strong_count(&outcome), 1, "the callback was dropped");
}

#[test]
fn a_task_may_run_a_nested_loop() {
    let hub = MemHub::new();
    let server = Background::start(&hub, math(), None);
    let (endpoint, session) = server.connect(&hub);
    let inner = endpoint.clone();
    let task = endpoint.spawn(async move {
        let first = inner.block_on(session.call(&DOUBLE, &number(1))).unwrap();
        session.call(&DOUBLE, &first).await.unwrap().value
    });
    assert_eq!(endpoint.block_on(task), 4);
}

#[test]
fn calls_of_tasks_are_sent_before_the_next_turn_receives() {
    let (endpoint, itself) = server(&MemHub::new(), math());
    let session = endpoint.connect(itself).unwrap();
    let requests = || endpoint.stats().unwrap().protocol.requests;
    for call in 1..=3 {
        let task = endpoint.spawn({
            let session = session.clone();
            async move { session.call(&DOUBLE, &number(call)).await }
        });
        endpoint.run_once();
        assert_eq!(requests(), call - 1, "the task runs at the end of the turn");
        endpoint.run_once();
        assert_eq!(requests(), call, "the next turn sends the call and receives it");
        assert_eq!(endpoint.block_on(task), Ok(number(2 * call)));
    }
}

#[test]
fn calls_between_turns_are_sent_before_the_next_turn_receives() {
    struct Answers;
    impl App<MemTransport> for Answers {}
    let port = MemHub::new().port(MemConfig::default());
    let itself = port.local_route();
    let mut rpc = Rpc::new(port, EndpointConfig::new()).unwrap();
    rpc.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
    let session = rpc.context().connect(itself).unwrap();
    while rpc.stats().protocol.requests == 0 {
        if rpc.context().session_stats(session).is_some_and(|stats| stats.window > 0) {
            let request = rpc.context().alloc(0).unwrap();
            rpc.context().call(session, NewCall::new(1, request, 0)).unwrap();
            rpc.run_once(&mut Answers);
            assert_eq!(rpc.stats().protocol.requests, 1);
        }
        rpc.run_once(&mut Answers);
    }
}

#[test]
fn a_task_that_is_woken_in_its_nested_loop_goes_on() {
    let (endpoint, _) = server(&MemHub::new(), math());
    let inner = endpoint.clone();
    let mut polls = 0;
    let task = endpoint.spawn(poll_fn(move |cx| {
        polls += 1;
        if polls == 2 {
            return Poll::Ready(());
        }
        // The nested loop finds the task ready, but cannot poll it.
        cx.waker().wake_by_ref();
        inner.run_once();
        Poll::Pending
    }));
    for _ in 0..3 {
        endpoint.run_once();
    }
    assert!(task.is_finished());
}
