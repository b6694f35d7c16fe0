//! Compiles the services that the tests speak.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::configure().bytes(".test.v1").compile_protos(&["proto/test.proto"], &["proto"])?;
    // In order, so that equal messages are equal bytes.
    erpc_build::configure().btree_map(".").compile_protos(&["proto/kinds.proto"], &["proto"])
}
