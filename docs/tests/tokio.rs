//! A web server in tokio: servers that are not there yet, health, and streams in its answers.

use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use erpc::health::{CHECK, HealthCheckRequest, HealthReporter, ServingStatus};
use erpc::{
    CallError, CallOptions, ClientThreadsError, Code, Lookup, RetryPolicy, ServeError, Server,
    ServerHandle, SharedChannel,
};
use erpc_guide::stock::{Change, CountRequest, StockClient, WatchRequest};
use erpc_guide::warehouse::Warehouse;
use futures_util::{Stream, StreamExt, stream};

type Outcome = Result<(), Box<dyn Error>>;

fn bolts() -> CountRequest {
    CountRequest { item: "bolt".into() }
}

fn serve(address: SocketAddr) -> Result<ServerHandle, ServeError> {
    let health = HealthReporter::new();
    Server::builder().add_service(Warehouse::with("bolt", 7)).health(&health).spawn(address)
}

/// An address at which nothing listens.
fn free_address() -> Result<SocketAddr, Box<dyn Error>> {
    Ok(serve(([127, 0, 0, 1], 0).into())?.local_addr())
}

/// A client of a server that may start later.
fn stock_at(address: &str) -> Result<StockClient, ClientThreadsError> {
    let channel = SharedChannel::to(Lookup::new(address.to_owned())).build()?;
    Ok(StockClient::new(channel))
}

#[tokio::test]
async fn the_server_starts_later_and_restarts() -> Outcome {
    let address = free_address()?;
    assert!(StockClient::connect(address).await.is_err());
    let stock = stock_at(&address.to_string())?;
    let refused = stock.count(bolts()).await.expect_err("nothing listens");
    assert!(matches!(refused, CallError::NoServer(_)), "{refused}");

    let patient = CallOptions::new().wait_for_ready(true).deadline(Duration::from_secs(20));
    let stock = stock.with(patient);
    let waiting = stock.count(bolts());
    let server = serve(address)?;
    assert_eq!(waiting.await?.count, 7);

    drop(server);
    let _server = serve(address)?;
    let steady = stock.with(CallOptions::new().retry(RetryPolicy::new(3)));
    assert_eq!(steady.count(bolts()).await?.count, 7);
    Ok(())
}

/// Whether the server serves, for the page `/health` of a web server.
async fn is_healthy(stock: &StockClient) -> bool {
    let question = HealthCheckRequest { service: "stock.v1.Stock".into() };
    let answer = stock.channel().call(&CHECK, &question).await;
    answer.is_ok_and(|answer| answer.status() == ServingStatus::Serving)
}

#[tokio::test]
async fn the_health_of_a_server() -> Outcome {
    let address = free_address()?;
    let stock = stock_at(&address.to_string())?;
    assert!(!is_healthy(&stock).await);
    let health = HealthReporter::new();
    let warehouse = Warehouse::with("bolt", 7);
    let server = Server::builder().add_service(warehouse).health(&health).spawn(address)?;
    let ready = CallOptions::new().wait_for_ready(true);
    stock.with(ready).count(bolts()).await?;
    assert!(is_healthy(&stock).await);
    health.set("stock.v1.Stock", ServingStatus::NotServing);
    assert!(!is_healthy(&stock).await);
    drop(server);
    Ok(())
}

/// The changes of an item, as the body of an answer: `Body::from_stream` of axum takes it.
async fn changes(
    stock: &StockClient,
    item: String,
) -> Result<impl Stream<Item = Result<Change, CallError>> + Send + use<>, CallError> {
    let mut changes = stock.watch(WatchRequest { item });
    // A stream that cannot begin fails here, as long as the answer can still be an error.
    let first = changes.next().await?;
    Ok(stream::iter(first.map(Ok)).chain(changes))
}

#[tokio::test]
async fn a_stream_that_cannot_begin_fails_before_the_answer() -> Outcome {
    let address = free_address()?;
    let stock = stock_at(&address.to_string())?;
    let refused = changes(&stock, "bolt".into()).await.err().ok_or("nothing listens")?;
    assert!(matches!(refused, CallError::NoServer(_)), "{refused}");

    let _server = serve(address)?;
    let stock = stock.with(CallOptions::new().wait_for_ready(true));
    let unknown = changes(&stock, "nut".into()).await.err().ok_or("there are no nuts")?;
    assert_eq!(unknown.code(), Code::NotFound);
    let mut body = std::pin::pin!(changes(&stock, "bolt".into()).await?);
    assert_eq!(body.next().await, Some(Ok(Change { count: 7 })));
    Ok(())
}
