//! The server process.

use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use clap::Args;
use erpc::UdpConfig;
use erpc::raw::ListenGroup;
use erpc::raw::{Acceptor, Rpc};
use erpc::{EndpointConfig, Transport, Udp};
use erpc_core::protocol::DEFAULT_SLOTS;
use erpc_core::transport::Route;

use crate::failure::Failure;
use crate::idle::{Idle, Pauses};
use crate::load::Load;
use crate::machine;
use crate::network::{Network, NetworkArgs};
use crate::service::Answerer;

/// How long a server that calls waits for its client.
const CONNECT: Duration = Duration::from_secs(60);

#[derive(Args)]
pub(crate) struct ServerArgs {
    /// Address to listen at
    #[arg(long)]
    addr: SocketAddr,
    /// Endpoints, each on its own thread
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..=256))]
    threads: u16,
    /// Core of the first thread; the others follow on the next cores
    #[arg(long)]
    core: Option<usize>,
    /// What the server does while it has no work
    #[arg(long, value_enum, default_value_t = Idle::Spin)]
    idle: Idle,
    /// Slots of a session: a power of two up to 64. The client may have fewer
    #[arg(long, default_value_t = DEFAULT_SLOTS as u8)]
    slots: u8,
    /// Largest datagram, in bytes [default: what the interface carries]
    #[arg(long)]
    max_datagram: Option<usize>,
    /// Without UDP_SEGMENT and UDP_GRO, as on a network card without offload
    #[arg(long)]
    no_offload: bool,
    #[command(flatten)]
    network: NetworkArgs,
    /// Also call the client at this address (`client --serve-at`), with 32 bytes each way and
    /// `--outstanding` calls in flight
    #[arg(long)]
    call: Option<SocketAddr>,
    /// Calls in flight with `--call`
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    outstanding: u32,
    /// Corrupt some answers, to test that clients detect it
    #[arg(long)]
    inject_corruption: bool,
}

/// Serves until the process is killed.
pub(crate) fn run(args: &ServerArgs) -> Result<(), Failure> {
    let transports = match args.network.network() {
        Network::Udp => bind(args)?,
        Network::Dpdk => {
            let mut transports = args.network.open_dpdk(args.addr.port(), args.threads.into())?;
            return match args.call {
                Some(peer) => serve_and_call(transports.remove(0), peer, args),
                None => serve_all(transports, args),
            };
        }
        Network::Verbs => {
            let mut transports = args.network.open_verbs(Some(args.addr), args.threads.into())?;
            return match args.call {
                Some(peer) => serve_and_call(transports.remove(0), peer, args),
                None => serve_all(transports, args),
            };
        }
    };
    serve_all(transports, args)
}

fn bind(args: &ServerArgs) -> Result<Vec<Udp>, Failure> {
    let mut config = UdpConfig::new().address(args.addr).offload(!args.no_offload);
    if let Some(bytes) = args.max_datagram {
        config = config.max_datagram(bytes);
    }
    Udp::bind_group(&config, args.threads.into()).map_err(Failure::of("cannot serve"))
}

fn serve_all<T>(transports: Vec<T>, args: &ServerArgs) -> Result<(), Failure>
where
    T: Transport + Send,
{
    let ports = transports.iter().map(|transport| transport.local_route().port()).collect();
    let group = Arc::new(ListenGroup::new(secret(), ports));
    let mut endpoints = Vec::new();
    for transport in transports {
        let steer = transport.capabilities().steer;
        let mut rpc = Rpc::new(transport, EndpointConfig::new().slots(args.slots))
            .map_err(Failure::of("no endpoint"))?;
        rpc.listen(Acceptor::new(Arc::clone(&group), steer));
        endpoints.push(rpc);
    }
    println!("READY");
    eprintln!("serving at {}", args.addr);
    thread::scope(|scope| {
        let threads: Vec<_> = endpoints
            .into_iter()
            .enumerate()
            .map(|(index, rpc)| scope.spawn(move || serve(rpc, args, index)))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(Failure::new("a server thread panicked")))
        })
    })
}

/// Serves `peer` and calls it, on one endpoint. Returns only on an error.
fn serve_and_call<T>(transport: T, peer: SocketAddr, args: &ServerArgs) -> Result<(), Failure>
where
    T: Transport<Route: From<SocketAddr>>,
{
    if let Some(core) = args.core {
        machine::pin(core)?;
    }
    // The client starts later.
    let config = EndpointConfig::new().slots(args.slots).connect_timeout(CONNECT);
    let mut rpc = Rpc::new(transport, config).map_err(Failure::of("no endpoint"))?;
    rpc.listen(alone(&rpc));
    println!("READY");
    let mut load = Load::new(32, 32)?;
    load.answer()?;
    let sessions = args.outstanding.div_ceil(args.slots.max(1).into()) as usize;
    load.connect(&mut rpc, peer.into(), sessions, || {})?;
    load.run(&mut rpc, args.outstanding as usize, Duration::MAX, || {})?;
    Ok(())
}

/// Accepts sessions as the only endpoint of the server.
pub(crate) fn alone<T: Transport>(rpc: &Rpc<T>) -> Acceptor {
    Acceptor::new(Arc::new(ListenGroup::new(secret(), vec![rpc.local_route().port()])), 0)
}

/// Runs one endpoint. Returns only on an error.
fn serve<T: Transport>(mut rpc: Rpc<T>, args: &ServerArgs, index: usize) -> Result<(), Failure> {
    if let Some(first) = args.core {
        machine::pin(first + index)?;
    }
    let mut answerer = Answerer::new(args.inject_corruption)
        .map_err(Failure::of("the service does not register"))?;
    let mut pauses = Pauses::new(args.idle);
    loop {
        let work = rpc.run_once(&mut answerer);
        if let Some(time) = answerer.take_park() {
            // A client measures the round trip of a cache line to this core, so the core must be
            // free.
            thread::sleep(time);
            rpc.rested();
        }
        pauses.after_turn(&mut rpc, work);
    }
}

/// The key that authenticates this server's cookies.
fn secret() -> [u8; 16] {
    // The standard library keys `RandomState` with the operating system's randomness.
    let [a, b] = [0u64, 1].map(|number| RandomState::new().hash_one(number).to_ne_bytes());
    std::array::from_fn(|at| if at < 8 { a[at] } else { b[at - 8] })
}
