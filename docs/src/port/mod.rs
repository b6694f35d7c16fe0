//! The tutorials of gRPC, ported from tonic: chapter 7 shows these files beside those of
//! `docs/tonic`.

pub mod helloworld_client;
pub mod helloworld_server;
pub mod places;
pub mod route_guide_client;
pub mod route_guide_server;

/// The smallest service, generated from `proto/helloworld.proto`.
pub mod helloworld {
    erpc::include_proto!("helloworld");
}

/// A service with a method of each kind, generated from `proto/route_guide.proto`.
pub mod routeguide {
    erpc::include_proto!("routeguide");
}
