//! Compiles the service of the example.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::configure().compile_protos(&["../../proto/masstree.proto"], &["../../proto"])
}
