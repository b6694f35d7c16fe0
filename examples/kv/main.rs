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
mod report;
mod store;

use std::io::Write;
use std::num::NonZeroU16;
use std::process::ExitCode;

use erpc::{CallError, Code, Endpoint, Server, ServerBuilder};

use args::{Args, Command, GetArgs, LoadArgs, ServerArgs};
use data::Data;
use failure::Failure;
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
        Some(Command::Client(args)) => {
            client::run(&args.connect, &args.load, Data::read(args.load.data.as_deref())?)
        }
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
    client::run(&server.local_addr().to_string(), args, data)
}

fn serve(args: &ServerArgs) -> Result<(), Failure> {
    let server = server(args.threads).spawn(&args.listen).map_err(Failure::Serve)?;
    let threads = report::counted(args.threads.get().into(), "thread");
    eprintln!("kv: serving on {} with {threads}", server.local_addr());
    server.wait().map_err(Failure::Serve)
}

fn get(args: &GetArgs) -> Result<(), Failure> {
    let endpoint = Endpoint::udp().map_err(Failure::Open)?;
    let kv = LocalKvClient::connect(&endpoint, args.connect.as_str()).map_err(Failure::Connect)?;
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
