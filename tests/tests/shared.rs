//! Clients that many threads and runtimes share.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use erpc::service::Method;
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{
    CallError, CallOptions, Cause, ClientThreads, Code, ConnectFailed, Endpoint, EndpointConfig,
    RejectReason, Server, ServerHandle, SharedChannel,
};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::netns::skip_unsupported;
use erpc_tests::lab::{LabService, loopback, work};
use erpc_tests::proto::*;
use rustix::thread::{CpuSet, sched_getaffinity};
use tokio::runtime::{Builder, Runtime};

/// Slots of a shared channel to one server: 8 sessions of 8 slots.
const SLOTS: usize = 64;

fn serve(lab: LabService) -> ServerHandle {
    Server::builder().add_service(lab).udp(loopback()).spawn("127.0.0.1:0").expect("a server")
}

/// A runtime with `workers` threads.
fn runtime(workers: usize) -> Runtime {
    Builder::new_multi_thread().worker_threads(workers).enable_all().build().expect("a runtime")
}

/// A client of `server` whose calls are made by threads of its own.
async fn connect(threads: &ClientThreads, server: &ServerHandle) -> LabClient {
    let channel = SharedChannel::to(vec![server.local_addr().into()]).threads(threads);
    let channel = channel.build().expect("the threads run");
    channel.ready().await.expect("the server answers");
    LabClient::new(channel)
}

fn threads(count: usize) -> ClientThreads {
    ClientThreads::builder().threads(count).udp(loopback()).start().expect("the threads start")
}

/// Waits until `done`, and fails if that takes longer than 10 s.
#[track_caller]
fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !done() {
        assert!(begun.elapsed() < secs(10), "{what}: not within 10 s");
        thread::sleep(millis(2));
    }
}

#[test]
fn tasks_of_a_runtime_get_their_own_replies_and_each_call_runs_once() {
    const TASKS: u64 = 100;
    const CALLS: u64 = 50;
    within(secs(60), || {
        let executed = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&executed);
        let server = serve(LabService::new(move |id| log.lock().expect("no panic").push(id)));
        for count in [1, 2] {
            let runtime = runtime(2);
            let client = runtime.block_on(connect(&threads(count), &server));
            let tasks = (0..TASKS).map(|task| {
                let client = client.clone();
                runtime.spawn(async move {
                    for call in 0..CALLS {
                        let id = task * CALLS + call;
                        // Requests and responses of one packet to several packets.
                        let (body, reply) =
                            ((id * 97 % 3_000) as usize, (id * 41 % 5_000) as usize);
                        let (request, expected) = work(id, body, reply);
                        assert_eq!(client.work(&request).await, Ok(expected), "call {id}");
                    }
                })
            });
            let tasks: Vec<_> = tasks.collect();
            for task in tasks {
                runtime.block_on(task).expect("the task does not panic");
            }
            let mut ids = std::mem::take(&mut *executed.lock().expect("no panic"));
            ids.sort_unstable();
            assert!(ids.into_iter().eq(0..TASKS * CALLS), "each call runs exactly once");
        }
    });
}

