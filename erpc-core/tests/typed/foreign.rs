//! Futures of an endpoint that other executors poll while nothing runs the endpoint.

use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake};
use std::thread::Thread;
use std::time::{Duration, Instant};

use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::IdlePolicy;
use erpc_core::protocol::EndpointConfig;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc_test_tools::limit::{millis, secs, within};

use crate::support::{DOUBLE, client, math, number, server};

/// Time without a turn after which a waiting future of [`hasty`] reports that its endpoint does not
/// run.
const LIVENESS: Duration = millis(200);

/// An endpoint with a short liveness timeout.
fn hasty(hub: &MemHub) -> Endpoint<MemTransport> {
    let config = EndpointConfig::new().ping_interval(millis(50)).liveness_timeout(LIVENESS);
    Endpoint::new(hub.port(MemConfig::default()), config).unwrap()
}

type Wait = Pin<Box<dyn Future<Output = ()>>>;

/// A future of each kind that waits for `endpoint`.
fn waits(endpoint: &Endpoint<MemTransport>) -> Vec<(&'static str, Wait)> {
    let nowhere = MemRoute::new(99);
    let session = endpoint.open(nowhere);
    let (call, connect) = (session.call(&DOUBLE, &number(1)), endpoint.connect_async(nowhere));
    let mut incoming = session.server_streaming(&DOUBLE, &number(1));
    let sleep = endpoint.sleep(millis(1));
    let task = endpoint.spawn(async {});
    vec![
        ("call", Box::pin(async { drop(call.await) })),
        ("connect", Box::pin(async { drop(connect.await) })),
        ("stream", Box::pin(async move { drop(incoming.next().await) })),
        ("sleep", Box::pin(sleep)),
        ("task", Box::pin(task)),
    ]
}

/// The message of the panic in `run`.
fn panic_of(run: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(run)).expect_err("the future panics");
    panic.downcast_ref::<&str>().map_or_else(
        || panic.downcast_ref::<String>().cloned().unwrap_or_default(),
        |&text| text.to_owned(),
    )
}

#[test]
fn a_future_of_an_endpoint_awaited_in_the_loop_of_another_panics_with_advice() {
    within(secs(60), || {
        let hub = MemHub::new();
        let (idle, running) = (hasty(&hub), client(&hub));
        running.set_idle_policy(IdlePolicy::Sleep);
        for (kind, wait) in waits(&idle) {
            let begin = Instant::now();
            let message = panic_of(|| running.block_on(wait));
            assert!(message.contains("in the loop of another endpoint"), "{kind}: {message}");
            assert!(message.contains("block_on") && message.contains("run_once"), "{kind}");
            assert!(begin.elapsed() >= LIVENESS, "{kind}: another loop may run the endpoint");
        }
        // In a task, the panic ends only the task. With the default timeouts, it comes after a
        // second.
        let (idle, begin) = (client(&hub), Instant::now());
        let task = running.spawn(idle.sleep(millis(1)));
        let message = panic_of(|| running.block_on(task));
        assert!(message.contains("in the loop of another endpoint"), "{message}");
        assert!((millis(900)..secs(5)).contains(&begin.elapsed()), "{:?}", begin.elapsed());
        // Both endpoints still work.
        running.block_on(running.sleep(millis(1)));
        idle.block_on(idle.sleep(millis(1)));
    });
}

/// Blocks this thread until `future` is ready, without any runtime.
fn park_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Arc::new(Unpark(std::thread::current())).into();
    let (mut cx, mut future) = (Context::from_waker(&waker), pin!(future));
    loop {
        match future.as_mut().poll(&mut cx) {
            Poll::Ready(output) => return output,
            Poll::Pending => std::thread::park(),
        }
    }
}

#[test]
fn a_future_of_an_endpoint_awaited_by_another_executor_panics_with_advice() {
    within(secs(60), || {
        let idle = hasty(&MemHub::new());
        for (kind, wait) in waits(&idle) {
            let message = panic_of(|| park_on(wait));
            assert!(message.contains("no loop runs the endpoint"), "{kind}: {message}");
            assert!(message.contains("`Endpoint::block_on`"), "{kind}: {message}");
        }
        idle.block_on(idle.sleep(millis(1)));
    });
}

#[test]
fn a_task_may_await_another_endpoint_that_is_run_now_and_then() {
    within(secs(60), || {
        let hub = MemHub::new();
        let (server, route) = server(&hub, math());
        let (called, running) = (hasty(&hub), client(&hub));
        let session = called.open(route);
        let (slept, call) = (called.sleep(3 * LIVENESS), session.call(&DOUBLE, &number(2)));
        let task = running.spawn(async move {
            slept.await;
            call.await
        });
        let begin = Instant::now();
        while !task.is_finished() {
            server.run_once();
            called.run_once();
            running.run_for(LIVENESS / 10);
        }
        assert!(begin.elapsed() >= 3 * LIVENESS);
        assert_eq!(running.block_on(task), Ok(number(4)));
    });
}
