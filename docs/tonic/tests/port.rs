//! The programs at work, as in `docs/tests/port.rs`.

use std::error::Error;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use erpc_guide_tonic::helloworld::greeter_server::GreeterServer;
use erpc_guide_tonic::helloworld_client::greet;
use erpc_guide_tonic::helloworld_server::MyGreeter;
use erpc_guide_tonic::places::places;
use erpc_guide_tonic::route_guide_client::{chat, feature, features, route};
use erpc_guide_tonic::route_guide_server::MyGuide;
use erpc_guide_tonic::routeguide::route_guide_client::RouteGuideClient;
use erpc_guide_tonic::routeguide::route_guide_server::RouteGuideServer;
use erpc_guide_tonic::routeguide::{Point, Rectangle, RouteNote};
use tokio::net::TcpListener;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::transport::Server;
use tonic::transport::server::Router;

type Outcome = Result<(), Box<dyn Error>>;

fn on_tokio(test: impl Future<Output = Outcome>) -> Outcome {
    let limit = Duration::from_secs(20);
    tokio::runtime::Runtime::new()?.block_on(async { tokio::time::timeout(limit, test).await })?
}

/// Starts a server at a free port.
async fn start(server: Router) -> Result<SocketAddr, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    tokio::spawn(server.serve_with_incoming(TcpListenerStream::new(listener)));
    Ok(address)
}

#[test]
fn helloworld() -> Outcome {
    on_tokio(async {
        let server = Server::builder().add_service(GreeterServer::new(MyGreeter::default()));
        let address = start(server).await?;
        assert_eq!(greet(&address.to_string(), "tonic").await?, "Hello tonic!");
        Ok(())
    })
}

#[test]
fn route_guide() -> Outcome {
    on_tokio(async {
        let places = places();
        let guide = MyGuide { features: Arc::new(places.clone()) };
        let address = start(Server::builder().add_service(RouteGuideServer::new(guide))).await?;
        let mut client = RouteGuideClient::connect(format!("http://{address}")).await?;
        let point = |index: usize| places[index].location.unwrap_or_default();
        assert_eq!(feature(&mut client, point(1)).await?.name, "Patriots Path");
        assert_eq!(feature(&mut client, Point::default()).await?.name, "");

        let area = Rectangle { lo: Some(point(2)), hi: Some(point(0)) };
        let found = features(&mut client, area).await?;
        let names: Vec<_> = found.into_iter().map(|it| it.name).collect();
        assert_eq!(names, ["Berkshire Valley", "Hibernia", "Mount Hope"]);

        let summary = route(&mut client, vec![point(0), point(1), Point::default()]).await?;
        assert_eq!((summary.point_count, summary.feature_count), (3, 2));
        assert!((8_000_000..10_000_000).contains(&summary.distance), "{summary:?}");

        let note = |message: &str| RouteNote { location: Some(point(0)), message: message.into() };
        let answers = chat(&mut client, vec![note("one"), note("two")]).await?;
        assert_eq!(answers, [note("one"), note("one"), note("two")]);
        Ok(())
    })
}
