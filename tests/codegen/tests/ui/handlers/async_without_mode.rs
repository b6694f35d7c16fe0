use erpc::{Request, Response, Status};
use hello::{GreetReply, GreetRequest, Greeter};

// Generated in this crate, as with `erpc::include_proto!`.
mod hello {
    include!("../../../../../erpc-build/tests/golden/plain/hello.v1.rs");
}

struct Hello;

impl Greeter for Hello {
    async fn greet(&self, _: Request<'_, GreetRequest>) -> Result<Response<GreetReply>, Status> {
        todo!()
    }
}

fn main() {}
