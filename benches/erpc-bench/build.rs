//! Compiles the service of workload w4.

fn main() -> Result<(), erpc_build::Error> {
    // The `bytes` fields become `Bytes`, so the server returns values without a copy.
    erpc_build::configure().bytes(".bench.v1").compile_protos(&["proto/bench.proto"], &["proto"])
}
