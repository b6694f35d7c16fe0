use erpc_codegen_tests::hello;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter)]
struct Greeter;

fn main() {}
