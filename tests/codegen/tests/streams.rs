//! Streams of generated services over the network.

use std::sync::Arc;

use erpc::service::Routes;
use erpc::{CallError, Endpoint, Incoming, Outgoing, Request, Response, Server, Service, Status};
use erpc_codegen_tests::streams::{
    Feed, FeedEntry, FeedEntryView, FeedKey, LocalFeedClient, LocalTicksClient, Tick, Ticks,
};

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
