//! The client of the route guide: a call of each kind.

use std::error::Error;

use tonic::Request;
use tonic::transport::Channel;

use super::routeguide::route_guide_client::RouteGuideClient;
use super::routeguide::{Feature, Point, Rectangle, RouteNote, RouteSummary};

/// The place at a point.
pub async fn feature(
    client: &mut RouteGuideClient<Channel>,
    point: Point,
) -> Result<Feature, Box<dyn Error>> {
    let feature = client.get_feature(Request::new(point)).await?.into_inner();
    Ok(feature)
}

/// The places of an area.
pub async fn features(
    client: &mut RouteGuideClient<Channel>,
    area: Rectangle,
) -> Result<Vec<Feature>, Box<dyn Error>> {
    let mut stream = client.list_features(Request::new(area)).await?.into_inner();
    let mut features = Vec::new();
    while let Some(feature) = stream.message().await? {
        features.push(feature);
    }
    Ok(features)
}

/// Follows a route.
pub async fn route(
    client: &mut RouteGuideClient<Channel>,
    points: Vec<Point>,
) -> Result<RouteSummary, Box<dyn Error>> {
    let route = tokio_stream::iter(points);
    let summary = client.record_route(Request::new(route)).await?.into_inner();
    Ok(summary)
}

/// Sends notes one by one, and returns the answers.
pub async fn chat(
    client: &mut RouteGuideClient<Channel>,
    notes: Vec<RouteNote>,
) -> Result<Vec<RouteNote>, Box<dyn Error>> {
    let out = tokio_stream::iter(notes);
    let mut incoming = client.route_chat(Request::new(out)).await?.into_inner();
    let mut answers = Vec::new();
    while let Some(note) = incoming.message().await? {
        answers.push(note);
    }
    Ok(answers)
}
