//! Calls from tokio's tasks: the endpoint has a thread of its own, and the tasks, on whatever thread, a
//! `Remote` each.

use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use erpc::tokio::Remote;
use erpc::{CallError, Channel, Endpoint, Request, Response, Server, Status};
use proto::{GreetReply, GreetRequest, Greeter, GreeterClient};

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

/// Runs on the endpoint's thread. All tasks share the client that the endpoint keeps.
async fn greet(endpoint: Endpoint, server: SocketAddr, name: String) -> Result<String, CallError> {
    let greeter = endpoint.local(|endpoint| {
        let channel = Channel::to(endpoint, vec![server.into()]).build();
        GreeterClient::new(channel)
    });
    Ok(greeter.greet(GreetRequest { name }).await?.greeting)
}

fn main() -> Result<(), Box<dyn Error>> {
    let server = Server::builder().add_service(Hello).spawn("127.0.0.1:0")?;
    let address = server.local_addr();

    let (send, receive) = mpsc::channel();
    thread::spawn(move || match Endpoint::udp() {
        Ok(endpoint) => {
            send.send(Remote::from(endpoint.handle())).unwrap_or(());
            endpoint.block_on(pending::<()>());
        }
        Err(error) => eprintln!("{error}"),
    });
    let remote = receive.recv()?;

    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let tasks: Vec<_> = (0..5)
            .map(|number| {
                let remote = remote.clone();
                tokio::spawn(async move {
                    let name = format!("task {number}");
                    remote.run(move |endpoint| greet(endpoint, address, name)).await
                })
            })
            .collect();
        for task in tasks {
            println!("{}", task.await???);
        }
        Ok(())
    })
}
