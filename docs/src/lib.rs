//! The guide to erpc, chapter by chapter. What it shows is compiled and run as this crate's tests.
//!
//! Its chapters are the files beside this crate's manifest; start with the [first](contract).

/// The service that the guide builds, as `erpc-build` makes it of `proto/stock.proto`.
pub mod stock {
    erpc::include_proto!("stock.v1");
}

pub mod warehouse;

#[doc = include_str!("../1-contract.md")]
pub mod contract {}

#[doc = include_str!("../2-server.md")]
pub mod server {}

#[doc = include_str!("../3-client.md")]
pub mod client {}

#[doc = include_str!("../4-streams.md")]
pub mod streams {}

#[doc = include_str!("../5-machines.md")]
pub mod machines {}

#[doc = include_str!("../6-nanoseconds.md")]
pub mod nanoseconds {}

#[doc = include_str!("../7-tonic.md")]
pub mod tonic {}
