//! A key-value store, and a load that checks every answer.
//!
//! ```text
//! kv                                    server and client in this process, over UDP
//! kv server --listen 0.0.0.0:31850      the server alone
//! kv client --connect 10.0.0.7:31850    the load alone, from this machine or another
//! kv get KEY --connect 10.0.0.7:31850   one value, to standard output
//! ```
//!
//! The load first stores files under their paths, by default this project's sources. Then it reads,
//! writes, deletes and lists, with many calls in flight, and compares the answers with the files.

mod args;
mod client;
mod data;
mod failure;
mod lane;
mod network;
mod report;
mod store;

use std::io::Write;
use std::num::NonZeroU16;
use std::process::ExitCode;

use erpc::transport::udp::UdpRoute;
use erpc::{
    CallError, Code, Endpoint, Listen, ServeError, Server, ServerBuilder, ServerHandle, Transport,
};

use args::{Args, ClientArgs, Command, GetArgs, LoadArgs, ServerArgs};
use data::Data;
use failure::Failure;
use network::Network;
use proto::{GetRequest, LocalKvClient};
use store::Store;

mod proto {
    erpc::include_proto!("kv.v1");
}

fn main() -> ExitCode {
    match args::parse().and_then(run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("kv: {failure}");
            failure.exit_code()
        }
    }
}

fn run(args: Args) -> Result<(), Failure> {
    match args.command {
        None => both(&args.load),
        Some(Command::Server(args)) => serve(&args),
        Some(Command::Client(args)) => load(&args),
        Some(Command::Get(args)) => get(&args),
    }
}

/// One worker is enough: scans are long but rare.
fn server(threads: NonZeroU16) -> ServerBuilder {
    Server::builder().add_service(Store::default()).threads(threads.get().into()).workers(1)
}

fn both(args: &LoadArgs) -> Result<(), Failure> {
    let data = Data::read(args.data.as_deref())?;
    let server = server(args.threads).spawn("127.0.0.1:0").map_err(Failure::Serve)?;
    let sockets = network::udp(args.threads.get().into())?;
    client::run(sockets, &server.local_addr().to_string(), args, data)
}

fn serve(args: &ServerArgs) -> Result<(), Failure> {
    let server = server(args.threads);
    match args.network.network()? {
        Network::Udp => wait(server.spawn(&args.listen), args.threads),
        #[cfg(feature = "dpdk")]
        Network::Dpdk(port) => wait(server.dpdk(port).spawn(&args.listen), args.threads),
    }
}

fn wait<T: Listen>(
    server: Result<ServerHandle<T>, ServeError>,
    threads: NonZeroU16,
) -> Result<(), Failure> {
    let server = server.map_err(Failure::Serve)?;
    let threads = report::counted(threads.get().into(), "thread");
    eprintln!("kv: serving on {} with {threads}", server.local_route());
    server.wait().map_err(Failure::Serve)
}

fn load(args: &ClientArgs) -> Result<(), Failure> {
    let data = Data::read(args.load.data.as_deref())?;
    let threads = args.load.threads.get().into();
    match args.network.network()? {
        Network::Udp => client::run(network::udp(threads)?, &args.connect, &args.load, data),
        #[cfg(feature = "dpdk")]
        Network::Dpdk(port) => {
            client::run(network::dpdk(&port, threads)?, &args.connect, &args.load, data)
        }
    }
}

fn get(args: &GetArgs) -> Result<(), Failure> {
    match args.network.network()? {
        Network::Udp => get_over(&Endpoint::udp().map_err(Failure::Open)?, args),
        #[cfg(feature = "dpdk")]
        Network::Dpdk(port) => get_over(&Endpoint::dpdk(&port).map_err(Failure::Open)?, args),
    }
}

fn get_over<T: Transport<Route = UdpRoute>>(
    endpoint: &Endpoint<T>,
    args: &GetArgs,
) -> Result<(), Failure> {
    let kv = LocalKvClient::connect(endpoint, args.connect.as_str()).map_err(Failure::Connect)?;
    let found = endpoint.block_on(kv.get(GetRequest { key: args.key.clone() }));
    let value = found.map_err(|error| match &error {
        CallError::Status(status) if status.code() == Code::NotFound => {
            Failure::NoSuchKey(args.key.clone())
        }
        _ => Failure::Call { what: format!("get {}", args.key), error },
    })?;
    let mut out = std::io::stdout().lock();
    out.write_all(&value.value).and_then(|()| out.flush()).map_err(Failure::Output)
}
