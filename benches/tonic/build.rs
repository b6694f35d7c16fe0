//! Compiles the service of workload w4, without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    // The service, and the options of erpc that it imports.
    let folders = ["../erpc-bench/proto", "../../erpc-build/proto"];
    for folder in folders {
        println!("cargo::rerun-if-changed={folder}");
    }
    let service = protox::compile(["bench.proto"], folders)?;
    // The `bytes` fields become `Bytes`, as in erpc-bench.
    tonic_prost_build::configure().bytes(".bench.v1").compile_fds(service)?;
    Ok(())
}
