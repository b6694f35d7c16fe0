//! The programs of chapter 7 at work.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use erpc::{Server, ServerHandle, Service};
use erpc_guide::port::helloworld_client::greet;
use erpc_guide::port::helloworld_server::MyGreeter;
use erpc_guide::port::places::places;
use erpc_guide::port::route_guide_client::{chat, feature, features, route};
use erpc_guide::port::route_guide_server::MyGuide;
use erpc_guide::port::routeguide::{Point, Rectangle, RouteGuideClient, RouteNote};
use tokio::runtime::{Handle, Runtime};

type Outcome = Result<(), Box<dyn Error>>;

/// Upper limit for a test. Long enough for a machine that stalls for a while.
const TEST_LIMIT: Duration = Duration::from_secs(20);

fn on_tokio(test: impl Future<Output = Outcome>) -> Outcome {
    Runtime::new()?.block_on(async { tokio::time::timeout(TEST_LIMIT, test).await })?
}

/// Starts a server as `serve` does, at a free port.
fn start(service: impl Service) -> Result<(ServerHandle, SocketAddr), Box<dyn Error>> {
    let server = Server::builder().add_service(service).tokio(Handle::current());
    let server = server.spawn("127.0.0.1:0")?;
    let address = server.local_addr();
    Ok((server, address))
}

#[test]
fn helloworld() -> Outcome {
    on_tokio(async {
        let (_server, address) = start(MyGreeter::default())?;
        assert_eq!(greet(&address.to_string(), "erpc").await?, "Hello erpc!");
        Ok(())
    })
}

#[test]
fn route_guide() -> Outcome {
    on_tokio(async {
        let places = places();
        let (_server, address) = start(MyGuide { features: Arc::new(places.clone()) })?;
        let client = RouteGuideClient::connect(address).await?;
        let point = |index: usize| places[index].location.unwrap_or_default();
        assert_eq!(feature(&client, point(1)).await?.name, "Patriots Path");
        assert_eq!(feature(&client, Point::default()).await?.name, "");

        let area = Rectangle { lo: Some(point(2)), hi: Some(point(0)) };
        let names: Vec<_> = features(&client, area).await?.into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["Berkshire Valley", "Hibernia", "Mount Hope"]);

        let summary = route(&client, vec![point(0), point(1), Point::default()]).await?;
        assert_eq!((summary.point_count, summary.feature_count), (3, 2));
        // 14.5 km, and then nearly a quarter of the earth.
        assert!((8_000_000..10_000_000).contains(&summary.distance), "{summary:?}");

        let note = |message: &str| RouteNote { location: Some(point(0)), message: message.into() };
        let answers = chat(&client, vec![note("one"), note("two")]).await?;
        assert_eq!(answers, [note("one"), note("one"), note("two")]);
        Ok(())
    })
}
