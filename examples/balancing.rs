//! One client balances its calls over three servers. One server stops and restarts; no call fails.

use std::collections::BTreeMap;
use std::error::Error;
use std::net::SocketAddr;
use std::time::Duration;

use erpc::{
    Balance, CallError, CallOptions, Channel, Endpoint, Request, Response, RetryPolicy, ServeError,
    Server, ServerHandle, Status,
};
use proto::{AskReply, AskRequest, LocalWhoClient, Who};

mod proto {
    erpc::include_proto!("who.v1");
}

#[derive(erpc::Service)]
#[erpc(service = proto::Who)]
struct Named(&'static str);

impl Who for Named {
    fn ask(&self, _: Request<'_, AskRequest>) -> Result<Response<AskReply>, Status> {
        Ok(Response::new(AskReply { name: self.0.to_owned() }))
    }
}

fn serve(name: &'static str, address: SocketAddr) -> Result<ServerHandle, ServeError> {
    Server::builder().add_service(Named(name)).spawn(address)
}

/// Makes 300 calls in sequence and counts the answers of each server.
async fn count(who: &LocalWhoClient) -> Result<BTreeMap<String, u32>, CallError> {
    let mut answers = BTreeMap::new();
    for _ in 0..300 {
        *answers.entry(who.ask(AskRequest {}).await?.name).or_default() += 1;
    }
    Ok(answers)
}

fn main() -> Result<(), Box<dyn Error>> {
    let any = SocketAddr::from(([127, 0, 0, 1], 0));
    let (first, second, third) =
        (serve("first", any)?, serve("second", any)?, serve("third", any)?);
    let addresses = [&first, &second, &third].map(ServerHandle::local_addr);

    let endpoint = Endpoint::udp()?;
    // For servers behind a DNS name, use `erpc::Lookup::new("who.example:31850")` here.
    let channel = Channel::to(&endpoint, addresses.map(Into::into).to_vec())
        .balance(Balance::LeastOutstanding)
        .backoff(Duration::from_millis(20), Duration::from_secs(1))
        // `Ask` may be retried: `who.proto` declares it free of side effects.
        .options(CallOptions::new().retry(RetryPolicy::new(3)))
        .build();
    endpoint.block_on(channel.ready())?;
    let who = LocalWhoClient::new(channel.clone());

    println!("three servers:   {:?}", endpoint.block_on(count(&who))?);
    second.shutdown();
    println!("one stopped:     {:?}", endpoint.block_on(count(&who))?);
    let _back = serve("second", addresses[1])?;
    endpoint.run_until(|| channel.backends().iter().all(|server| server.sessions == 1));
    println!("restarted:       {:?}", endpoint.block_on(count(&who))?);
    Ok(())
}
