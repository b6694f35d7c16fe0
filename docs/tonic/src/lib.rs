//! The tutorials of gRPC with tonic. Chapter 7 of the guide shows these files beside those of
//! `docs/src/port`.

pub mod helloworld_client;
pub mod helloworld_server;
#[path = "../../src/port/places.rs"]
pub mod places;
pub mod route_guide_client;
pub mod route_guide_server;

/// The smallest service.
pub mod helloworld {
    tonic::include_proto!("helloworld");
}

/// A service with a method of each kind.
pub mod routeguide {
    tonic::include_proto!("routeguide");
}
