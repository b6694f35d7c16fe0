//! Compiles the services of the tests.

fn main() -> Result<(), erpc_build::Error> {
    erpc_build::configure().bytes(".test.v1").compile_protos(&["proto/test.proto"], &["proto"])?;
    erpc_build::compile_protos(&["../proto/erpc/health/v1/health.proto"], &["../proto"])?;
    // Maps are ordered, so that equal messages have equal bytes.
    erpc_build::configure().btree_map(".").compile_protos(&["proto/kinds.proto"], &["proto"])
}
