//! What the route guide knows; the same for tonic and erpc.

use super::routeguide::{Feature, Point, Rectangle};

/// The places that the guide knows.
#[must_use]
pub fn places() -> Vec<Feature> {
    let place = |name: &str, latitude, longitude| Feature {
        name: name.to_owned(),
        location: Some(Point { latitude, longitude }),
    };
    vec![
        place("Berkshire Valley", 409_146_138, -746_188_906),
        place("Patriots Path", 407_838_351, -746_143_763),
        place("Hibernia", 409_537_000, -744_910_000),
        place("Mount Hope", 409_260_000, -745_460_000),
    ]
}

/// Whether a place is inside of an area.
#[must_use]
pub fn is_inside(place: &Feature, area: &Rectangle) -> bool {
    let (lo, hi) = (area.lo.unwrap_or_default(), area.hi.unwrap_or_default());
    let location = place.location.unwrap_or_default();
    let between =
        |value: i32, one: i32, other: i32| (one.min(other)..=one.max(other)).contains(&value);
    between(location.latitude, lo.latitude, hi.latitude)
        && between(location.longitude, lo.longitude, hi.longitude)
}

/// Distance of two points in meters, on a plane that touches the earth between them.
#[must_use]
pub fn distance(from: &Point, to: &Point) -> i32 {
    /// Meters per degree of latitude.
    const DEGREE: f64 = 111_195.0;
    let degrees = |number: i32| f64::from(number) / 10_000_000.0;
    let north = degrees(to.latitude) - degrees(from.latitude);
    let middle = f64::midpoint(degrees(to.latitude), degrees(from.latitude)).to_radians();
    let east = (degrees(to.longitude) - degrees(from.longitude)) * middle.cos();
    (north.hypot(east) * DEGREE) as i32
}
