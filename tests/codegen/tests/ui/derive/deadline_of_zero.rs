use erpc_codegen_tests::hello;

use std::time::Duration;

const NEVER: Duration = Duration::ZERO;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, deadline = NEVER)]
struct Greeter;

impl hello::Greeter for Greeter {
    fn greet(
        &self,
        _: erpc::Request<'_, hello::GreetRequest>,
    ) -> Result<erpc::Response<hello::GreetReply>, erpc::Status> {
        Err(erpc::Status::unimplemented("nothing"))
    }
}

fn main() {}
