//! Compiles the services of the cache and the sequencer.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::configure().compile_protos(&["../../proto/herd.proto"], &["../../proto"])
}
