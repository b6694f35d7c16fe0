//! The server of the route guide.

use std::collections::HashMap;
use std::error::Error;
use std::sync::Arc;
use std::time::Instant;

use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Server;
use tonic::{Request, Response, Status, Streaming};

use super::places::{distance, is_inside, places};
use super::routeguide::route_guide_server::{RouteGuide, RouteGuideServer};
use super::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};

/// A guide that knows some places.
pub struct MyGuide {
    /// The places.
    pub features: Arc<Vec<Feature>>,
}

#[tonic::async_trait]
impl RouteGuide for MyGuide {
    async fn get_feature(&self, request: Request<Point>) -> Result<Response<Feature>, Status> {
        let point = request.into_inner();
        let there = self.features.iter().find(|place| place.location == Some(point));
        let nothing = Feature { name: String::new(), location: Some(point) };
        Ok(Response::new(there.cloned().unwrap_or(nothing)))
    }

    type ListFeaturesStream = ReceiverStream<Result<Feature, Status>>;

    async fn list_features(
        &self,
        request: Request<Rectangle>,
    ) -> Result<Response<Self::ListFeaturesStream>, Status> {
        let (sender, receiver) = mpsc::channel(16);
        let features = Arc::clone(&self.features);
        tokio::spawn(async move {
            for feature in features.iter() {
                if is_inside(feature, request.get_ref())
                    && sender.send(Ok(feature.clone())).await.is_err()
                {
                    break;
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }

    async fn record_route(
        &self,
        request: Request<Streaming<Point>>,
    ) -> Result<Response<RouteSummary>, Status> {
        let mut points = request.into_inner();
        let (begin, mut summary) = (Instant::now(), RouteSummary::default());
        let mut last: Option<Point> = None;
        while let Some(point) = points.message().await? {
            summary.point_count += 1;
            let is_feature = self.features.iter().any(|place| place.location == Some(point));
            summary.feature_count += i32::from(is_feature);
            summary.distance += last.replace(point).map_or(0, |last| distance(&last, &point));
        }
        summary.elapsed_time = begin.elapsed().as_secs() as i32;
        Ok(Response::new(summary))
    }

    type RouteChatStream = ReceiverStream<Result<RouteNote, Status>>;

    async fn route_chat(
        &self,
        request: Request<Streaming<RouteNote>>,
    ) -> Result<Response<Self::RouteChatStream>, Status> {
        let mut incoming = request.into_inner();
        let (sender, receiver) = mpsc::channel(16);
        tokio::spawn(async move {
            let mut notes: HashMap<Point, Vec<RouteNote>> = HashMap::new();
            loop {
                let note = match incoming.message().await {
                    Ok(Some(note)) => note,
                    Ok(None) => return,
                    Err(status) => return drop(sender.send(Err(status)).await),
                };
                let there = notes.entry(note.location.unwrap_or_default()).or_default();
                there.push(note);
                for note in there.iter() {
                    if sender.send(Ok(note.clone())).await.is_err() {
                        return;
                    }
                }
            }
        });
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// Serves until Ctrl-C.
pub async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    Server::builder()
        .add_service(RouteGuideServer::new(MyGuide { features: Arc::new(places()) }))
        .serve_with_shutdown(address.parse()?, shutdown)
        .await?;
    Ok(())
}
