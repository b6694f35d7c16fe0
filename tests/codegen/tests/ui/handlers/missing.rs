use erpc_codegen_tests::hello;

struct Greeter;

impl hello::Greeter for Greeter {}

fn main() {}
