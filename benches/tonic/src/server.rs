//! The server process: the store of workload w4.

use std::net::SocketAddr;
use std::num::NonZeroUsize;

use bytes::Bytes;
use clap::Args;
use tonic::transport::Server;
use tonic::transport::server::TcpIncoming;
use tonic::{Request, Response, Status};

use crate::Failure;
use crate::proto::bench_server::{Bench, BenchServer};
use crate::proto::{GetRequest, GetResponse};
use crate::values::{is_there, value};

#[derive(Args)]
pub(crate) struct ServerArgs {
    /// Address to listen at
    #[arg(long)]
    addr: SocketAddr,
    /// Threads of the runtime [default: one per core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
}

/// Has a value for each key, as the store of erpc-bench.
struct Store {
    values: Vec<Bytes>,
}

impl Store {
    fn new() -> Self {
        Self {
            values: (0..=u8::MAX).map(|key| Bytes::copy_from_slice(&value(key.into()))).collect(),
        }
    }
}

#[tonic::async_trait]
impl Bench for Store {
    async fn get(&self, request: Request<GetRequest>) -> Result<Response<GetResponse>, Status> {
        let key = request.into_inner().key;
        let value = self.values[key as u8 as usize].clone();
        Ok(Response::new(GetResponse { value, found: is_there(key) }))
    }
}

/// Serves until the process is killed.
pub(crate) fn run(args: &ServerArgs) -> Result<(), Failure> {
    crate::runtime(args.threads)?.block_on(async {
        let incoming = TcpIncoming::bind(args.addr)?.with_nodelay(Some(true));
        println!("READY");
        let server = Server::builder().add_service(BenchServer::new(Store::new()));
        Ok(server.serve_with_incoming(incoming).await?)
    })
}
