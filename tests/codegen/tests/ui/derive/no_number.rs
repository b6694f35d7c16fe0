use erpc_codegen_tests::hello::{self, GreetReply, GreetRequest};

macro_rules! greeter {
    ($name:ident) => {
        impl hello::Greeter for $name {
            fn greet(
                &self,
                _: erpc::Request<'_, GreetRequest>,
            ) -> Result<erpc::Response<GreetReply>, erpc::Status> {
                Err(erpc::Status::unimplemented("nothing"))
            }
        }
    };
}

const LIMIT: usize = 64;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Greet, max_request = LIMIT))]
struct Other;
greeter!(Other);

fn main() {}
