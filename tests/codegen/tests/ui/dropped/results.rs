//! Results of calls and constructors are dropped, and with them work or a connection.

#![deny(unused_must_use)]

use std::error::Error;
use std::time::Duration;

use erpc::service::Method;
use erpc::{
    CallOptions, Channel, ClientThreads, Endpoint, Metadata, Nexus, Outgoing, Request, Responder,
    Response, RetryPolicy, Server, Session, SharedChannel, SharedOutgoing, Status, WorkerPool,
};

const METHOD: Method<u32, u32> = Method::new("test.Math/Method");

fn streams(session: &Session, channel: &Channel) {
    session.server_streaming(&METHOD, &1);
    session.client_streaming(&METHOD);
    session.bidi_streaming(&METHOD);
    channel.server_streaming(&METHOD, &1);
}

async fn items(out: Outgoing<u32>) {
    out.send(1);
}

fn calls(endpoint: &Endpoint, channel: &Channel) -> Result<(), Box<dyn Error>> {
    channel.call(&METHOD, &1);
    channel.call(&METHOD, &1).with_metadata();
    channel.with(CallOptions::new());
    endpoint.connect("server:1")?;
    endpoint.connect_async("[::1]:1".parse::<std::net::SocketAddr>()?.into());
    Channel::connect(endpoint, "server:1")?;
    Channel::to(endpoint, vec![]);
    Channel::to(endpoint, vec![]).build();
    endpoint.sleep(Duration::ZERO);
    endpoint.timeout(Duration::ZERO, async {});
    erpc::sleep(Duration::ZERO);
    erpc::timeout(Duration::ZERO, async {});
    endpoint.handle().submit(|_| ());
    Ok(())
}

async fn shared(
    channel: &SharedChannel,
    out: SharedOutgoing<u32>,
) -> Result<(), Box<dyn Error>> {
    channel.call(&METHOD, &1);
    channel.call(&METHOD, &1).with_metadata();
    channel.server_streaming(&METHOD, &1);
    channel.client_streaming(&METHOD);
    channel.bidi_streaming(&METHOD);
    out.send(1);
    channel.ready();
    channel.with(CallOptions::new());
    SharedChannel::connect("server:1").await?;
    SharedChannel::to(vec![]);
    SharedChannel::to(vec![]).build()?;
    ClientThreads::builder();
    ClientThreads::builder().start()?;
    Ok(())
}

fn servers() -> Result<(), Box<dyn Error>> {
    Endpoint::udp()?;
    Server::builder();
    Server::builder().spawn("[::]:1")?;
    Nexus::bind("[::]:1".parse()?, 1, erpc::UdpConfig::new())?;
    WorkerPool::new(1, 1)?;
    Ok(())
}

fn handler(request: Request<'_, u32>) -> Result<Response<u32>, Status> {
    request.defer(|_, _: Responder<u32>| ());
    Status::not_found("gone");
    Ok(Response::new(1))
}

fn options() {
    CallOptions::new().deadline(Duration::ZERO);
    RetryPolicy::new(3).also_unexecuted();
    Metadata::new().insert("key", "value");
}

fn main() {}
