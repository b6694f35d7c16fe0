//! Measures erpc, and what it is measured against. One JSON line per run on standard output, words for
//! people on standard error.

mod client;
mod congestion;
mod control;
mod counting;
mod failure;
mod inprocess;
mod load;
mod machine;
mod methods;
mod payload;
mod queue;
mod raw;
mod report;
mod server;
mod service;
mod stream;
mod tasks;
mod typed;
mod typed_cost;

use std::process::ExitCode;

use clap::Parser;

#[global_allocator]
static ALLOCATOR: counting::Counting = counting::Counting;

#[derive(Parser)]
#[command(version, about)]
enum Command {
    /// Serves all workloads of `client`
    Server(server::ServerArgs),
    /// Calls a server over UDP
    Client(client::ClientArgs),
    /// Both sides on one thread, over the memory transport
    Cpu(inprocess::CpuArgs),
    /// Two threads, one side each, over the memory transport
    Duplex(inprocess::DuplexArgs),
    /// Streams next to calls, over UDP, two threads
    Stream(stream::StreamArgs),
    /// Tasks of one endpoint that take turns
    Tasks(tasks::TasksArgs),
    /// What is left of bandwidth when packets are lost
    Loss(congestion::LossArgs),
    /// Many clients send to one server, in simulation
    Incast(congestion::IncastArgs),
    /// 100 nodes call each other, in simulation
    Scale(congestion::ScaleArgs),
    /// Queues, rates and latencies as SVG
    Figures(congestion::FiguresArgs),
    /// Recovery after a loop stood still
    Stall(congestion::StallArgs),
    /// The first call after a silence
    Idle(congestion::IdleArgs),
    /// Handlers that take time, with and without congestion control
    Handler(congestion::HandlerArgs),
    /// Many clients send to one server through a slow port, over UDP between network namespaces
    Queue(queue::QueueArgs),
    /// The same work with bare sockets, client and server
    Raw(raw::RawArgs),
    #[command(hide = true)]
    RawServer(raw::ServerArgs),
}

fn main() -> ExitCode {
    let result = match Command::parse() {
        Command::Server(args) => server::run(&args),
        Command::Client(args) => client::run(&args),
        Command::Cpu(args) => inprocess::cpu(&args),
        Command::Duplex(args) => inprocess::duplex(&args),
        Command::Stream(args) => stream::run(&args),
        Command::Tasks(args) => tasks::run(&args),
        Command::Loss(args) => congestion::loss(&args),
        Command::Incast(args) => congestion::incast(&args),
        Command::Scale(args) => congestion::scale(&args),
        Command::Figures(args) => congestion::figures(&args),
        Command::Stall(args) => congestion::stall(&args),
        Command::Idle(args) => congestion::idle(&args),
        Command::Handler(args) => congestion::handler(&args),
        Command::Queue(args) => queue::run(&args),
        Command::Raw(args) => raw::run(&args),
        Command::RawServer(args) => raw::serve(&args),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            eprintln!("erpc-bench: {failure}");
            ExitCode::FAILURE
        }
    }
}
