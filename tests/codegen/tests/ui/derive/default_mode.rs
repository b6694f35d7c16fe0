use erpc::{Request, Response, Status};
use erpc_codegen_tests::hello::{self, GreetReply, GreetRequest};

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, default_mode = tokio)]
struct Hello;

impl hello::Greeter for Hello {
    fn greet(&self, _: Request<'_, GreetRequest>) -> Result<Response<GreetReply>, Status> {
        todo!()
    }
}

fn main() {}
