use erpc_codegen_tests::hello;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, worker(Greet), dispatch(Greet))]
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
