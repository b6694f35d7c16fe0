//! Compiles the service that the tests speak.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::configure().bytes(".test.v1").compile_protos(&["proto/test.proto"], &["proto"])
}
