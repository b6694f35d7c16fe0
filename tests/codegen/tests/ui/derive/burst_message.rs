use erpc::{Burst, Request, Response, Status};
use erpc_codegen_tests::hello;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, burst(Greet = look_ahead))]
struct Greeter;

impl Greeter {
    fn look_ahead(&self, _: Burst<'_, hello::GreetReply>) {}
}

impl hello::Greeter for Greeter {
    fn greet(
        &self,
        _: Request<'_, hello::GreetRequest>,
    ) -> Result<Response<hello::GreetReply>, Status> {
        Err(Status::unimplemented("nothing"))
    }
}

fn main() {}
