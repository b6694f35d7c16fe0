//! Endpoints and tokio: used from tokio's tasks, and driven by one of them.

#![expect(clippy::disallowed_methods, reason = "tests use threads and read the clock")]

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};

use erpc_core::client::{Channel, Session};
use erpc_core::endpoint::Endpoint;
use erpc_core::endpoint::tokio::{Remote, RemoteError, drive};
use erpc_core::executor::join_all;
use erpc_core::protocol::EndpointConfig;
use erpc_core::server::{Server, ServerHandle};
use erpc_core::service::{
    Incoming, Method, MethodCollision, Mode, Outgoing, Request, Response, Routes, Service,
};
use erpc_core::status::Status;
use erpc_core::transport::udp::UdpConfig;
use tokio::runtime::Runtime;
use tokio::task::{LocalSet, spawn_local};

const DOUBLE: Method<u32, u32> = Method::new("test.Math/Double");
const ECHO: Method<u32, u32> = Method::new("test.Math/Echo");

struct Math;

impl Math {
    fn double(&self, request: Request<'_, u32>) -> Result<Response<u32>, Status> {
        Ok(Response::new(request.message() * 2))
    }

    async fn echo(
        &self,
        request: Request<'_, Incoming<u32>>,
        out: Outgoing<u32>,
    ) -> Result<(), Status> {
        let mut numbers = request.into_message();
        while let Some(number) = numbers.next().await? {
            out.send(number).await?;
        }
        Ok(())
    }
}

impl Service for Math {
    const NAME: &'static str = "test.Math";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(DOUBLE, Mode::Dispatch, &self, Self::double)?;
        routes.bidi_streaming(ECHO, &self, Self::echo)
    }
}

fn server() -> ServerHandle {
    Server::builder().add_service(Math).spawn("127.0.0.1:0").unwrap()
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn tasks_use_an_endpoint_on_another_thread() {
    let server = server();
    let address = server.local_addr();
    let (send, receive) = channel();
    let thread = std::thread::spawn(move || {
        let endpoint = Endpoint::udp().unwrap();
        send.send(Remote::from(endpoint.handle())).unwrap();
        let ended = Rc::new(Cell::new(false));
        let local = endpoint.local(|_| Ended(Rc::clone(&ended)));
        endpoint.run_until(|| local.0.get());
    });
    let remote: Remote = receive.recv().unwrap();
    runtime().block_on(async {
        let tasks: Vec<_> = (0..20u32)
            .map(|number| {
                let remote = remote.clone();
                tokio::spawn(async move {
                    remote
                        .run(move |endpoint| async move {
                            let channel = endpoint.local(|endpoint| {
                                let server = vec![address.into()];
                                Client(Channel::to(endpoint, server).build())
                            });
                            channel.0.call(&DOUBLE, &number).await
                        })
                        .await
                })
            })
            .collect();
        for (task, number) in tasks.into_iter().zip(0..) {
            assert_eq!(task.await.unwrap(), Ok(Ok(number * 2)));
        }
        assert_eq!(server.stats().server_sessions, 1, "jobs share the endpoint's local channel");
        let panicked = remote.run(|_| async { panic!("the job's future panics") }).await;
        assert_eq!(panicked, Err::<(), _>(RemoteError::Panicked));
        let panicked = remote.run(bad_job).await;
        assert_eq!(panicked, Err(RemoteError::Panicked));
        assert_eq!(RemoteError::Panicked.to_string().find("the job panicked"), Some(0));
        assert_eq!(remote.run(|_| async { 7 }).await, Ok(7), "the endpoint continues");
        let end = remote.run(|endpoint| async move {
            endpoint.local(|_| Ended(Rc::default())).0.set(true);
        });
        end.await.unwrap();
    });
    thread.join().unwrap();
    let late = runtime().block_on(remote.run(|_| async {}));
    assert_eq!(late, Err(RemoteError::Lost));
}

/// Panics before it has returned a future.
fn bad_job(_: Endpoint) -> std::future::Ready<()> {
    panic!("the job panics")
}

struct Ended(Rc<Cell<bool>>);
struct Client(Channel);

#[test]
fn a_future_of_tokio_ends_a_server() {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    let runtime = runtime.worker_threads(1).enable_all().build().unwrap();
    let ((waits, waiting), (stop, stopped)) =
        (tokio::sync::oneshot::channel(), tokio::sync::oneshot::channel());
    let handle = runtime.handle().clone();
    let serving = std::thread::spawn(move || {
        // tokio's timer needs the runtime's context; the runtime's own thread wakes this one.
        let _context = handle.enter();
        let shutdown = async {
            waits.send(()).unwrap();
            stopped.await.unwrap();
            tokio::time::sleep(Duration::from_millis(1)).await;
        };
        Server::builder().add_service(Math).serve_with_shutdown(
            "127.0.0.1:0",
            shutdown,
            Duration::from_secs(5),
        )
    });
    runtime.block_on(waiting).unwrap();
    assert!(!serving.is_finished(), "the server serves until the future completes");
    stop.send(()).unwrap();
    serving.join().unwrap().unwrap();
}

/// Sends a message when it is dropped.
struct Canary(std::sync::mpsc::Sender<()>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.send(()).unwrap_or(());
    }
}

