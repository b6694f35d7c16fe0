use erpc::{Request, Response, Server, Status};
use erpc_codegen_tests::hello::{self, GreetReply, GreetRequest};

struct Greeter;

impl hello::Greeter for Greeter {
    fn greet(&self, _: Request<'_, GreetRequest>) -> Result<Response<GreetReply>, Status> {
        todo!()
    }
}

fn main() {
    let _ = Server::builder().add_service(Greeter);
}
