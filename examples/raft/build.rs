//! Compiles the services of the store.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::configure()
        .bytes(".raft.v1")
        .compile_protos(&["../../proto/raft.proto"], &["../../proto"])
}
