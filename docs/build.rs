//! Compiles the services of the guide.

use erpc_build::Mode;

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::compile_protos(&["proto/stock.proto", "proto/market.proto"], &["proto"])?;
    erpc_build::configure()
        .default_mode(Mode::Tokio)
        .compile_protos(&["proto/helloworld.proto", "proto/route_guide.proto"], &["proto"])
}
