//! A minimal program: a service, its server and a client, over UDP on this machine.

use std::error::Error;

use erpc::{Endpoint, Request, Response, Server, Status};
use proto::{GreetReply, GreetRequest, Greeter, LocalGreeterClient};

mod proto {
    erpc::include_proto!("hello.v1");
}

#[derive(erpc::Service)]
#[erpc(service = proto::Greeter)]
struct Hello;

impl Greeter for Hello {
    fn greet(&self, request: Request<'_, GreetRequest>) -> Result<Response<GreetReply>, Status> {
        let greeting = format!("Hello, {}!", request.message().name);
        Ok(Response::new(GreetReply { greeting }))
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    // The server runs on its own thread, at a port the system picks, until `server` is dropped.
    let server = Server::builder().add_service(Hello).spawn("127.0.0.1:0")?;

    let endpoint = Endpoint::udp()?;
    let greeter = LocalGreeterClient::connect(&endpoint, server.local_addr())?;
    let reply = endpoint.block_on(greeter.greet(GreetRequest { name: "world".into() }))?;
    println!("{}", reply.greeting);
    Ok(())
}
