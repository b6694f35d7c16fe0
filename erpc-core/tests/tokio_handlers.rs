//! Handlers that run as tasks of a tokio runtime.

#![expect(clippy::disallowed_methods, reason = "tests use threads and read the clock")]

use std::future::pending;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use erpc_core::calling::CallOptions;
use erpc_core::client::{Channel, Session};
use erpc_core::endpoint::Endpoint;
use erpc_core::executor::join_all;
use erpc_core::protocol::{CallError, RejectReason};
use erpc_core::server::{ServeError, Server, ServerBuilder, ServerHandle};
use erpc_core::service::{
    CallContext, Interceptor, Metadata, Method, MethodCollision, Response, Routes, Service,
    SharedIncoming, SharedOutgoing, SharedRequest,
};
use erpc_core::status::{Code, Status};
use tokio::runtime::Runtime;

const NAP: Method<u32, String> = Method::new("test.Tokio/Nap");
const WAIT: Method<u32, u32> = Method::new("test.Tokio/Wait");
/// Like `WAIT`, with a deadline of the server.
const BRIEF: Method<u32, u32> =
    Method::new("test.Tokio/Brief").served_within(Duration::from_millis(50));
const PANIC: Method<u32, u32> = Method::new("test.Tokio/Panic");
const TELL: Method<u32, String> = Method::new("test.Tokio/Tell").max_response(64);
const FEED: Method<u32, u32> = Method::new("test.Tokio/Feed");
const SUM: Method<u32, u32> = Method::new("test.Tokio/Sum").max_response(4);
const CHAT: Method<String, String> = Method::new("test.Tokio/Chat");
const STALL: Method<u32, u32> = Method::new("test.Tokio/Stall");
const BLOCK: Method<u32, u32> = Method::new("test.Tokio/Block");
const LEAVE: Method<u32, u32> = Method::new("test.Tokio/Leave");

/// Upper limit for whatever must happen. Long enough for a machine that stalls for a while.
const LIMIT: Duration = Duration::from_secs(20);

/// Reports its drop, with the name of the thread.
struct Canary(Sender<String>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.send(thread_name()).unwrap_or(());
    }
}

fn thread_name() -> String {
    thread::current().name().unwrap_or_default().to_owned()
}

struct Lab {
    /// Handlers of `WAIT` and `STALL` that have begun.
    begun: AtomicU32,
    dropped: Sender<String>,
    /// Items that `STALL` may read.
    admitted: tokio::sync::Semaphore,
    /// Whether `BLOCK` may go on.
    gate: (Mutex<bool>, Condvar),
    /// The end of a stream that outlived its handler.
    kept: Mutex<Option<SharedOutgoing<u32>>>,
    /// What a task has read that outlived its handler.
    read_late: Mutex<Vec<Result<Option<u32>, CallError>>>,
}

impl Lab {
    async fn nap(&self, request: SharedRequest<u32>) -> Result<Response<String>, Status> {
        // Timers and tasks of tokio.
        tokio::time::sleep(Duration::from_millis(u64::from(request.into_message()))).await;
        let task = tokio::spawn(async { 7 }).await.map_err(|_| Status::internal("no task"))?;
        Ok(Response::new(format!("{task} on {}", thread_name())))
    }

    async fn wait(&self, _: SharedRequest<u32>) -> Result<Response<u32>, Status> {
        let _canary = Canary(self.dropped.clone());
        self.begun.fetch_add(1, Ordering::SeqCst);
        pending::<()>().await;
        Ok(Response::new(0))
    }

    /// Blocks its thread until the gate is open, and waits forever then.
    async fn block(&self, request: SharedRequest<u32>) -> Result<Response<u32>, Status> {
        let canary = Canary(self.dropped.clone());
        self.begun.fetch_add(1, Ordering::SeqCst);
        let is_open = self.gate.0.lock().unwrap();
        drop(self.gate.1.wait_while(is_open, |is_open| !*is_open).unwrap());
        pending::<()>().await;
        drop(canary);
        Ok(Response::new(request.into_message()))
    }