#[test]
fn one_client_serves_plain_threads_and_several_runtimes() {
    within(secs(60), || {
        let server = serve(LabService::default());
        let client = runtime(1).block_on(connect(&threads(1), &server));
        let sum = AtomicU64::new(0);
        thread::scope(|scope| {
            for number in 0..4 {
                let (client, sum) = (client.clone(), &sum);
                scope.spawn(move || {
                    for _ in 0..100 {
                        let reply = client.count(CountRequest { number }).wait();
                        sum.fetch_add(reply.expect("a reply").number, Ordering::Relaxed);
                    }
                });
                let client = client_of(&server, number);
                scope.spawn(move || {
                    let runtime = Builder::new_current_thread().build().expect("a runtime");
                    for _ in 0..100 {
                        let reply = runtime.block_on(client.count(CountRequest { number }));
                        sum.fetch_add(reply.expect("a reply").number, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!(sum.into_inner(), 2 * 100 * (1 + 2 + 3));
    });
}

/// A client that is built outside of any runtime, and that does not wait until it is connected.
fn client_of(server: &ServerHandle, number: u64) -> LabClient {
    let channel = SharedChannel::to(vec![server.local_addr().into()]);
    let with = CallOptions::new().deadline(secs(20 + number));
    LabClient::new(channel.options(with).build().expect("the default threads run"))
}

#[test]
fn a_call_that_is_dropped_while_it_waits_for_a_slot_never_runs() {
    within(secs(60), || {
        let executed = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&executed);
        let server = serve(LabService::new(move |id| log.lock().expect("no panic").push(id)));
        let runtime = runtime(1);
        let threads = threads(1);
        let (client, other) = runtime.block_on(async {
            (connect(&threads, &server).await, connect(&threads, &server).await)
        });
        // The server answers these calls when `release` is called, so they take all slots.
        let stuck: Vec<_> = (0..SLOTS).map(|_| client.r#await(AwaitRequest { key: 1 })).collect();
        let [dropped, kept] = [1, 2].map(|id| (client.work(work(id, 9, 9).0), work(id, 9, 9).1));
        drop(dropped);
        let mut released = 0;
        while released < SLOTS as u32 {
            let reply = other.release(ReleaseRequest { key: 1 }).wait();
            released += reply.expect("a slot of the other client is free").released;
        }
        stuck.into_iter().for_each(|call| assert_eq!(call.wait(), Ok(AwaitReply {})));
        assert_eq!(kept.0.wait(), Ok(kept.1));
        assert_eq!(*executed.lock().expect("no panic"), [2]);
        let servers = runtime.block_on(client.channel().backends());
        assert_eq!(servers.iter().map(|server| server.calls).collect::<Vec<_>>(), [0]);
    });
}

#[test]
fn a_call_ends_at_its_deadline_and_reports_errors_like_a_local_one() {
    within(secs(60), || {
        let server = serve(LabService::default());
        let client = runtime(1).block_on(connect(&threads(1), &server));
        let hurried = client.with(CallOptions::new().deadline(millis(50)));
        let begun = Instant::now();
        let late = hurried.r#await(AwaitRequest { key: 1 }).wait();
        assert_eq!(late, Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
        assert!((millis(50)..secs(2)).contains(&begun.elapsed()), "{:?}", begun.elapsed());

        let request = FailRequest { code: 5, message: "no".into(), ..FailRequest::default() };
        let failed = client.fail(request).wait().expect_err("the handler fails");
        assert_eq!((failed.code(), failed.to_string().contains("no")), (Code::NotFound, true));
        let missing: Method<u32, u32> = Method::new("test.v1.Lab/Missing");
        let unknown = client.channel().call(&missing, &1).wait();
        assert_eq!(unknown, Err(CallError::NoSuchMethod("test.v1.Lab/Missing")));
        let small: Method<String, String> = Method::new("test.v1.Lab/Small").max_request(10);
        let large = client.channel().call(&small, &"x".repeat(100)).wait();
        assert!(matches!(large, Err(CallError::Rejected(RejectReason::TooLarge { .. }))));
    });
}

#[test]
fn a_client_without_a_server_says_which_address_does_not_answer() {
    within(secs(30), || {
        let port = {
            let server = serve(LabService::default());
            server.local_addr()
        };
        let failed: ConnectFailed =
            runtime(1).block_on(LabClient::connect(port)).expect_err("the server is gone");
        assert!(failed.to_string().contains(&port.to_string()), "{failed}");
    });
}

#[test]
fn threads_end_with_their_last_channel_and_call() {
    within(secs(30), || {
        let server = serve(LabService::default());
        let threads = threads(2);
        let handles: Vec<_> = threads.handles().cloned().collect();
        let running = || handles.iter().filter(|handle| handle.submit(|_| ()).is_ok()).count();
        let client = runtime(1).block_on(connect(&threads, &server));
        drop(threads);
        let call = client.r#await(AwaitRequest { key: 1 });
        let other = client.clone();
        assert_eq!(other.count(CountRequest { number: 1 }).wait(), Ok(CountReply { number: 1 }));
        drop((client, other));
        thread::sleep(millis(50));
        assert_eq!(running(), 2, "a call is in progress");
        drop(call);
        wait_until("the threads end", || running() == 0);
    });
}

/// The cores on which this thread may run.
fn cores() -> Vec<usize> {
    let set = sched_getaffinity(None).expect("the system tells the affinity of this thread");
    (0..CpuSet::MAX_CPU).filter(|&core| set.is_set(core)).collect()
}

#[test]
fn threads_run_on_the_cores_that_their_builder_names() {
    within(secs(30), || {
        let builder = || ClientThreads::builder().udp(loopback());
        let absent = builder().core(CpuSet::MAX_CPU).start().expect_err("no such core");
        assert!(absent.to_string().contains("core 1024"), "{absent}");

        let allowed = cores();
        let Some(first) = allowed.iter().copied().find(|core| allowed.contains(&(core + 1))) else {
            let test = "threads_run_on_the_cores_that_their_builder_names";
            return skip_unsupported(test, "this process may not use two neighbouring cores");
        };
        let threads = builder().threads(2).core(first).start().expect("the threads start");
        let pinned = threads.handles().map(|handle| {
            let (send, receive) = channel();
            let job = move |_: &Endpoint| send.send(cores()).expect("the test waits");
            handle.submit(job).expect("the thread runs");
            receive.recv().expect("the thread runs the job")
        });
        assert_eq!(pinned.collect::<Vec<_>>(), [[first], [first + 1]]);
        assert_eq!(cores(), allowed, "the builder's own thread is not pinned");
    });
}

#[test]
fn calls_end_when_their_endpoint_ends() {
    within(secs(30), || {
        let server = serve(LabService::default());
        let threads = threads(1);
        let client = runtime(1).block_on(connect(&threads, &server));
        let call = client.r#await(AwaitRequest { key: 1 });
        let handle = threads.handles().next().expect("one thread").clone();
        handle.submit(|endpoint| endpoint.shutdown()).expect("the endpoint runs");
        assert_eq!(call.wait(), Err(CallError::MaybeExecuted(Cause::Shutdown)));
        let later = client.count(CountRequest { number: 1 }).wait();
        assert_eq!(later, Err(CallError::NotExecuted(Cause::Shutdown)));
    });
}

#[test]
fn a_stuck_thread_refuses_calls_beyond_its_queue_and_ends_the_others() {
    const CALLS: usize = 70_000;
    within(secs(60), || {
        let server = serve(LabService::default());
        let threads = threads(1);
        let client = runtime(1).block_on(connect(&threads, &server));
        let handle = threads.handles().next().expect("one thread").clone();
        handle.submit(|_| thread::sleep(secs(1))).expect("the endpoint runs");
        let calls: Vec<_> = (0..CALLS as u64)
            .map(|number| (number, client.count(CountRequest { number })))
            .collect();
        let (mut answered, mut refused) = (0, 0);
        for (number, call) in calls {
            match call.wait() {
                Ok(reply) => answered += usize::from(reply.number == number),
                Err(CallError::Rejected(RejectReason::QueueFull)) => refused += 1,
                Err(error) => panic!("call {number}: {error}"),
            }
        }
        assert_eq!(answered + refused, CALLS);
        assert!(answered > 0 && refused > 0, "{answered} answered, {refused} refused");
    });
}

#[test]
fn a_client_calls_over_memory_through_an_endpoint_of_the_user() {
    within(secs(30), || {
        let hub = MemHub::new();
        let (send, receive) = channel();
        let stop = Arc::new(AtomicU64::new(0));
        let stopped = Arc::clone(&stop);
        let run = move || {
            let endpoint = || {
                Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new())
                    .expect("the settings are in range")
            };
            let (server, client): (Endpoint<MemTransport>, _) = (endpoint(), endpoint());
            server.listen();
            assert!(server.serve(LabService::default().routes(), None));
            let route = server.local_route().expect("called outside of the loop");
            send.send((client.handle(), route)).expect("the test waits");
            while stopped.load(Ordering::Relaxed) == 0 {
                client.run_once();
                server.run_once();
            }
        };
        let thread = thread::spawn(run);
        let (handle, route) = receive.recv().expect("the endpoints open");
        let channel = SharedChannel::on(&handle, vec![route]).build().expect("no threads needed");
        let client = LabClient::new(channel);
        let calls: Vec<_> =
            (0..1_000).map(|number| client.count(CountRequest { number })).collect();
        for (number, call) in calls.into_iter().enumerate() {
            assert_eq!(call.wait(), Ok(CountReply { number: number as u64 }));
        }
        stop.store(1, Ordering::Relaxed);
        thread.join().expect("the endpoints do not panic");
        let late = client.count(CountRequest { number: 1 }).wait();
        assert_eq!(late, Err(CallError::NotExecuted(Cause::Shutdown)));
    });
}

#[test]
fn waiting_within_an_event_loop_panics_instead_of_hanging() {
    within(secs(30), || {
        let server = serve(LabService::default());
        let client = runtime(1).block_on(connect(&threads(1), &server));
        let endpoint = Endpoint::udp_with(&loopback(), EndpointConfig::new()).expect("a socket");
        let blocked =
            endpoint.spawn(async move { client.count(CountRequest { number: 1 }).wait() });
        let panicked =
            std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| endpoint.block_on(blocked)));
        let message = panicked.expect_err("`wait` panics in the loop");
        let message = message.downcast_ref::<String>().map(String::as_str);
        assert!(message.is_none_or(|text| text.contains("await the call")), "{message:?}");
    });
}

/// The longest that one idle wake-up may take on a busy machine.
const IDLE: Duration = secs(5);

#[test]
fn an_idle_client_answers_after_a_pause() {
    within(secs(30), || {
        let server = serve(LabService::default());
        let client = runtime(1).block_on(connect(&threads(1), &server));
        for _ in 0..5 {
            thread::sleep(millis(100));
            let begun = Instant::now();
            assert_eq!(
                client.count(CountRequest { number: 3 }).wait(),
                Ok(CountReply { number: 3 })
            );
            assert!(begun.elapsed() < IDLE, "{:?}", begun.elapsed());
        }
    });
}
