//! Streams of generated services over the network.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use erpc::service::Routes;
use erpc::{
    CallError, ClientThreads, Endpoint, Incoming, Outgoing, Request, Response, Server, Service,
    SharedChannel, Status,
};
use erpc_codegen_tests::streams::{
    Feed, FeedClient, FeedEntry, FeedEntryView, FeedKey, LocalFeedClient, LocalTicksClient, Tick,
    Ticks, TicksClient,
};
use futures_core::Stream;

/// Returns keys as entries.
#[derive(Service)]
#[erpc(service = erpc_codegen_tests::streams::Feed, worker)]
struct Store;

impl Feed for Store {
    fn get(&self, request: Request<'_, FeedKey>) -> Result<Response<FeedEntry>, Status> {
        Ok(Response::new(entry(&request.into_message().key)))
    }

    async fn watch(
        &self,
        request: Request<'_, FeedKey>,
        out: Outgoing<FeedEntry>,
    ) -> Result<(), Status> {
        for character in request.into_message().key.chars() {
            out.send(entry(&character.to_string())).await?;
        }
        Ok(())
    }

    async fn upload(
        &self,
        request: Request<'_, Incoming<FeedEntry>>,
    ) -> Result<Response<FeedKey>, Status> {
        let (mut entries, mut key) = (request.into_message(), String::new());
        while let Some(entry) = entries.next().await? {
            key += &entry.key;
        }
        Ok(Response::new(FeedKey { key }))
    }

    async fn sync(
        &self,
        request: Request<'_, Incoming<FeedEntry>>,
        out: Outgoing<FeedEntry>,
    ) -> Result<(), Status> {
        let mut entries = request.into_message();
        while let Some(entry) = entries.next().await? {
            out.send(entry).await?;
        }
        Ok(())
    }
}

fn entry(key: &str) -> FeedEntry {
    FeedEntry { key: key.to_owned(), value: vec![7] }
}

/// Returns the prices of a stream, doubled.
#[derive(Service)]
#[erpc(service = erpc_codegen_tests::streams::Ticks)]
struct Doubler;

impl Ticks for Doubler {
    async fn prices(
        &self,
        request: Request<'_, Incoming<Tick>>,
        out: Outgoing<Tick>,
    ) -> Result<(), Status> {
        let mut ticks = request.into_message();
        while let Some(tick) = ticks.next().await? {
            out.send(tick.with_price(tick.price() * 2.0)).await?;
        }
        Ok(())
    }
}

#[test]
fn a_streaming_method_has_no_mode() {
    let mut routes = Routes::new();
    Arc::new(Store).register(&mut routes).unwrap();
    let modes: Vec<_> = routes.entries().map(|entry| entry.mode().is_some()).collect();
    assert_eq!(modes, [true, false, false, false]);
}

#[test]
fn streams_work_in_all_directions() -> Result<(), CallError> {
    let server = Server::builder().add_service(Store).add_service(Doubler).workers(1);
    let server = server.spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let feed = LocalFeedClient::connect(&endpoint, server.local_addr()).unwrap();
    let ticks = LocalTicksClient::new(feed.channel().clone());
    endpoint.block_on(async {
        let mut watched = feed.watch(FeedKey { key: "ab".to_owned() });
        assert_eq!(watched.next().await?, Some(entry("a")));
        assert_eq!(watched.next().await?, Some(entry("b")));
        assert_eq!(watched.next().await?, None);

        let upload = feed.upload();
        for key in ["a", "b", "c"] {
            upload.send(entry(key)).await?;
        }
        assert_eq!(upload.finish().await?.key, "abc");

        let (out, mut back) = feed.sync();
        out.send(entry("there")).await?;
        assert_eq!(back.next().await?, Some(entry("there")));
        drop(out);
        assert_eq!(back.next().await?, None);

        let (out, mut doubled) = ticks.prices();
        out.send(Tick::new().with_at(1).with_price(1.5)).await?;
        assert_eq!(doubled.next().await?, Some(Tick::new().with_at(1).with_price(3.0)));
        Ok(())
    })
}

#[test]
fn a_message_of_a_stream_can_be_viewed_in_its_bytes() {
    use erpc::service::Viewable;
    use prost::Message;
    let bytes = entry("a").encode_to_vec();
    assert_eq!(FeedEntry::view(&bytes), Ok(FeedEntryView { key: "a", value: &[7] }));
}

