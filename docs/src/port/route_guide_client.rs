//! The client of the route guide: a call of each kind.

use std::error::Error;

use super::routeguide::{Feature, Point, Rectangle, RouteGuideClient, RouteNote, RouteSummary};

/// The place at a point.
pub async fn feature(client: &RouteGuideClient, point: Point) -> Result<Feature, Box<dyn Error>> {
    let feature = client.get_feature(point).await?;
    Ok(feature)
}

/// The places of an area.
pub async fn features(
    client: &RouteGuideClient,
    area: Rectangle,
) -> Result<Vec<Feature>, Box<dyn Error>> {
    let mut stream = client.list_features(area);
    let mut features = Vec::new();
    while let Some(feature) = stream.next().await? {
        features.push(feature);
    }
    Ok(features)
}

/// Follows a route.
pub async fn route(
    client: &RouteGuideClient,
    points: Vec<Point>,
) -> Result<RouteSummary, Box<dyn Error>> {
    let route = client.record_route();
    for point in points {
        route.send(point).await?;
    }
    let summary = route.finish().await?;
    Ok(summary)
}

/// Sends notes one by one, and returns the answers.
pub async fn chat(
    client: &RouteGuideClient,
    notes: Vec<RouteNote>,
) -> Result<Vec<RouteNote>, Box<dyn Error>> {
    let (out, mut incoming) = client.route_chat();
    tokio::spawn(async move {
        for note in notes {
            out.send(note).await?;
        }
        Ok::<(), erpc::CallError>(())
    });
    let mut answers = Vec::new();
    while let Some(note) = incoming.next().await? {
        answers.push(note);
    }
    Ok(answers)
}
