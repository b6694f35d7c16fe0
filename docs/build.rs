//! Compiles the services that the guide shows.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::compile_protos(&["proto/stock.proto", "proto/market.proto"], &["proto"])
}