#[test]
fn a_job_is_dropped_when_its_caller_stops_waiting() {
    let endpoint = Endpoint::udp().unwrap();
    let remote = Remote::from(endpoint.handle());
    let (send, dropped) = channel();
    let mut job = Box::pin(remote.run(move |_| async move {
        let _canary = Canary(send);
        std::future::pending::<()>().await;
    }));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(job.as_mut().poll(&mut cx).is_pending());
    endpoint.run_for(Duration::from_millis(1));
    assert!(dropped.try_recv().is_err());
    drop(job);
    endpoint.run_for(Duration::from_millis(1));
    dropped.try_recv().unwrap();
}

#[test]
fn a_driven_endpoint_serves_the_tasks_of_its_thread_and_sleeps() {
    let server = server();
    let endpoint = Endpoint::udp().unwrap();
    let local = LocalSet::new();
    let polls = Rc::new(Cell::new(0));
    let test = async {
        let (driven, counted) = (endpoint.clone(), Rc::clone(&polls));
        let driver = spawn_local(async move {
            let mut drive = pin!(drive(&driven));
            poll_fn(|cx| {
                counted.set(counted.get() + 1);
                drive.as_mut().poll(cx)
            })
            .await
        });
        let channel = Channel::to(&endpoint, vec![server.local_addr().into()]).build();
        for number in 0..50 {
            assert_eq!(channel.call(&DOUBLE, &number).await, Ok(number * 2));
        }
        // The endpoint's own tasks can call as well.
        let task = endpoint.spawn({
            let channel = channel.clone();
            async move { channel.call(&DOUBLE, &8).await }
        });
        assert_eq!(task.await, Ok(16));
        let begin = Instant::now();
        endpoint.sleep(Duration::from_millis(30)).await;
        assert!(begin.elapsed() >= Duration::from_millis(30));
        let before = polls.get();
        tokio::time::sleep(Duration::from_millis(100)).await;
        assert!(polls.get() - before < 50, "{} polls of an idle endpoint", polls.get() - before);
        // A job of another thread wakes the endpoint.
        let (send, receive) = tokio::sync::oneshot::channel();
        let handle = endpoint.handle();
        std::thread::spawn(move || handle.submit(move |_| send.send(7).unwrap()).unwrap());
        assert_eq!(receive.await, Ok(7));
        endpoint.shutdown();
        driver.await.unwrap().unwrap();
    };
    runtime().block_on(local.run_until(async {
        tokio::time::timeout(Duration::from_secs(20), test).await.expect("no wakeup is missed");
    }));
}

#[test]
fn a_stream_message_wakes_a_driven_endpoint_that_sleeps() {
    let server = server();
    let endpoint = Endpoint::udp().unwrap();
    let local = LocalSet::new();
    let test = async {
        let driven = endpoint.clone();
        let driver = spawn_local(async move { drive(&driven).await });
        let channel = Channel::to(&endpoint, vec![server.local_addr().into()]).build();
        channel.ready().await.unwrap();
        let (out, mut numbers) = channel.bidi_streaming(&ECHO);
        let mut slowest = Duration::ZERO;
        for number in 0..10 {
            // Wait until the endpoint sleeps. Without the message, the endpoint would wake up only
            // for a ping, seconds later.
            tokio::time::sleep(Duration::from_millis(30)).await;
            let begin = Instant::now();
            out.send(number).await.unwrap();
            assert_eq!(numbers.next().await, Ok(Some(number)));
            slowest = slowest.max(begin.elapsed());
        }
        assert!(slowest < Duration::from_millis(400), "{slowest:?}");
        endpoint.shutdown();
        driver.await.unwrap().unwrap();
    };
    runtime().block_on(local.run_until(async {
        tokio::time::timeout(Duration::from_secs(60), test).await.expect("no wakeup is missed");
    }));
}

/// Time without a turn after which a waiting future reports that the endpoint does not run.
const LIVENESS: Duration = Duration::from_millis(200);

/// An endpoint with an open session to a server.
fn connected(server: &ServerHandle) -> (Endpoint, Session) {
    let config =
        EndpointConfig::new().ping_interval(Duration::from_millis(50)).liveness_timeout(LIVENESS);
    let endpoint = Endpoint::udp_with(&UdpConfig::new(), config).unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    (endpoint, session)
}

/// The panic message of a task.
async fn panic_of(task: tokio::task::JoinHandle<()>) -> String {
    let ended = tokio::time::timeout(Duration::from_secs(20), task).await;
    let error = ended.expect("the task ends in time").expect_err("the task panicked");
    *error.into_panic().downcast::<String>().unwrap()
}

