//! Compiles the service that the guide builds.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::compile_protos(&["proto/stock.proto"], &["proto"])
}
