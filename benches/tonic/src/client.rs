//! The client process: tasks that call `Get`, one call at a time in each task.

use std::fs;
use std::net::SocketAddr;
use std::num::NonZeroUsize;
use std::time::{Duration, Instant};

use clap::Args;
use tokio::runtime::Runtime;
use tonic::transport::{Channel, Endpoint};

use crate::proto::GetRequest;
use crate::proto::bench_client::BenchClient;
use crate::{Failure, latencies, values};

#[derive(Args)]
pub(crate) struct ClientArgs {
    /// The server's address
    #[arg(long)]
    addr: SocketAddr,
    /// Calls in flight, each in a task
    #[arg(long, default_value = "64")]
    outstanding: NonZeroUsize,
    /// Connections, each a channel; the tasks have clones
    #[arg(long, default_value = "1")]
    conns: NonZeroUsize,
    /// Duration of the measurement, in seconds
    #[arg(long, default_value_t = 5.0)]
    secs: f64,
    /// Warm-up before the measurement, in seconds
    #[arg(long, default_value_t = 1.0)]
    warmup: f64,
    /// Threads of the runtime [default: one per core]
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Process id of the server on this machine, to read its CPU time
    #[arg(long)]
    server_pid: Option<u32>,
}

/// Measures, and prints the line.
pub(crate) fn run(args: &ClientArgs) -> Result<(), Failure> {
    let (warmup, secs) =
        (Duration::try_from_secs_f64(args.warmup)?, Duration::try_from_secs_f64(args.secs)?);
    let runtime = crate::runtime(args.threads)?;
    let channels = runtime.block_on(connect(args))?;
    call_for(&runtime, &channels, args, warmup)?;

    latencies::take();
    let server = || args.server_pid.map(|pid| cpu_time(&pid.to_string())).transpose();
    let (client_before, server_before, start) = (cpu_time("self")?, server()?, Instant::now());
    call_for(&runtime, &channels, args, secs)?;
    let elapsed = start.elapsed();
    let client = cpu_time("self")? - client_before;
    let server = server()?.zip(server_before).map(|(after, before)| after - before);

    let latencies = latencies::take();
    let (rps, micros) = (latencies.len() as f64 / elapsed.as_secs_f64(), |quantile| {
        latencies.value_at_quantile(quantile) as f64 / 1e3
    });
    let per_million = |cpu: Duration| cpu.as_secs_f64() / latencies.len() as f64 * 1e6;
    let shown = |cpu: Option<Duration>| {
        cpu.map_or("null".to_owned(), |cpu| format!("{:.5}", per_million(cpu)))
    };
    println!(
        "{{\"workload\":\"w4\",\"stack\":\"tonic\",\"outstanding\":{},\"conns\":{},\"ops\":{},\
         \"rps\":{rps:.3},\"p50_us\":{},\"p99_us\":{},\"p999_us\":{},\"cpu_client_s_per_m\":{},\
         \"cpu_server_s_per_m\":{},\"cpu_s_per_m\":{}}}",
        args.outstanding,
        args.conns,
        latencies.len(),
        micros(0.5),
        micros(0.99),
        micros(0.999),
        shown(Some(client)),
        shown(server),
        shown(server.map(|server| server + client)),
    );
    Ok(())
}

async fn connect(args: &ClientArgs) -> Result<Vec<Channel>, Failure> {
    let server = Endpoint::from_shared(format!("http://{}", args.addr))?.tcp_nodelay(true);
    let mut channels = Vec::new();
    for _ in 0..args.conns.get() {
        channels.push(server.connect().await?);
    }
    Ok(channels)
}

/// Runs the tasks for `duration`.
fn call_for(
    runtime: &Runtime,
    channels: &[Channel],
    args: &ClientArgs,
    duration: Duration,
) -> Result<(), Failure> {
    let end = Instant::now() + duration;
    let clients = channels.iter().cycle().cloned().map(BenchClient::new);
    let tasks: Vec<_> = (0..args.outstanding.get() as u64)
        .zip(clients)
        .map(|(task, client)| runtime.spawn(call(client, task << 40, end)))
        .collect();
    tasks.into_iter().try_for_each(|task| runtime.block_on(task)?)
}

/// Makes one call after the other until `end`, and checks the answers.
async fn call(mut client: BenchClient<Channel>, first: u64, end: Instant) -> Result<(), Failure> {
    let mut sent = Instant::now();
    for key in first.. {
        let answer = client.get(GetRequest { key }).await?.into_inner();
        if !values::is_answer(&answer.value, answer.found, key) {
            return Err(format!("the answer for key {key} is wrong").into());
        }
        let now = Instant::now();
        latencies::record(now - sent);
        sent = now;
        if now >= end {
            break;
        }
    }
    Ok(())
}

/// User and system time of a process of this machine, in steps of a clock tick (10 ms).
fn cpu_time(process: &str) -> Result<Duration, Failure> {
    let stat = fs::read_to_string(format!("/proc/{process}/stat"))
        .map_err(|error| format!("process {process}: {error}"))?;
    // The second field is a name in parentheses, which may contain anything. The fields 14 and 15
    // are the user and system time.
    let (_, rest) = stat.rsplit_once(')').ok_or("no name in /proc/<pid>/stat")?;
    let times: Result<Vec<u64>, _> =
        rest.split_ascii_whitespace().skip(11).take(2).map(str::parse).collect();
    let ticks: u64 = times?.iter().sum();
    Ok(Duration::from_secs_f64(ticks as f64 / rustix::param::clock_ticks_per_second() as f64))
}
