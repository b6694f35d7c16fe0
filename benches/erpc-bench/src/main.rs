//! Measures erpc and its baselines. Each command prints its results on standard output as lines of
//! JSON, most commands one line, and text for people on standard error.

mod bars;
mod client;
mod congestion;
mod control;
mod doctor;
mod failure;
mod figures;
mod idle;
mod inprocess;
mod instructions;
mod load;
mod machine;
#[cfg(feature = "dpdk")]
mod memif;
mod methods;
mod network;
mod payload;
mod peers;
mod queue;
mod raw;
mod report;
mod server;
mod service;
mod sessions;
mod shared;
mod stream;
mod tasks;
mod typed;
mod typed_cost;
mod values;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches, Parser};
use erpc_test_tools::counting::Counting;

#[global_allocator]
static ALLOCATOR: Counting = Counting;

#[derive(Parser)]
#[command(version, about)]
enum Command {
    /// Serves all workloads of `client`
    Server(server::ServerArgs),
    /// Calls a server over UDP
    Client(client::ClientArgs),
    /// Client and server on one thread, over the memory transport
    Cpu(inprocess::CpuArgs),
    /// Client and server on a thread each, over the memory transport
    Duplex(inprocess::DuplexArgs),
    /// What the optimizations for the common case are worth, switched off one after the other
    Factors(congestion::FactorsArgs),
    /// Streams compared with calls, over UDP, client and server on a thread each
    Stream(stream::StreamArgs),
    /// Cost of a switch between two tasks of one endpoint
    Tasks(tasks::TasksArgs),
    /// Memory and CPU time of idle sessions
    Sessions(sessions::SessionsArgs),
    /// Runs a hot path a fixed number of times, for tools that count instructions
    Instructions(instructions::InstructionsArgs),
    /// Bandwidth under packet loss
    Loss(congestion::LossArgs),
    /// Latency of calls that lose packets
    Recovery(congestion::RecoveryArgs),
    /// Many clients send to one server, in simulation
    Incast(congestion::IncastArgs),
    /// One client or many share a path of any length and rate, in simulation
    Paths(congestion::PathsArgs),
    /// 100 nodes call each other, in simulation
    Scale(congestion::ScaleArgs),
    /// Draws pictures of results, as SVG
    Figures(figures::FiguresArgs),
    /// Recovery after an event loop stalled
    Stall(congestion::StallArgs),
    /// Latency of the first call after an idle period
    Idle(congestion::IdleArgs),
    /// Slow handlers, with and without congestion control
    Handler(congestion::HandlerArgs),
    /// Many clients send to one server through a slow port, over UDP between network namespaces
    Queue(queue::QueueArgs),
    /// Workloads w1 to w3 over bare sockets, as the baseline of `client`
    Raw(raw::RawArgs),
    /// erpc and its baselines, in alternation, with the ratios of their results
    Bars(bars::BarsArgs),
    /// Looks at the machine, and says which transports would work and what to do about the others
    Doctor(doctor::DoctorArgs),
    /// Bare frames over memif, as the baseline of `client --transport dpdk`
    #[cfg(feature = "dpdk")]
    Memif(memif::MemifArgs),
    #[command(hide = true)]
    RawServer(raw::ServerArgs),
}

/// The command line. A negative number is parsed as the value of the argument before it. The parser
/// of that argument then refuses the number and names the valid range. By default, clap would
/// report an unknown argument.
fn grammar() -> clap::Command {
    Command::command().mut_subcommands(|subcommand| {
        subcommand.mut_args(|arg| {
            let takes_value = arg.get_action().takes_values();
            arg.allow_negative_numbers(takes_value)
        })
    })
}

fn main() -> ExitCode {
    let matches = grammar().get_matches();
    let command = Command::from_arg_matches(&matches).unwrap_or_else(|error| error.exit());
    let result = match command {
        Command::Server(args) => server::run(&args),
        Command::Client(args) => client::run(&args),
        Command::Cpu(args) => inprocess::cpu(&args),
        Command::Duplex(args) => inprocess::duplex(&args),
        Command::Factors(args) => congestion::factors(&args),
        Command::Stream(args) => stream::run(&args),
        Command::Tasks(args) => tasks::run(&args),
        Command::Sessions(args) => sessions::run(&args),
        Command::Instructions(args) => instructions::run(&args),
        Command::Loss(args) => congestion::loss(&args),
        Command::Recovery(args) => congestion::recovery(&args),
        Command::Incast(args) => congestion::incast(&args),
        Command::Paths(args) => congestion::paths(&args),
        Command::Scale(args) => congestion::scale(&args),
        Command::Figures(args) => figures::run(&args),
        Command::Stall(args) => congestion::stall(&args),
        Command::Idle(args) => congestion::idle(&args),
        Command::Handler(args) => congestion::handler(&args),
        Command::Queue(args) => queue::run(&args),
        Command::Raw(args) => raw::run(&args),
        Command::Bars(args) => bars::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        #[cfg(feature = "dpdk")]
        Command::Memif(args) => memif::run(&args),
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_grammar_is_consistent() {
        grammar().debug_assert();
    }

    #[test]
    fn an_error_names_the_argument_and_its_valid_values() {
        let refusal = |line: &str| {
            let refused = grammar().try_get_matches_from(line.split(' '));
            refused.expect_err(line).to_string()
        };
        for (line, advice) in [
            ("bench idle --secs -1", "'--secs <SECS>': a number of seconds, 0 to 86400"),
            ("bench loss --rate -1", "'--rate <RATE>': a fraction, 0 to less than 1"),
            ("bench incast --ways -3", "'--ways <WAYS>': -3 is not in 1..=1000"),
            ("bench handler --us 1000001", "'--us <US>': 1000001 is not in 0..=1000000"),
            (
                "bench loss --rate 1e-3 --size 8388609",
                "'--size <SIZE>': a number of bytes, 0 to 8388608",
            ),
        ] {
            let refusal = refusal(line);
            assert!(refusal.contains(advice), "{refusal}");
        }
    }
}
