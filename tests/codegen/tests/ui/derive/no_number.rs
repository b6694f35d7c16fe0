use erpc_codegen_tests::hello;

const LIMIT: usize = 64;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Greet, max_request = LIMIT))]
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
