//! The server of helloworld.

use std::error::Error;
use std::time::Duration;

use erpc::{Response, Server, SharedRequest as Request, Status};
use tokio::runtime::Handle;

use super::helloworld::{Greeter, HelloReply, HelloRequest};

/// Greets everyone.
#[derive(Default, erpc::Service)]
#[erpc(service = super::helloworld::Greeter)]
pub struct MyGreeter {}

impl Greeter for MyGreeter {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello {}!", request.into_message().name);
        Ok(Response::new(HelloReply { message }))
    }
}

/// Serves until SIGTERM or Ctrl-C.
pub async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    Server::builder()
        .add_service(MyGreeter::default())
        .tokio(Handle::current())
        .serve_until_signal(address, Duration::from_secs(10))?;
    Ok(())
}
