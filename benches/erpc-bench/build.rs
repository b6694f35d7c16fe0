//! Compiles the service of workload w4.

fn main() -> Result<(), erpc_build::Error> {
    // Values as `Bytes`, so that the server hands them out without copying.
    erpc_build::configure().bytes(".bench.v1").compile_protos(&["proto/bench.proto"], &["proto"])
}
