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

const NEVER: std::time::Duration = std::time::Duration::ZERO;

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Great, idempotent))]
struct Unknown;
greeter!(Unknown);

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, deadline = NEVER)]
struct Zero;
greeter!(Zero);

fn main() {}