#[test]
fn a_future_of_an_endpoint_that_does_not_run_panics_with_advice() {
    let server = server();
    let (endpoint, session) = connected(&server);
    let local = LocalSet::new();
    runtime().block_on(local.run_until(async {
        let begin = Instant::now();
        let called = session.clone();
        let task = spawn_local(async move {
            called.call(&DOUBLE, &1).await.unwrap();
        });
        let message = panic_of(task).await;
        assert!(message.contains("drive") && message.contains("Remote"), "{message}");
        assert!((LIVENESS..LIVENESS * 10).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        // Futures that sleep or connect panic, too.
        let sleep = endpoint.sleep(Duration::ZERO);
        panic_of(spawn_local(sleep)).await;
        let connect = endpoint.connect_async(server.local_addr().into());
        panic_of(spawn_local(async { drop(connect.await.unwrap()) })).await;
        // The endpoint still works.
        assert_eq!(endpoint.block_on(session.call(&DOUBLE, &4)), Ok(8));
    }));
}

#[test]
fn long_waits_do_not_panic_while_the_endpoint_runs() {
    let server = server();
    let (endpoint, session) = connected(&server);
    let local = LocalSet::new();
    runtime().block_on(local.run_until(async {
        // The endpoint is driven, although it sleeps nearly all the time.
        let driven = endpoint.clone();
        let driver = spawn_local(async move { drive(&driven).await });
        endpoint.sleep(3 * LIVENESS).await;
        assert_eq!(session.call(&DOUBLE, &1).await, Ok(2));
        driver.abort();
        assert!(driver.await.unwrap_err().is_cancelled());
        // The endpoint runs its own loop. The futures are awaited directly, from the endpoint's
        // tasks, and with foreign wakers.
        let slept = endpoint.sleep(2 * LIVENESS);
        endpoint.block_on(tokio::task::unconstrained(slept));
        let both = join_all([2, 3].map(|times| endpoint.sleep(LIVENESS * times)));
        endpoint.block_on(both);
        let task = endpoint.spawn(endpoint.sleep(2 * LIVENESS));
        endpoint.block_on(task);
        let foreign = tokio::time::timeout(9 * LIVENESS, Foreign(endpoint.sleep(2 * LIVENESS)));
        endpoint.block_on(async { foreign.await.unwrap() });
        // Another task runs a turn of the endpoint now and then, while this task waits.
        let (turned, ended) = (endpoint.clone(), Rc::new(Cell::new(false)));
        let done = Rc::clone(&ended);
        let turner = spawn_local(async move {
            while !done.get() {
                turned.run_once();
                tokio::time::sleep(LIVENESS / 4).await;
            }
        });
        endpoint.sleep(3 * LIVENESS).await;
        ended.set(true);
        turner.await.unwrap();
    }));
}

/// Polls its future with a waker of its own, as collections of futures do.
struct Foreign<F>(F);

impl<F: Future + Unpin> Future for Foreign<F> {
    type Output = F::Output;

    fn poll(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<F::Output> {
        struct Through(std::task::Waker);
        impl std::task::Wake for Through {
            fn wake(self: Arc<Self>) {
                self.0.wake_by_ref();
            }
        }
        let waker = Arc::new(Through(cx.waker().clone())).into();
        std::pin::Pin::new(&mut self.0).poll(&mut std::task::Context::from_waker(&waker))
    }
}

#[test]
fn a_later_waiter_is_not_charged_for_the_wait_of_an_earlier_one() {
    let server = server();
    let (endpoint, session) = connected(&server);
    let local = LocalSet::new();
    runtime().block_on(local.run_until(async {
        let patience = Duration::from_millis(1);
        let hasty = tokio::time::timeout(patience, session.call(&DOUBLE, &1)).await;
        assert!(hasty.is_err(), "the endpoint does not run");
        tokio::time::sleep(2 * LIVENESS).await;
        // The call is polled before the driver runs. The call does not panic, although no turn has
        // run for longer than `LIVENESS`.
        let driven = endpoint.clone();
        let driver = spawn_local(async move { drive(&driven).await });
        assert_eq!(session.call(&DOUBLE, &2).await, Ok(4));
        endpoint.shutdown();
        driver.await.unwrap().unwrap();
    }));
}

#[test]
fn a_call_may_be_polled_before_its_endpoint_is_driven() {
    let server = server();
    let (endpoint, session) = connected(&server);
    runtime().block_on(async {
        let (mut call, mut driven) = (pin!(session.call(&DOUBLE, &1)), pin!(drive(&endpoint)));
        let answer = poll_fn(|cx| {
            let answer = call.as_mut().poll(cx);
            assert!(answer.is_ready() || driven.as_mut().poll(cx).is_pending());
            answer
        });
        assert_eq!(answer.await, Ok(2));
        let mut calls = pin!(async {
            let answers = (session.call(&DOUBLE, &2).await, session.call(&DOUBLE, &3).await);
            endpoint.shutdown();
            answers
        });
        let (mut answers, mut driven) = (None, pin!(drive(&endpoint)));
        let ended = poll_fn(|cx| {
            if answers.is_none()
                && let std::task::Poll::Ready(both) = calls.as_mut().poll(cx)
            {
                answers = Some(both);
            }
            driven.as_mut().poll(cx)
        });
        ended.await.unwrap();
        assert_eq!(answers, Some((Ok(4), Ok(6))));
    });
}
