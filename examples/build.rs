//! Compiles the services that the examples speak.

fn main() -> Result<(), erpc_build::Error> {
    // Values as `Bytes`, so that the store hands them out without copying.
    erpc_build::configure().bytes(".kv.v1").compile_protos(
        &[
            "../proto/hello.proto",
            "../proto/kv.proto",
            "../proto/quotes.proto",
            "../proto/who.proto",
        ],
        &["../proto"],
    )
}
