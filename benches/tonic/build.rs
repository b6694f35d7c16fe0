//! Compiles the service of workload w4, without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let folder = "../erpc-bench/proto";
    println!("cargo::rerun-if-changed={folder}");
    let service = protox::compile(["bench.proto"], [folder])?;
    // The `bytes` fields become `Bytes`, as in erpc-bench.
    tonic_prost_build::configure().bytes(".bench.v1").compile_fds(service)?;
    Ok(())
}
