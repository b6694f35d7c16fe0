//! A rolling restart: three servers are drained and started again at the same ports, one after the
//! other, under a load of short calls, long calls and streams. No call fails, and none is executed
//! twice. No method is idempotent, and no retry policy is set.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use erpc::service::{Method, MethodCollision, Mode, Routes};
use erpc::{
    CallError, Channel, Endpoint, IdlePolicy, Incoming, Outgoing, Request, Response, Server,
    ServerHandle, Service, Status, join_all,
};
use erpc_test_tools::limit::{millis, secs, within};

/// A piece of work: its id, unique among all calls of a test, and its duration.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
struct Work {
    #[prost(uint64, tag = "1")]
    id: u64,
    #[prost(uint32, tag = "2")]
    millis: u32,
}

/// The handler answers immediately, in the event loop.
const SHORT: Method<Work, Work> = Method::new("test.Rolling/Short");
/// The handler takes its time as a task.
const LONG: Method<Work, Work> = Method::new("test.Rolling/Long");
/// The handler takes its time on a worker.
const NAP: Method<Work, Work> = Method::new("test.Rolling/Nap");
/// The server sends [`ITEMS`] items, and pauses after each.
const FEED: Method<Work, Work> = Method::new("test.Rolling/Feed");
/// The server answers with the number of items that it has received.
const COLLECT: Method<Work, Work> = Method::new("test.Rolling/Collect");
/// The server sends each item back.
const CHAT: Method<Work, Work> = Method::new("test.Rolling/Chat");

const ITEMS: u32 = 10;

/// The deadline of a drain. No call takes as long.
const DRAIN: Duration = secs(3);

/// Counts how often each piece of work was begun, at all servers together.
#[derive(Default)]
struct Rolling {
    begun: Mutex<HashMap<u64, u32>>,
}

impl Rolling {
    fn begin(&self, id: u64) {
        let mut begun = self.begun.lock().unwrap_or_else(PoisonError::into_inner);
        *begun.entry(id).or_default() += 1;
    }

    fn short(&self, request: Request<'_, Work>) -> Result<Response<Work>, Status> {
        self.begin(request.message().id);
        Ok(Response::new(request.into_message()))
    }

    async fn long(&self, request: Request<'_, Work>) -> Result<Response<Work>, Status> {
        self.begin(request.message().id);
        pause(request.message().millis).await;
        Ok(Response::new(request.into_message()))
    }

    fn nap(&self, request: Request<'_, Work>) -> Result<Response<Work>, Status> {
        self.begin(request.message().id);
        thread::sleep(millis(request.message().millis.into()));
        Ok(Response::new(request.into_message()))
    }

    async fn feed(&self, request: Request<'_, Work>, out: Outgoing<Work>) -> Result<(), Status> {
        let work = request.into_message();
        self.begin(work.id);
        for item in 0..ITEMS {
            out.send(Work { id: item.into(), millis: 0 }).await?;
            pause(work.millis).await;
        }
        Ok(())
    }

    async fn collect(
        &self,
        request: Request<'_, Incoming<Work>>,
    ) -> Result<Response<Work>, Status> {
        let (mut items, mut count) = (request.into_message(), 0);
        while let Some(item) = items.next().await? {
            if count == 0 {
                self.begin(item.id);
            }
            count += 1;
        }
        Ok(Response::new(Work { id: count, millis: 0 }))
    }

    async fn chat(
        &self,
        request: Request<'_, Incoming<Work>>,
        out: Outgoing<Work>,
    ) -> Result<(), Status> {
        let (mut items, mut is_first) = (request.into_message(), true);
        while let Some(item) = items.next().await? {
            if std::mem::take(&mut is_first) {
                self.begin(item.id);
            }
            out.send(item).await?;
        }
        Ok(())
    }
}

async fn pause(millis: u32) {
    erpc::sleep(Duration::from_millis(millis.into())).await;
}

impl Service for Rolling {
    const NAME: &'static str = "test.Rolling";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(SHORT, Mode::Dispatch, &self, Self::short)?;
        routes.unary_async(LONG, &self, Self::long)?;
        routes.unary(NAP, Mode::Worker, &self, Self::nap)?;
        routes.server_streaming(FEED, &self, Self::feed)?;
        routes.client_streaming(COLLECT, &self, Self::collect)?;
        routes.bidi_streaming(CHAT, &self, Self::chat)
    }
}

fn start(service: &Arc<Rolling>, address: SocketAddr) -> ServerHandle {
    let builder = Server::builder().add_shared(Arc::clone(service)).threads(2).workers(2);
    builder.idle(IdlePolicy::Sleep).spawn(address).expect("the port is free")
}

/// What a client has done.
#[derive(Default)]
struct Done {
    /// Ids of the calls and streams that ended well.
    ids: Vec<u64>,
    failed: Vec<String>,
}

/// The load of one client.
struct Load {
    channel: Channel,
    ids: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
    done: std::cell::RefCell<Done>,
}

