//! Compiles the services, without an installed `protoc`.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let protos = ["../proto/helloworld.proto", "../proto/route_guide.proto"];
    tonic_prost_build::configure().compile_fds(protox::compile(protos, ["../proto"])?)?;
    Ok(())
}
