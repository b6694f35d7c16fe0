//! Writes to an etcd cluster as `erpc-raft client bench` writes to its own: clients with one write at
//! a time each, on one thread and one connection, at the leader.

use std::cell::RefCell;
use std::error::Error;
use std::rc::Rc;
use std::time::{Duration, Instant};

use clap::Parser;
use hdrhistogram::Histogram;
use tokio::task::LocalSet;
use tonic::transport::{Channel, Endpoint};

use crate::api::kv_client::KvClient;
use crate::api::maintenance_client::MaintenanceClient;
use crate::api::{PutRequest, StatusRequest};

mod api {
    tonic::include_proto!("etcdserverpb");
}

/// Before the measurement.
const WARM_UP: Duration = Duration::from_millis(500);

#[derive(Parser)]
struct Args {
    /// Addresses of all members
    #[arg(long, value_delimiter = ',', required = true)]
    connect: Vec<String>,
    /// Clients, each with one write at a time
    #[arg(long, default_value_t = 64)]
    clients: u64,
    /// Seconds to measure
    #[arg(long, default_value_t = 5)]
    secs: u64,
    /// Bytes of a value
    #[arg(long, default_value_t = 64)]
    value: usize,
    /// Different keys, of 16 bytes
    #[arg(long, default_value_t = 100_000)]
    keys: u64,
}

struct Seen {
    latency: Histogram<u64>,
    writes: u64,
}

/// A connection to the member that leads.
async fn leader(addresses: &[String]) -> Result<Channel, Box<dyn Error>> {
    for address in addresses {
        let channel = Endpoint::from_shared(format!("http://{address}"))?.connect().await?;
        let status = MaintenanceClient::new(channel.clone()).status(StatusRequest {}).await?;
        let status = status.into_inner();
        if status.header.is_some_and(|header| header.member_id == status.leader) {
            return Ok(channel);
        }
    }
    Err("no member leads".into())
}

async fn writes(
    mut client: KvClient<Channel>,
    seen: Rc<RefCell<Seen>>,
    first: u64,
    args: &Args,
    end: Instant,
) -> Result<(), tonic::Status> {
    let value = vec![b'v'; args.value];
    let mut number = first;
    while Instant::now() < end {
        let key = format!("key-{:012}", number % args.keys).into_bytes();
        let begun = Instant::now();
        client.put(PutRequest { key, value: value.clone() }).await?;
        let mut seen = seen.borrow_mut();
        seen.latency.saturating_record(begun.elapsed().as_nanos() as u64);
        seen.writes += 1;
        number += args.clients;
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let args: &'static Args = Box::leak(Box::new(Args::parse()));
    let client = KvClient::new(leader(&args.connect).await?);
    let latency = Histogram::new_with_bounds(1, 60_000_000_000, 3)?;
    let seen = Rc::new(RefCell::new(Seen { latency, writes: 0 }));
    let end = Instant::now() + WARM_UP + Duration::from_secs(args.secs);
    LocalSet::new()
        .run_until(async {
            let spawn = |first| {
                let (client, seen) = (client.clone(), Rc::clone(&seen));
                tokio::task::spawn_local(writes(client, seen, first, args, end))
            };
            let tasks: Vec<_> = (0..args.clients).map(spawn).collect();
            tokio::time::sleep(WARM_UP).await;
            {
                let mut seen = seen.borrow_mut();
                seen.latency.reset();
                seen.writes = 0;
            }
            for task in tasks {
                task.await??;
            }
            Ok::<_, Box<dyn Error>>(())
        })
        .await?;
    let seen = seen.borrow();
    println!(
        "{} clients: {:.0} writes/s, median {:.1} us, 99 % {:.1} us",
        args.clients,
        seen.writes as f64 / args.secs as f64,
        seen.latency.value_at_percentile(50.0) as f64 / 1e3,
        seen.latency.value_at_percentile(99.0) as f64 / 1e3,
    );
    Ok(())
}
