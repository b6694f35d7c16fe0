//! Compiles the services of the examples.

fn main() -> Result<(), erpc_build::Error> {
    // The `bytes` fields of `kv.v1` become `Bytes`, so the store returns values without a copy.
    erpc_build::configure().bytes(".kv.v1").compile_protos(
        &[
            "../proto/hello.proto",
            "../proto/kv.proto",
            "../proto/quotes.proto",
            "../proto/table.proto",
            "../proto/who.proto",
        ],
        &["../proto"],
    )
}
