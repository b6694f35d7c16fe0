//! The server of helloworld.

use std::error::Error;

use tonic::transport::Server;
use tonic::{Request, Response, Status};

use super::helloworld::greeter_server::{Greeter, GreeterServer};
use super::helloworld::{HelloReply, HelloRequest};

/// Greets everyone.
#[derive(Default)]
pub struct MyGreeter {}

#[tonic::async_trait]
impl Greeter for MyGreeter {
    async fn say_hello(
        &self,
        request: Request<HelloRequest>,
    ) -> Result<Response<HelloReply>, Status> {
        let message = format!("Hello {}!", request.into_inner().name);
        Ok(Response::new(HelloReply { message }))
    }
}

/// Serves until Ctrl-C.
pub async fn serve(address: &str) -> Result<(), Box<dyn Error>> {
    let shutdown = async { drop(tokio::signal::ctrl_c().await) };
    Server::builder()
        .add_service(GreeterServer::new(MyGreeter::default()))
        .serve_with_shutdown(address.parse()?, shutdown)
        .await?;
    Ok(())
}
