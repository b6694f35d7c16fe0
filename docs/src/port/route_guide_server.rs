//! The server of the route guide.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::{Duration, Instant};

use erpc::{Response, Server, SharedIncoming, SharedOutgoing, SharedRequest as Request, Status};
use tokio::runtime::Handle;

use super::places::{distance, is_inside, places};
use super::routeguide::{Feature, Point, Rectangle, RouteGuide, RouteNote, RouteSummary};

/// A guide that knows some places.
#[derive(erpc::Service)]
#[erpc(service = super::routeguide::RouteGuide)]
pub struct MyGuide {
    /// The places.
    pub features: Arc<Vec<Feature>>,
}

impl RouteGuide for MyGuide {
    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let point = request.into_message();
        let there = self.features.iter().find(|place| place.location == Some(point));
        let nothing = Feature { name: String::new(), location: Some(point) };
        Ok(Response::new(there.cloned().unwrap_or(nothing)))
    }

    async fn list_features(
        &self,
        request: Request<Rectangle>,
        out: SharedOutgoing<Feature>,
    ) -> Result<(), Status> {
        for feature in self.features.iter() {
            if is_inside(feature, request.message()) {
                out.send(feature).await?;
            }
        }
        Ok(())
    }

    async fn record_route(
        &self,
        request: Request<SharedIncoming<Point>>,
    ) -> Result<Response<RouteSummary>, Status> {
        let mut points = request.into_message();
        let (begin, mut summary) = (Instant::now(), RouteSummary::default());
        let mut last: Option<Point> = None;
        while let Some(point) = points.next().await? {
            summary.point_count += 1;
            let is_feature = self.features.iter().any(|place| place.location == Some(point));
            summary.feature_count += i32::from(is_feature);
            summary.distance += last.replace(point).map_or(0, |last| distance(&last, &point));
        }
        summary.elapsed_time = begin.elapsed().as_secs() as i32;
        Ok(Response::new(summary))
    }

    async fn route_chat(
        &self,
        request: Request<SharedIncoming<RouteNote>>,
        out: SharedOutgoing<RouteNote>,
    ) -> Result<(), Status> {
        let mut incoming = request.into_message();
        let mut notes: HashMap<Point, Vec<RouteNote>> = HashMap::new();
        while let Some(note) = incoming.next().await? {
            let there = notes.entry(note.location.unwrap_or_default()).or_default();
            there.push(note);
            for note in there.iter() {
                out.send(note).await?;
            }
        }
        Ok(())
    }
}

/// Serves until SIGTERM or Ctrl-C.
pub async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    Server::builder()
        .add_service(MyGuide { features: Arc::new(places()) })
        .tokio(Handle::current())
        .serve_until_signal(address, Duration::from_secs(10))?;
    Ok(())
}
