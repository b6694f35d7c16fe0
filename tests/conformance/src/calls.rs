//! The calls of the client.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use erpc::service::Method;
use erpc::{Call, CallError, Endpoint, Incoming, Outgoing, Session, Upload, join_all};
use erpc_test_tools::random::Random;

use crate::answers::Answers;
use crate::plan::{Turn, Typed, failure, items, turns};

/// Number of calls of each method.
pub const ROUNDS: u64 = 12;
/// Number of methods that are called concurrently.
const LANES: usize = 16;
/// All calls of a system must end within this time; usually they need seconds.
const TIME_LIMIT: Duration = Duration::from_secs(120);
/// Maximum number of failures that the error shows.
const TOLD: usize = 5;

type Task = Pin<Box<dyn Future<Output = ()>>>;
/// The callback of a call.
pub type Done<M> = Box<dyn FnOnce(Result<M, CallError>)>;

/// All planned calls, and their results.
pub struct Calls {
    endpoint: Endpoint,
    server: std::net::SocketAddr,
    tasks: VecDeque<Task>,
    progress: Rc<Progress>,
}

struct Progress {
    answers: Arc<Answers>,
    seed: u64,
    /// The seed of the current call of each method.
    current: RefCell<BTreeMap<&'static str, u64>>,
    done: Cell<u64>,
    failures: RefCell<Vec<String>>,
}

impl Calls {
    pub(crate) fn new(
        endpoint: Endpoint,
        server: std::net::SocketAddr,
        answers: Arc<Answers>,
        seed: u64,
    ) -> Self {
        let (current, done, failures) = (RefCell::default(), Cell::new(0), RefCell::default());
        let progress = Rc::new(Progress { answers, seed, current, done, failures });
        Self { endpoint, server, tasks: VecDeque::new(), progress }
    }

    /// Opens a new session; each client gets its own.
    ///
    /// # Panics
    /// If the server does not answer.
    pub fn session(&self) -> Session {
        self.endpoint.connect(self.server).expect("the server on loopback must answer")
    }

