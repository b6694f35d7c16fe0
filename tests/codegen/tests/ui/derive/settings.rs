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

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Greet, idempotent), method(Greet, max_request = 64))]
struct Twice;
greeter!(Twice);

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Greet, deadline = 20))]
struct NoUnit;
greeter!(NoUnit);

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, deadline = "1.5s")]
struct Fraction;
greeter!(Fraction);

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Greet, worker))]
struct Mode;
greeter!(Mode);

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, worker(Greet), dispatch(Greet))]
struct BothModes;
greeter!(BothModes);

#[derive(erpc::Service)]
#[erpc(service = hello::Greeter, method(Greet, size = 64))]
struct NoSetting;
greeter!(NoSetting);

fn main() {}
