//! Two ways to make calls from tokio tasks:
//!
//! * The endpoint has its own thread. Tasks on any thread reach it through a `Remote` each.
//! * The endpoint is driven by a task of a `LocalSet`. The other tasks of this thread use its
//!   clients directly.

use std::error::Error;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::mpsc;
use std::thread;

use erpc::tokio::{Remote, drive};
use erpc::{CallError, Channel, Endpoint, Request, Response, Server, Status};
use proto::{GreetReply, GreetRequest, Greeter, LocalGreeterClient};
use tokio::task::{LocalSet, spawn_local};

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

/// Runs on the endpoint's thread. All tasks share one client, which the endpoint keeps.
async fn greet(endpoint: Endpoint, server: SocketAddr, name: String) -> Result<String, CallError> {
    let greeter = endpoint.local(|endpoint| {
        let channel = Channel::to(endpoint, vec![server.into()]).build();
        LocalGreeterClient::new(channel)
    });
    Ok(greeter.greet(GreetRequest { name }).await?.greeting)
}

/// Drives an endpoint from a task of this thread. Other tasks of the thread use the endpoint's
/// clients directly.
async fn among_tasks(server: SocketAddr) -> Result<(), Box<dyn Error>> {
    let endpoint = Endpoint::udp()?;
    let driven = endpoint.clone();
    let driver = spawn_local(async move { drive(&driven).await });
    let greeter = LocalGreeterClient::new(endpoint.open(server.into()));
    let local =
        spawn_local(async move { greeter.greet(GreetRequest { name: "local task".into() }).await });
    println!("{}", local.await??.greeting);
    endpoint.shutdown();
    Ok(driver.await??)
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
    runtime.block_on(LocalSet::new().run_until(among_tasks(address)))?;
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