    /// Plans all calls of a unary method; every second call has a callback.
    pub fn unary<C: Clone + 'static, Req: Typed, Resp: Typed>(
        &mut self,
        client: &C,
        name: &'static str,
        method: Method<Req, Resp>,
        call: impl Fn(&C, &Req) -> Call<Resp> + 'static,
        call_with: impl Fn(&C, &Req, Done<Resp>) + 'static,
    ) {
        assert_eq!(method.full_name(), name);
        let (client, progress) = (client.clone(), self.progress.clone());
        self.plan(name, move |seed| {
            let (client, progress) = (client.clone(), progress.clone());
            let request = progress.answers.plan().request::<Req>(name, seed, 0);
            let result: Pin<Box<dyn Future<Output = Result<Resp, CallError>>>> = match &request {
                Ok(request) if seed % 2 == 0 => Box::pin(call(&client, request)),
                Ok(request) => {
                    let (done, result) = promise();
                    call_with(&client, request, done);
                    Box::pin(result)
                }
                Err(_) => Box::pin(std::future::pending()),
            };
            Box::pin(async move {
                request?;
                let expected = match failure(seed) {
                    Some(status) => Err(CallError::Status(status)),
                    None => Ok(progress.answers.plan().response::<Resp>(name, seed, 0)?),
                };
                same(&result.await, &expected)
            })
        });
    }

    /// Plans all calls of a method whose responses are a stream.
    pub fn server_streaming<C: Clone + 'static, Req: Typed, Resp: Typed>(
        &mut self,
        client: &C,
        name: &'static str,
        method: Method<Req, Resp>,
        call: impl Fn(&C, &Req) -> Incoming<Resp> + Clone + 'static,
    ) {
        assert_eq!(method.full_name(), name);
        let (client, progress) = (client.clone(), self.progress.clone());
        self.plan(name, move |seed| {
            let (client, progress, call) = (client.clone(), progress.clone(), call.clone());
            Box::pin(async move {
                let plan = progress.answers.plan();
                let mut responses = call(&client, &plan.request::<Req>(name, seed, 0)?);
                for at in 0..items(seed, true) {
                    let expected = plan.response::<Resp>(name, seed, at)?;
                    same(&responses.next().await, &Ok(Some(expected)))?;
                }
                ended(&mut responses, seed).await
            })
        });
    }

    /// Plans all calls of a method whose requests are a stream.
    pub fn client_streaming<C: Clone + 'static, Req: Typed, Resp: Typed>(
        &mut self,
        client: &C,
        name: &'static str,
        method: Method<Req, Resp>,
        call: impl Fn(&C) -> Upload<Req, Resp> + Clone + 'static,
    ) {
        assert_eq!(method.full_name(), name);
        let (client, progress) = (client.clone(), self.progress.clone());
        self.plan(name, move |seed| {
            let (client, progress, call) = (client.clone(), progress.clone(), call.clone());
            Box::pin(async move {
                let plan = progress.answers.plan();
                let upload = call(&client);
                for at in 0..items(seed, false) {
                    let request = plan.request::<Req>(name, seed, at)?;
                    upload
                        .send(&request)
                        .await
                        .map_err(|error| format!("request {at}: {error:?}"))?;
                }
                let expected = match failure(seed) {
                    Some(status) => Err(CallError::Status(status)),
                    None => Ok(plan.response::<Resp>(name, seed, 0)?),
                };
                same(&upload.finish().await, &expected)
            })
        });
    }

    /// Plans all calls of a method whose requests and responses are streams.
    pub fn bidi_streaming<C: Clone + 'static, Req: Typed, Resp: Typed>(
        &mut self,
        client: &C,
        name: &'static str,
        method: Method<Req, Resp>,
        call: impl Fn(&C) -> (Outgoing<Req>, Incoming<Resp>) + Clone + 'static,
    ) {
        assert_eq!(method.full_name(), name);
        let (client, progress) = (client.clone(), self.progress.clone());
        self.plan(name, move |seed| {
            let (client, progress, call) = (client.clone(), progress.clone(), call.clone());
            Box::pin(async move {
                let plan = progress.answers.plan();
                let (requests, mut responses) = call(&client);
                for turn in turns(seed) {
                    match turn {
                        Turn::Request(at) => {
                            let request = plan.request::<Req>(name, seed, at)?;
                            let sent = requests.send(&request).await;
                            sent.map_err(|error| format!("request {at}: {error:?}"))?;
                        }
                        Turn::Response(at) => {
                            let expected = plan.response::<Resp>(name, seed, at)?;
                            same(&responses.next().await, &Ok(Some(expected)))?;
                        }
                    }
                }
                drop(requests);
                ended(&mut responses, seed).await
            })
        });
    }

    fn plan(
        &mut self,
        name: &'static str,
        round: impl Fn(u64) -> Pin<Box<dyn Future<Output = Result<(), String>>>> + 'static,
    ) {
        let progress = self.progress.clone();
        self.tasks.push_back(Box::pin(async move {
            let name_seed = name
                .bytes()
                .fold(progress.seed, |seed, byte| Random::new(seed ^ u64::from(byte)).word());
            for at in 0..ROUNDS {
                let seed = Random::new(name_seed ^ at).word() << 8 | at;
                progress.answers.announce(name, seed);
                progress.current.borrow_mut().insert(name, seed);
                let result = round(seed).await;
                progress.current.borrow_mut().remove(name);
                if let Err(why) = result {
                    progress.failures.borrow_mut().push(format!("{name}, seed {seed:#x}: {why}"));
                    return;
                }
                progress.done.set(progress.done.get() + 1);
            }
        }));
    }

    /// Makes all calls, and returns their number.
    ///
    /// # Errors
    /// The first [`TOLD`] failures, with method and seed.
    pub(crate) fn run(self) -> Result<u64, String> {
        let tasks = Rc::new(RefCell::new(self.tasks));
        let lane = || {
            let tasks = tasks.clone();
            async move {
                loop {
                    let Some(task) = tasks.borrow_mut().pop_front() else { return };
                    task.await;
                }
            }
        };
        let all = join_all((0..LANES).map(|_| lane()).map(Box::pin));
        let all = self.endpoint.block_on(self.endpoint.timeout(TIME_LIMIT, all));
        let mut failures = self.progress.failures.take();
        if all.is_err() {
            let current = self.progress.current.take();
            let stuck =
                current.iter().map(|(name, seed)| format!("{name}, seed {seed:#x}: does not end"));
            failures.extend(stuck);
        }
        let told = failures.iter().take(TOLD).cloned().collect::<Vec<_>>().join("\n");
        if failures.is_empty() {
            Ok(self.progress.done.get())
        } else {
            Err(format!("{} methods fail:\n{told}", failures.len()))
        }
    }
}

/// Checks that the responses end as planned.
async fn ended<M: Typed>(responses: &mut Incoming<M>, seed: u64) -> Result<(), String> {
    let expected = failure(seed).map_or(Ok(None), |status| Err(CallError::Status(status)));
    same(&responses.next().await, &expected)
}

fn same<M: PartialEq + Debug>(
    got: &Result<M, CallError>,
    expected: &Result<M, CallError>,
) -> Result<(), String> {
    if got == expected { Ok(()) } else { Err(format!("got {got:?}, expected {expected:?}")) }
}

/// A callback, and a future that returns the value passed to the callback.
fn promise<T: 'static>() -> (Box<dyn FnOnce(T)>, impl Future<Output = T>) {
    let kept: Rc<RefCell<(Option<T>, Option<Waker>)>> = Rc::new(RefCell::new((None, None)));
    let keep = kept.clone();
    let done = move |value| {
        let mut keep = keep.borrow_mut();
        keep.0 = Some(value);
        if let Some(waker) = keep.1.take() {
            waker.wake();
        }
    };
    let value = poll_fn(move |cx| {
        let mut kept = kept.borrow_mut();
        kept.1 = Some(cx.waker().clone());
        kept.0.take().map_or(Poll::Pending, Poll::Ready)
    });
    (Box::new(done), value)
}
