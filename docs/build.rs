//! Compiles the services of the guide.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::compile_protos(&["proto/stock.proto", "proto/market.proto"], &["proto"])
}
