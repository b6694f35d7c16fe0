use std::cell::Cell;

use erpc::{Request, Response, Status};
use erpc_codegen_tests::hello::{self, GreetReply, GreetRequest};

struct Greeter {
    count: Cell<u32>,
}

impl hello::Greeter for Greeter {
    fn greet(&self, _: Request<'_, GreetRequest>) -> Result<Response<GreetReply>, Status> {
        todo!()
    }
}

fn main() {}