impl Load {
    async fn repeat(&self, what: &str, once: impl AsyncFn(&Self, u64) -> Result<(), CallError>) {
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.ids.fetch_add(1, Ordering::Relaxed);
            let ended = once(self, id).await;
            let mut done = self.done.borrow_mut();
            match ended {
                Ok(()) => done.ids.push(id),
                Err(error) => done.failed.push(format!("{what} {id}: {error:?}")),
            }
        }
    }

    async fn call(
        &self,
        method: &Method<Work, Work>,
        id: u64,
        millis: u32,
    ) -> Result<(), CallError> {
        let work = Work { id, millis };
        let answer = self.channel.call(method, &work).await?;
        assert_eq!(answer, work);
        Ok(())
    }

    async fn feed(&self, id: u64) -> Result<(), CallError> {
        let mut items = self.channel.server_streaming(&FEED, &Work { id, millis: 20 });
        for expected in 0..ITEMS {
            let item = items.next().await?;
            assert_eq!(item.map(|item| item.id), Some(expected.into()));
        }
        assert_eq!(items.next().await?, None);
        Ok(())
    }

    async fn collect(&self, id: u64) -> Result<(), CallError> {
        let upload = self.channel.client_streaming(&COLLECT);
        for _ in 0..ITEMS {
            upload.send(Work { id, millis: 0 }).await?;
        }
        assert_eq!(upload.finish().await?.id, u64::from(ITEMS));
        Ok(())
    }

    async fn chat(&self, id: u64) -> Result<(), CallError> {
        let (out, mut items) = self.channel.bidi_streaming(&CHAT);
        for _ in 0..ITEMS {
            out.send(Work { id, millis: 0 }).await?;
            assert_eq!(items.next().await?.map(|item| item.id), Some(id));
            pause(10).await;
        }
        drop(out);
        assert_eq!(items.next().await?, None);
        Ok(())
    }
}

/// Puts load on the servers until `stop` is set.
fn run(servers: Vec<SocketAddr>, ids: Arc<AtomicU64>, stop: Arc<AtomicBool>) -> Done {
    let endpoint = Endpoint::udp().expect("a socket");
    let servers: Vec<_> = servers.into_iter().map(Into::into).collect();
    let channel = Channel::to(&endpoint, servers).sessions(2).build();
    let load = Rc::new(Load { channel, ids, stop, done: Default::default() });
    let spawn = |what: &'static str, millis: u32| {
        let load = Rc::clone(&load);
        endpoint.spawn(async move {
            match what {
                "short" => {
                    let once = async |load: &Load, id| {
                        load.call(&SHORT, id, 0).await?;
                        pause(1).await;
                        Ok(())
                    };
                    load.repeat(what, once).await;
                }
                "long" => {
                    load.repeat(what, async |load, id| load.call(&LONG, id, millis).await).await;
                }
                "nap" => {
                    load.repeat(what, async |load, id| load.call(&NAP, id, millis).await).await;
                }
                "feed" => load.repeat(what, async |load, id| load.feed(id).await).await,
                "collect" => load.repeat(what, async |load, id| load.collect(id).await).await,
                _ => load.repeat(what, async |load, id| load.chat(id).await).await,
            }
        })
    };
    let mut tasks: Vec<_> = (0..32).map(|_| spawn("short", 0)).collect();
    tasks.extend((1..=8).map(|task| spawn("long", task * 60)));
    tasks.extend((0..2).map(|_| spawn("nap", 20)));
    for what in ["feed", "feed", "feed", "collect", "collect", "chat", "chat", "chat"] {
        tasks.push(spawn(what, 0));
    }
    endpoint.block_on(join_all(tasks));
    load.done.take()
}

#[test]
fn a_rolling_restart_fails_no_call_and_executes_none_twice() {
    within(secs(60), || {
        let service = Arc::new(Rolling::default());
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut servers: Vec<_> = (0..3).map(|_| start(&service, any)).collect();
        let addresses: Vec<_> = servers.iter().map(ServerHandle::local_addr).collect();
        let (ids, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let clients: Vec<_> = (0..2)
            .map(|_| {
                let (addresses, ids) = (addresses.clone(), Arc::clone(&ids));
                let stop = Arc::clone(&stop);
                thread::spawn(move || run(addresses, ids, stop))
            })
            .collect();
        thread::sleep(millis(500));
        for at in (0..3).chain(0..3) {
            let begun = Instant::now();
            let server = servers.remove(at);
            let cut_off = server.drain(DRAIN);
            eprintln!("server {at} has ended after {:?}", begun.elapsed());
            assert_eq!(cut_off, 0, "calls and streams had not ended at the deadline");
            assert!(begun.elapsed() < DRAIN, "the drain took {:?}", begun.elapsed());
            servers.insert(at, start(&service, addresses[at]));
            // The channels have time to connect to the new server.
            thread::sleep(millis(300));
        }
        stop.store(true, Ordering::Relaxed);
        let done: Vec<Done> =
            clients.into_iter().map(|client| client.join().expect("the client ends")).collect();
        let failed: Vec<&String> = done.iter().flat_map(|done| &done.failed).collect();
        assert!(
            failed.is_empty(),
            "{} failed: {:#?}",
            failed.len(),
            &failed[..failed.len().min(9)]
        );
        let begun = service.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let twice: Vec<_> = begun.iter().filter(|(_, times)| **times > 1).collect();
        assert!(twice.is_empty(), "executed more than once: {twice:?}");
        let ended: usize = done.iter().map(|done| done.ids.len()).sum();
        let lost: Vec<_> =
            done.iter().flat_map(|done| &done.ids).filter(|id| !begun.contains_key(id)).collect();
        assert!(lost.is_empty(), "answered but not executed: {lost:?}");
        assert_eq!(begun.len(), ended, "executed, but reported neither as done nor as failed");
        eprintln!("{ended} calls and streams");
        assert!(ended > 1_000, "only {ended} calls and streams");
    });
}
