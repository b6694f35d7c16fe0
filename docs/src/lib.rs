//! The service that the guide builds. The guide is the Markdown files beside this crate's manifest; what they show
//! is taken from this crate's sources and tests, which `tests/quotes.rs` sees to.

/// The service, as `erpc-build` makes it of `proto/stock.proto`.
pub mod stock {
    erpc::include_proto!("stock.v1");
}

/// Messages for hot paths, of `proto/market.proto`.
pub mod market {
    erpc::include_proto!("market.v1");
}

pub mod warehouse;