/// Tasks of several threads can use clones of a shared client, and move its calls and streams.
const _: fn(FeedClient) = |feed| {
    fn shared(_: &(impl Clone + Send + Sync + 'static)) {}
    fn moves(_: impl Send + 'static) {}
    fn future(_: impl Future + Send + 'static) {}
    fn items(_: impl Stream<Item = Result<FeedEntry, CallError>> + Send + 'static) {}

    shared(&feed);
    future(feed.get(FeedKey::default()));
    items(feed.watch(FeedKey::default()));
    moves(feed.upload());
    future(feed.upload().finish());
    let (out, back) = feed.sync();
    items(back);
    future(async move { out.send(FeedEntry::default()).await });
};

fn on_tokio<R>(body: impl Future<Output = R>) -> R {
    let mut runtime = tokio::runtime::Builder::new_multi_thread();
    runtime.worker_threads(2).enable_all().build().unwrap().block_on(body)
}

#[test]
fn streams_of_a_shared_client_work_in_all_directions() -> Result<(), CallError> {
    let server = Server::builder().add_service(Store).add_service(Doubler).workers(1);
    let server = server.spawn("127.0.0.1:0").unwrap();
    on_tokio(async {
        let feed = FeedClient::connect(server.local_addr()).await.unwrap();
        let mut watched = feed.watch(FeedKey { key: "ab".to_owned() });
        assert_eq!(watched.next().await?, Some(entry("a")));
        assert_eq!(watched.next().await?, Some(entry("b")));
        assert_eq!(watched.next().await?, None);
        assert_eq!(watched.next().await?, None, "the end lasts");

        let upload = feed.upload();
        for key in ["a", "b", "c"] {
            upload.send(entry(key)).await?;
        }
        assert_eq!(upload.finish().await?.key, "abc");

        let (out, mut back) = feed.sync();
        out.send(entry("there")).await?;
        assert_eq!(back.next().await?, Some(entry("there")));
        drop(out);
        assert_eq!(back.next().await?, None);
        Ok(())
    })
}

#[test]
fn a_shared_stream_moves_between_tasks_in_order_and_at_the_readers_pace() {
    const ITEMS: u64 = 200_000;
    let server = Server::builder().add_service(Doubler).spawn("127.0.0.1:0").unwrap();
    on_tokio(async {
        let ticks = TicksClient::connect(server.local_addr()).await.unwrap();
        let (out, mut doubled) = ticks.prices();
        let sent = Arc::new(AtomicU64::new(0));
        let count = Arc::clone(&sent);
        let writer = tokio::spawn(async move {
            for at in 0..ITEMS {
                out.send(Tick::new().with_at(at).with_price(0.5)).await.unwrap();
                count.store(at + 1, Ordering::Relaxed);
            }
        });
        // The reader reads nothing yet, so the writer stops when the buffers of the stream are
        // full.
        let mut before = 0;
        while before == 0 || before != sent.load(Ordering::Relaxed) {
            before = sent.load(Ordering::Relaxed);
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
        assert!(before < ITEMS / 2, "{before} items were sent to a reader that does not read");
        let reader = tokio::spawn(async move {
            let mut at = 0;
            while let Some(tick) = doubled.next().await.unwrap() {
                assert_eq!(tick, Tick::new().with_at(at).with_price(1.0));
                at += 1;
            }
            at
        });
        writer.await.unwrap();
        assert_eq!(reader.await.unwrap(), ITEMS);
    });
}

#[test]
fn a_shared_stream_ends_when_its_reader_is_dropped() {
    let server = Server::builder().add_service(Doubler).spawn("127.0.0.1:0").unwrap();
    on_tokio(async {
        let ticks = TicksClient::connect(server.local_addr()).await.unwrap();
        let (out, mut doubled) = ticks.prices();
        out.send(Tick::new().with_at(1)).await.unwrap();
        assert!(doubled.next().await.unwrap().is_some());
        drop(doubled);
        let tick = Tick::new().with_at(2);
        let ended = async { while out.send(&tick).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the stream ends");
        assert!(out.is_closed());
    });
}

#[test]
fn a_shared_stream_fails_with_its_endpoint() {
    let server = Server::builder().add_service(Doubler).spawn("127.0.0.1:0").unwrap();
    on_tokio(async {
        let threads = ClientThreads::builder().start().unwrap();
        let channel = SharedChannel::to(vec![server.local_addr().into()]).threads(&threads);
        let (out, mut doubled) = TicksClient::new(channel.build().unwrap()).prices();
        out.send(Tick::new().with_at(1)).await.unwrap();
        assert!(doubled.next().await.unwrap().is_some());
        let handle = threads.handles().next().unwrap();
        handle.submit(|endpoint| endpoint.shutdown()).unwrap();
        assert!(doubled.next().await.is_err());
        assert_eq!(doubled.next().await, Ok(None), "the error is reported once");
        let tick = Tick::new().with_at(2);
        let ended = async { while out.send(&tick).await.is_ok() {} };
        tokio::time::timeout(Duration::from_secs(10), ended).await.expect("the stream ends");
    });
}