    fn open_gate(&self) {
        *self.gate.0.lock().unwrap() = true;
        self.gate.1.notify_all();
    }

    /// Panics before the first `await`, or after it.
    async fn panic(&self, request: SharedRequest<u32>) -> Result<Response<u32>, Status> {
        if request.into_message() > 0 {
            tokio::task::yield_now().await;
        }
        panic!("the handler panics")
    }

    /// Tells the properties of its call.
    async fn tell(&self, request: SharedRequest<u32>) -> Result<Response<String>, Status> {
        let tenant = String::from_utf8_lossy(request.metadata().get("tenant").unwrap_or_default());
        let peer = request.peer().is_some_and(|peer| peer.ip().is_loopback());
        let left = request.time_left().is_some_and(|left| left <= LIMIT && left > LIMIT / 2);
        assert_eq!(request.deadline().is_some(), left);
        assert_eq!(request.method(), Some("test.Tokio/Tell"));
        let filler = "x".repeat(*request.message() as usize);
        let mut metadata = Metadata::new();
        metadata.insert("shelf", "12").map_err(|_| Status::internal("metadata"))?;
        Ok(Response::new(format!("{tenant} {peer} {left}{filler}")).with_metadata(metadata))
    }

    async fn feed(
        &self,
        request: SharedRequest<u32>,
        out: SharedOutgoing<u32>,
    ) -> Result<(), Status> {
        let count = request.into_message();
        for number in 0..count {
            if number % 1_000 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
            out.send(number).await?;
        }
        match count {
            0 => Err(Status::not_found("nothing to feed")),
            1 => {
                *self.kept.lock().unwrap() = Some(out);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    async fn sum(
        &self,
        request: SharedRequest<SharedIncoming<u32>>,
    ) -> Result<Response<u32>, Status> {
        let (mut numbers, mut sum) = (request.into_message(), 0u32);
        while let Some(number) = numbers.next().await? {
            if number == 13 {
                tokio::task::yield_now().await;
                panic!("the handler panics on 13");
            }
            sum = sum.checked_add(number).ok_or(Status::out_of_range("more than 32 bits"))?;
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
        let mut metadata = Metadata::new();
        metadata.insert("shelf", "12").map_err(|_| Status::internal("metadata"))?;
        Ok(Response::new(sum).with_metadata(metadata))
    }

    async fn chat(
        &self,
        request: SharedRequest<SharedIncoming<String>>,
        out: SharedOutgoing<String>,
    ) -> Result<(), Status> {
        let mut words = request.into_message();
        while let Some(word) = words.next().await? {
            tokio::task::yield_now().await;
            out.send(word.to_uppercase()).await?;
        }
        Ok(())
    }

    /// Leaves the items to a task that reads two, and returns when the task has read one.
    async fn leave(
        self: &Arc<Self>,
        request: SharedRequest<SharedIncoming<u32>>,
    ) -> Result<Response<u32>, Status> {
        let (lab, mut items) = (Arc::clone(self), request.into_message());
        let (read, one) = tokio::sync::oneshot::channel();
        drop(tokio::spawn(async move {
            let first = items.next().await;
            lab.read_late.lock().unwrap().push(first);
            read.send(()).unwrap();
            let second = items.next().await;
            lab.read_late.lock().unwrap().push(second);
        }));
        one.await.map_err(|_| Status::internal("the task is gone"))?;
        Ok(Response::new(1))
    }

    /// Reads as many items as are admitted.
    async fn stall(
        &self,
        request: SharedRequest<SharedIncoming<u32>>,
    ) -> Result<Response<u32>, Status> {
        let _canary = Canary(self.dropped.clone());
        let (mut items, mut count) = (request.into_message(), 0);
        self.begun.fetch_add(1, Ordering::SeqCst);
        loop {
            self.admitted.acquire().await.map_err(|_| Status::internal("closed"))?.forget();
            match items.next().await? {
                Some(_) => count += 1,
                None => return Ok(Response::new(count)),
            }
        }
    }
}

impl Service for Lab {
    const NAME: &'static str = "test.Tokio";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        let lab = &self;
        routes.unary_tokio(NAP, lab, |lab, request| async move { lab.nap(request).await })?;
        routes.unary_tokio(WAIT, lab, |lab, request| async move { lab.wait(request).await })?;
        routes.unary_tokio(BRIEF, lab, |lab, request| async move { lab.wait(request).await })?;
        routes.unary_tokio(BLOCK, lab, |lab, request| async move { lab.block(request).await })?;
        routes.unary_tokio(PANIC, lab, |lab, request| async move { lab.panic(request).await })?;
        routes.unary_tokio(TELL, lab, |lab, request| async move { lab.tell(request).await })?;
        routes.server_streaming_tokio(FEED, lab, |lab, request, out| async move {
            lab.feed(request, out).await
        })?;
        routes.client_streaming_tokio(
            SUM,
            lab,
            |lab, request| async move { lab.sum(request).await },
        )?;
        routes.client_streaming_tokio(STALL, lab, |lab, request| async move {
            lab.stall(request).await
        })?;
        routes.client_streaming_tokio(LEAVE, lab, |lab, request| async move {
            lab.leave(request).await
        })?;
        routes.bidi_streaming_tokio(CHAT, lab, |lab, request, out| async move {
            lab.chat(request, out).await
        })
    }
}

/// A server, its runtime and a client.
struct World {
    endpoint: Endpoint,
    session: Session,
    server: Option<ServerHandle>,
    runtime: Option<Runtime>,
    lab: Arc<Lab>,
    dropped: Receiver<String>,
}

fn runtime() -> Runtime {
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    builder.worker_threads(2).thread_name("of-tokio").enable_all().build().unwrap()
}

fn lab() -> (Arc<Lab>, Receiver<String>) {
    let (dropped, drops) = channel();
    let lab = Lab {
        begun: AtomicU32::new(0),
        dropped,
        admitted: tokio::sync::Semaphore::new(0),
        gate: Default::default(),
        kept: Mutex::new(None),
        read_late: Mutex::default(),
    };
    (Arc::new(lab), drops)
}

fn world() -> World {
    world_with(|server| server)
}

fn world_with(change: impl FnOnce(ServerBuilder) -> ServerBuilder) -> World {
    let (lab, dropped) = lab();
    let runtime = runtime();
    let server = Server::builder().add_shared(Arc::clone(&lab)).tokio(runtime.handle().clone());
    let server = change(server).spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    World { endpoint, session, server: Some(server), runtime: Some(runtime), lab, dropped }
}

impl Drop for World {
    fn drop(&mut self) {
        // The end of the runtime waits for threads that `BLOCK` blocks.
        self.lab.open_gate();
    }
}

impl World {
    fn run<F: Future>(&self, future: F) -> F::Output {
        self.endpoint.block_on(self.endpoint.timeout(LIMIT, future)).expect("it ends in time")
    }

    /// Runs the client until `count` handlers have begun.
    fn until_begun(&self, count: u32) {
        self.run(async {
            while self.lab.begun.load(Ordering::SeqCst) < count {
                self.endpoint.sleep(Duration::from_millis(1)).await;
            }
        });
    }

    /// Runs the client until a handler is dropped. Returns the name of the thread.
    fn until_dropped(&self) -> String {
        self.run(async {
            loop {
                match self.dropped.try_recv() {
                    Ok(thread) => return thread,
                    Err(_) => self.endpoint.sleep(Duration::from_millis(1)).await,
                }
            }
        })
    }

    fn channel(&self) -> Channel {
        let server = self.server.as_ref().expect("the server runs").local_addr();
        Channel::to(&self.endpoint, vec![server.into()]).build()
    }
}

fn status(error: &CallError) -> (Code, &str) {
    match error {
        CallError::Status(status) => (status.code(), status.message()),
        other => panic!("no status: {other}"),
    }
}

#[test]
fn a_handler_uses_timers_and_tasks_of_its_runtime() {
    let world = world();
    let reply = world.run(world.session.call(&NAP, &1)).unwrap();
    assert_eq!(reply, "7 on of-tokio");
}

#[test]
fn many_calls_are_answered_with_their_own_results() {
    let world = world();
    let channel = world.channel();
    let naps = |_| join_all((0..64).map(|_| channel.call(&NAP, &1)));
    for replies in (0..5).map(naps) {
        for reply in world.run(replies) {
            assert_eq!(reply.unwrap(), "7 on of-tokio");
        }
    }
}

#[test]
fn a_cancelled_call_drops_its_handler() {
    let world = world();
    let call = world.session.call(&WAIT, &0);
    world.until_begun(1);
    drop(call);
    assert_eq!(world.until_dropped(), "of-tokio");
    assert_eq!(world.run(world.session.call(&NAP, &0)).unwrap(), "7 on of-tokio");
}

#[test]
fn a_callers_deadline_drops_the_handler() {
    let world = world();
    let hurried = world.channel().with(CallOptions::new().deadline(Duration::from_millis(50)));
    let outcome = world.run(hurried.call(&WAIT, &0));
    assert_eq!(outcome.unwrap_err().code(), Code::DeadlineExceeded);
    world.until_dropped();
}

#[test]
fn a_servers_deadline_drops_the_handler_and_answers() {
    let world = world();
    let error = world.run(world.session.call(&BRIEF, &0)).unwrap_err();
    assert_eq!(status(&error).0, Code::DeadlineExceeded);
    world.until_dropped();
}

#[test]
fn the_end_of_a_client_drops_its_handlers() {
    let world = world();
    let call = world.session.call(&WAIT, &0);
    world.until_begun(1);
    world.endpoint.shutdown();
    drop(call);
    world.dropped.recv_timeout(LIMIT).expect("the handler is dropped");
}

#[test]
fn a_panic_is_an_internal_error_that_names_the_method() {
    let world = world();
    for when in [0, 1] {
        let error = world.run(world.session.call(&PANIC, &when)).unwrap_err();
        let told = (Code::Internal, "the handler of test.Tokio/Panic panicked");
        assert_eq!(status(&error), told);
    }
    assert_eq!(world.run(world.session.call(&NAP, &0)).unwrap(), "7 on of-tokio");
}

#[test]
fn a_request_has_the_properties_of_its_call() {
    let world = world();
    let mut metadata = Metadata::new();
    metadata.insert("tenant", "acme").unwrap();
    let options = CallOptions::new().deadline(LIMIT).metadata(metadata);
    let called = world.channel().with(options).call(&TELL, &0).with_metadata();
    let (reply, metadata) = world.run(called).unwrap();
    assert_eq!(reply, "acme true true");
    assert_eq!(metadata.get("shelf"), Some(&b"12"[..]));
    let reply = world.run(world.session.call(&TELL, &0)).unwrap();
    assert_eq!(reply, " true false");
}

#[test]
fn limits_of_messages_hold() {
    let world = world();
    let error = world.run(world.session.call(&TELL, &100)).unwrap_err();
    assert_eq!(status(&error).0, Code::OutOfRange);
    // `SUM` may answer with 4 bytes, which is a number below 2^21.
    let upload = |number: u32| {
        let channel = world.channel();
        async move {
            let upload = channel.client_streaming(&SUM);
            upload.send(number).await?;
            upload.finish().await
        }
    };
    assert_eq!(world.run(upload(1 << 20)), Ok(1 << 20));
    let error = world.run(upload(1 << 30)).unwrap_err();
    assert_eq!(error.code(), Code::OutOfRange, "{error}");
}

/// Records what it sees, and refuses calls with the metadata `refuse`.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<String>>>);

impl Log {
    fn add(&self, line: String) {
        self.0.lock().unwrap().push(line);
    }
}

impl Interceptor for Log {
    fn before(&self, call: &CallContext<'_>) -> Result<(), Status> {
        self.add(format!("before on {}", thread_name()));
        match call.metadata().get("refuse") {
            Some(_) => Err(Status::permission_denied("refused")),
            None => Ok(()),
        }
    }

    fn after(&self, call: &CallContext<'_>, outcome: Result<(), &Status>) {
        let outcome = outcome.map_err(Status::code);
        self.add(format!("{} {outcome:?} on {}", call.method(), thread_name()));
    }
}

#[test]
fn interceptors_run_around_the_handler_in_its_runtime() {
    let log = Log::default();
    let world = world_with(|server| server.intercept(log.clone()));
    let lines = |count: usize| {
        world.run(async {
            while log.0.lock().unwrap().len() < count {
                world.endpoint.sleep(Duration::from_millis(1)).await;
            }
        });
        std::mem::take(&mut *log.0.lock().unwrap())
    };
    let before = "before on of-tokio";
    world.run(world.session.call(&NAP, &0)).unwrap();
    assert_eq!(lines(2), [before, "test.Tokio/Nap Ok(()) on of-tokio"]);
    world.run(world.session.call(&PANIC, &1)).unwrap_err();
    assert_eq!(lines(2), [before, "test.Tokio/Panic Err(Internal) on of-tokio"]);
    let mut metadata = Metadata::new();
    metadata.insert("refuse", "").unwrap();
    let refused = world.channel().with(CallOptions::new().metadata(metadata));
    let error = world.run(refused.call(&WAIT, &0)).unwrap_err();
    assert_eq!(status(&error), (Code::PermissionDenied, "refused"));
    assert_eq!(lines(1), [before]);
    let call = world.session.call(&WAIT, &0);
    world.until_begun(1);
    drop(call);
    assert_eq!(lines(2), [before, "test.Tokio/Wait Err(Cancelled) on of-tokio"]);
    let mut numbers = world.channel().server_streaming(&FEED, &0);
    assert_eq!(world.run(numbers.next()).unwrap_err().code(), Code::NotFound);
    assert_eq!(lines(2), [before, "test.Tokio/Feed Err(NotFound) on of-tokio"]);
}

#[test]
fn a_handler_streams_to_its_caller() {
    let world = world();
    for count in [2, 5_000] {
        let mut numbers = world.channel().server_streaming(&FEED, &count);
        world.run(async {
            for number in 0..count {
                assert_eq!(numbers.next().await, Ok(Some(number)));
            }
            assert_eq!(numbers.next().await, Ok(None));
        });
    }
    let mut none = world.channel().server_streaming(&FEED, &0);
    let error = world.run(none.next()).unwrap_err();
    assert_eq!(status(&error), (Code::NotFound, "nothing to feed"));
}

#[test]
fn a_handler_reads_a_stream_of_its_caller() {
    let world = world();
    let upload = |numbers: Vec<u32>| {
        let channel = world.channel();
        async move {
            let upload = channel.client_streaming(&SUM);
            for number in numbers {
                upload.send(number).await?;
            }
            upload.finish_with_metadata().await
        }
    };
    let (sum, metadata) = world.run(upload((20..1_000).collect())).unwrap();
    assert_eq!((sum, metadata.get("shelf")), ((20..1_000).sum(), Some(&b"12"[..])));
    let error = world.run(upload(vec![1, 13])).unwrap_err();
    assert_eq!(status(&error), (Code::Internal, "the handler of test.Tokio/Sum panicked"));
    let error = world.run(upload(vec![u32::MAX, 1])).unwrap_err();
    assert_eq!(status(&error), (Code::OutOfRange, "more than 32 bits"));
}

#[test]
fn both_sides_stream_at_once() {
    let world = world();
    let (out, mut words) = world.channel().bidi_streaming(&CHAT);
    world.run(async {
        for word in ["one", "two", "three"] {
            out.send(word.to_owned()).await.unwrap();
            assert_eq!(words.next().await, Ok(Some(word.to_uppercase())));
        }
        drop(out);
        assert_eq!(words.next().await, Ok(None));
    });
}

#[test]
fn a_message_that_cannot_be_decoded_is_an_invalid_argument() {
    let world = world();
    // The server reads these numbers as texts.
    const WRONG: Method<u32, String> = Method::new("test.Tokio/Chat");
    let (out, mut words) = world.channel().bidi_streaming(&WRONG);
    world.run(async {
        out.send(7).await.unwrap();
        assert_eq!(words.next().await.unwrap_err().code(), Code::InvalidArgument);
    });
}

#[test]
fn the_reader_sets_the_pace() {
    let world = world();
    let channel = world.channel();
    let upload = channel.client_streaming(&STALL);
    let mut sent = 0;
    // Without a limit on unread items, this sends for ever.
    let fill = async {
        loop {
            upload.send(u32::MAX).await.unwrap();
            sent += 1;
        }
    };
    let mut fill = Box::pin(fill);
    world.until_begun(0);
    let filled = world.endpoint.timeout(Duration::from_millis(500), fill.as_mut());
    assert!(world.endpoint.block_on(filled).is_err());
    drop(fill);
    // An item takes at least five bytes. Six batches are 196,608 bytes.
    assert!((100..6 * 32_768 / 5).contains(&sent), "{sent} items were accepted");
    world.lab.admitted.add_permits(sent + 1);
    assert_eq!(world.run(upload.finish()), Ok(sent as u32));
}

#[test]
fn a_stream_that_its_caller_drops_drops_the_handler() {
    let world = world();
    let upload = world.channel().client_streaming(&STALL);
    world.run(upload.send(1)).unwrap();
    world.until_begun(1);
    drop(upload);
    assert_eq!(world.until_dropped(), "of-tokio");
}

#[test]
fn a_stream_ends_with_its_handler_and_not_with_its_writer() {
    let world = world();
    let mut numbers = world.channel().server_streaming(&FEED, &1);
    world.run(async {
        assert_eq!(numbers.next().await, Ok(Some(0)));
        assert_eq!(numbers.next().await, Ok(None));
    });
    let kept = world.lab.kept.lock().unwrap().take().expect("the handler has kept its end");
    let ended = Err(CallError::Rejected(RejectReason::StreamEnded));
    assert_eq!(world.run(kept.send(7)), ended);
}

#[test]
fn a_task_that_outlives_its_handler_reads_the_end_of_the_stream() {
    let world = world();
    let upload = world.channel().client_streaming(&LEAVE);
    world.run(upload.send(7)).unwrap();
    // The client has not ended its items.
    world.run(async {
        while world.lab.read_late.lock().unwrap().len() < 2 {
            world.endpoint.sleep(Duration::from_millis(1)).await;
        }
    });
    assert_eq!(*world.lab.read_late.lock().unwrap(), [Ok(Some(7)), Ok(None)]);
    assert_eq!(world.run(upload.finish()), Ok(1));
}

#[test]
fn tasks_of_a_runtime_count_against_the_limit() {
    let world = world_with(|server| server.task_limit(2));
    let _calls = [0, 1].map(|_| world.session.call(&WAIT, &0));
    world.until_begun(2);
    let error = world.run(world.session.call(&NAP, &0)).unwrap_err();
    assert_eq!(status(&error).0, Code::ResourceExhausted);
}

#[test]
fn a_handler_of_a_cancelled_call_counts_against_the_limit_until_it_is_dropped() {
    let world = world_with(|server| server.task_limit(1));
    let call = world.session.call(&BLOCK, &0);
    world.until_begun(1);
    drop(call);
    let nap = || world.run(world.session.call(&NAP, &0)).map_err(|error| status(&error).0);
    // The cancel travels before this call.
    assert_eq!(nap(), Err(Code::ResourceExhausted));
    world.lab.open_gate();
    world.until_dropped();
    let mut answer = nap();
    while answer == Err(Code::ResourceExhausted) {
        answer = nap();
    }
    assert_eq!(answer.as_deref(), Ok("7 on of-tokio"));
}

#[test]
fn a_drain_waits_for_the_handlers_of_cancelled_calls() {
    let mut world = world();
    let call = world.session.call(&BLOCK, &0);
    world.until_begun(1);
    drop(call);
    world.run(world.session.disconnect());
    let server = world.server.take().expect("the server runs");
    let drain = thread::spawn(move || server.drain(LIMIT));
    world.endpoint.run_for(Duration::from_millis(300));
    assert!(!drain.is_finished(), "a handler runs");
    world.lab.open_gate();
    assert_eq!(drain.join().unwrap(), 0);
    assert_eq!(world.dropped.try_recv().as_deref(), Ok("of-tokio"), "the handler has ended");
}

#[test]
fn a_drain_waits_for_the_handlers_of_cancelled_calls_at_most_until_its_limit() {
    let mut world = world();
    let call = world.session.call(&BLOCK, &0);
    world.until_begun(1);
    drop(call);
    world.run(world.session.disconnect());
    let server = world.server.take().expect("the server runs");
    let begun = Instant::now();
    assert_eq!(server.drain(Duration::from_millis(200)), 0);
    assert!(begun.elapsed() >= Duration::from_millis(200) && begun.elapsed() < LIMIT);
    world.lab.open_gate();
    world.dropped.recv_timeout(LIMIT).expect("the handler is dropped");
}

#[test]
fn a_drain_waits_for_handlers_and_drops_them_at_its_end() {
    let mut world = world();
    let channel = world.channel();
    let nap = channel.call(&NAP, &200);
    let waits = channel.call(&WAIT, &0);
    let upload = channel.client_streaming(&STALL);
    world.run(upload.send(1)).unwrap();
    world.until_begun(2);
    let server = world.server.take().expect("the server runs");
    let drain = thread::spawn(move || server.drain(Duration::from_secs(1)));
    assert_eq!(world.run(nap).unwrap(), "7 on of-tokio");
    assert_eq!(world.run(waits).unwrap_err().code(), Code::Unavailable);
    assert_eq!(world.run(upload.finish()).unwrap_err().code(), Code::Unavailable);
    world.until_dropped();
    world.until_dropped();
    world.endpoint.run_until(|| drain.is_finished());
    assert_eq!(drain.join().unwrap(), 2);
}

#[test]
fn a_shutdown_drops_handlers() {
    let mut world = world();
    let call = world.session.call(&WAIT, &0);
    world.until_begun(1);
    world.server.take().expect("the server runs").shutdown();
    world.dropped.recv_timeout(LIMIT).expect("the handler is dropped");
    assert!(world.run(call).is_err());
}

#[test]
fn calls_end_if_the_runtime_has_ended() {
    let mut world = world();
    let call = world.session.call(&WAIT, &0);
    world.until_begun(1);
    world.runtime.take().expect("the runtime runs").shutdown_background();
    assert_eq!(status(&world.run(call).unwrap_err()).0, Code::Unavailable);
    let error = world.run(world.session.call(&NAP, &0)).unwrap_err();
    assert_eq!(status(&error).0, Code::Unavailable);
    let mut numbers = world.channel().server_streaming(&FEED, &2);
    assert_eq!(world.run(numbers.next()).unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_server_without_a_runtime_does_not_start() {
    let (lab, _dropped) = lab();
    let refused = Server::builder().add_shared(Arc::clone(&lab)).spawn("127.0.0.1:0").unwrap_err();
    assert!(matches!(refused, ServeError::NoRuntime { method: "test.Tokio/Nap" }), "{refused}");
    assert!(refused.to_string().contains(".tokio(tokio::runtime::Handle::current())"));
}
