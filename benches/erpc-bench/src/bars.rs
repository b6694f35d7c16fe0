//! `bars`: runs erpc and its baselines alternately, and compares them.
//!
//! Each comparison is a row of [`ROWS`]. The runs are those of `client`, `server` and `raw`, in
//! processes of their own. A round runs all contestants of a row once, one after the other, so that
//! the contestants of a round meet similar conditions. The ratio of two contestants is the median
//! of their ratios in all rounds.

use std::env;
use std::io::{BufRead, BufReader};
use std::net::UdpSocket;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use clap::Args;
use clap::builder::PossibleValuesParser;

use crate::failure::Failure;
use crate::figures::{Row, rows};
use crate::machine;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct BarsArgs {
    /// Groups of comparisons [default: all]
    #[arg(value_name = "GROUP", value_parser = PossibleValuesParser::new(GROUPS.iter().copied()))]
    groups: Vec<String>,
    /// Rounds of each comparison
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    rounds: u32,
    /// Duration of each run, in seconds
    #[arg(long, default_value_t = 1.0, value_parser = machine::seconds)]
    secs: f64,
    /// Only rows whose name contains this text
    #[arg(long, default_value = "")]
    only: String,
    /// Another program of the same kind to run as the client and server of erpc, such as an older
    /// version
    #[arg(long)]
    program: Option<PathBuf>,
}

/// A contestant.
enum Run {
    /// The arguments of `server` and of `client`.
    Erpc(&'static str, &'static str),
    /// The arguments of `raw`.
    Raw(&'static str),
    /// As `Erpc`, over memif.
    #[cfg(feature = "dpdk")]
    Dpdk(&'static str, &'static str),
    /// The arguments of the client of `memif`.
    #[cfg(feature = "dpdk")]
    Memif(&'static str),
}

/// A quantity of a result.
#[derive(Clone, Copy)]
enum Metric {
    Rate,
    Bandwidth,
    Latency,
    Cpu,
    ServerCpu,
}

impl Metric {
    /// The field of a result.
    fn field(self) -> &'static str {
        match self {
            Self::Rate => "rps",
            Self::Bandwidth => "gbps",
            Self::Latency => "p50_us",
            Self::Cpu => "cpu_s_per_m",
            Self::ServerCpu => "cpu_server_s_per_m",
        }
    }

    /// Whether more is better.
    fn rises(self) -> bool {
        matches!(self, Self::Rate | Self::Bandwidth)
    }
}

/// A comparison.
struct Comparison {
    group: &'static str,
    name: &'static str,
    ours: Run,
    /// The best of these counts. If there is none, the bar is for the value itself.
    theirs: &'static [Run],
    /// What is compared, and the least or most ratio. Without a bar, the ratio is only reported.
    metrics: &'static [(Metric, Option<f64>)],
}

const GROUPS: &[&str] = &[
    "w1",
    "w2",
    "no-offload",
    "large",
    "responses",
    "peers",
    "mixed",
    "ethernet",
    #[cfg(feature = "dpdk")]
    "memif",
];

use Metric::{Bandwidth, Cpu, Latency, Rate, ServerCpu};
#[cfg(feature = "dpdk")]
use Run::{Dpdk, Memif};
use Run::{Erpc, Raw};

/// A row of one contestant against others.
const fn row(
    group: &'static str,
    name: &'static str,
    ours: Run,
    theirs: &'static [Run],
    metrics: &'static [(Metric, Option<f64>)],
) -> Comparison {
    Comparison { group, name, ours, theirs, metrics }
}

/// A row whose messages have 64 lengths.
macro_rules! spread {
    ($lengths:literal) => {
        row(
            "mixed",
            concat!("lengths-", $lengths),
            Erpc("", concat!("w2 --lengths ", $lengths)),
            &[Raw(concat!("w2 --lengths ", $lengths))],
            &[(Rate, Some(5.0))],
        )
    };
}

/// A row that compares large responses with large requests.
macro_rules! responses {
    ($name:literal, $size:literal, $outstanding:literal) => {
        row(
            "responses",
            $name,
            Erpc("", concat!("w2 --req 32 --resp ", $size, " --outstanding ", $outstanding)),
            &[Erpc("", concat!("w2 --resp 32 --req ", $size, " --outstanding ", $outstanding))],
            &[(Bandwidth, Some(0.9))],
        )
    };
}

/// A row of `w2` beside `raw --gso` with 32, 64 and 128 segments per system call. erpc sends up to
/// 128 packets per system call, and fewer if it divides the calls in flight among several.
macro_rules! w2 {
    ($name:literal, $outstanding:literal, $metrics:expr) => {
        row(
            "w2",
            $name,
            Erpc("", concat!("w2 --outstanding ", $outstanding)),
            &[
                Raw(concat!("w2 --gso --segments 32 --outstanding ", $outstanding)),
                Raw(concat!("w2 --gso --segments 64 --outstanding ", $outstanding)),
                Raw(concat!("w2 --gso --segments 128 --outstanding ", $outstanding)),
            ],
            $metrics,
        )
    };
}

const SMALL: &str = "w2 --outstanding 64 --max-datagram 1472";

const ROWS: &[Comparison] = &[
    row("w1", "w1", Erpc("", "w1"), &[Raw("w1")], &[(Latency, Some(1.05))]),
    row(
        "w1",
        "w1-asleep",
        Erpc("--idle park", "w1 --idle park"),
        &[Raw("w1 --block")],
        &[(Latency, Some(1.15))],
    ),
    w2!("w2-8", "8", &[(Rate, Some(0.95))]),
    w2!("w2-64", "64", &[(Rate, Some(0.9)), (Cpu, Some(1.12))]),
    w2!("w2-256", "256", &[(Rate, Some(0.7)), (Cpu, None)]),
    w2!("w2-1024", "1024", &[(Rate, Some(0.7)), (Cpu, None)]),
    row(
        "w2",
        "w2-256-to-64",
        Erpc("", "w2 --outstanding 256"),
        &[Erpc("", "w2 --outstanding 64")],
        &[(Rate, Some(0.95))],
    ),
    row(
        "w2",
        "w2-1024-to-256",
        Erpc("", "w2 --outstanding 1024"),
        &[Erpc("", "w2 --outstanding 256")],
        &[(Rate, Some(0.95))],
    ),
    row(
        "no-offload",
        "no-offload",
        Erpc("--no-offload", "w2 --no-offload"),
        &[Raw("w2 --mmsg")],
        &[(Rate, Some(0.95))],
    ),
    row("large", "w3", Erpc("", "w3"), &[Raw("w3"), Raw("w3 --gso")], &[(Bandwidth, Some(0.9))]),
    row(
        "large",
        "60-kB",
        Erpc("", "w2 --outstanding 8 --req 60000 --resp 32"),
        &[
            Raw("w2 --outstanding 8 --req 60000 --resp 32"),
            Raw("w2 --outstanding 8 --req 60000 --resp 32 --gso"),
        ],
        &[(Bandwidth, None)],
    ),
    responses!("responses-4-KiB", "4096", "1"),
    responses!("responses-16-KiB", "16384", "1"),
    responses!("responses-64-KiB", "65536", "1"),
    responses!("responses-256-KiB", "262144", "1"),
    responses!("responses-1-MiB", "1048576", "1"),
    responses!("responses-8-MiB", "8388608", "1"),
    responses!("responses-4-KiB-16", "4096", "16"),
    responses!("responses-16-KiB-16", "16384", "16"),
    responses!("responses-64-KiB-16", "65536", "16"),
    responses!("responses-256-KiB-16", "262144", "16"),
    responses!("responses-1-MiB-16", "1048576", "16"),
    responses!("responses-8-MiB-16", "8388608", "16"),
    row(
        "peers",
        "peers-64",
        Erpc("--idle yield --core 0", "w2 --peers 64 --idle yield --core 0"),
        &[Raw("w2 --peers 64 --core 0 --server-core 0")],
        &[(ServerCpu, Some(1.1)), (Cpu, None)],
    ),
    row("mixed", "mixed", Erpc("", "w2 --mixed"), &[Raw("w2 --mixed")], &[(Rate, Some(5.0))]),
    spread!("32-4096"),
    spread!("32-1024"),
    spread!("32-288"),
    row("ethernet", "ethernet-w2", Erpc("", SMALL), &[], &[(Rate, None)]),
    row(
        "ethernet",
        "ethernet-w3",
        Erpc("", "w3 --max-datagram 1472"),
        &[],
        &[(Bandwidth, Some(15.0))],
    ),
    row(
        "ethernet",
        "ethernet-4-KiB",
        Erpc("", "w2 --outstanding 64 --max-datagram 1472 --req 4096 --resp 4096"),
        &[],
        &[(Rate, None)],
    ),
    #[cfg(feature = "dpdk")]
    row("memif", "memif-w1", Dpdk("", "w1"), &[Memif("")], &[(Latency, Some(2.5))]),
    #[cfg(feature = "dpdk")]
    row("memif", "memif-w2", Dpdk("", "w2"), &[], &[(Rate, Some(6e6))]),
    #[cfg(feature = "dpdk")]
    row("memif", "memif-w2-to-bare", Dpdk("", "w2"), &[Memif("--outstanding 64")], &[(Rate, None)]),
    #[cfg(feature = "dpdk")]
    row(
        "memif",
        "memif-symmetric",
        Dpdk("--call 10.9.0.2:31851", "w2 --serve-at 31851"),
        &[],
        &[(Rate, Some(5.5e6))],
    ),
    #[cfg(feature = "dpdk")]
    row("memif", "memif-1-MB", Dpdk("", "w3 --req 1000000"), &[], &[(Bandwidth, Some(30.0))]),
];

/// How the two sides of a comparison over memif start.
#[cfg(feature = "dpdk")]
mod over_memif {
    use std::path::PathBuf;
    use std::process::{self, Command};
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::{Row, Runner, Server, started, words};
    use crate::failure::Failure;

    /// The socket at which both sides meet. It is removed when this value is dropped.
    struct Socket(PathBuf);

    impl Drop for Socket {
        fn drop(&mut self) {
            let _ = std::fs::remove_file(&self.0);
        }
    }

    impl Socket {
        fn new() -> Self {
            static NEXT: AtomicU32 = AtomicU32::new(0);
            let number = NEXT.fetch_add(1, Ordering::Relaxed);
            Self(std::env::temp_dir().join(format!("erpc-bars-{}-{number}", process::id())))
        }

        /// Arguments of EAL for this role. No hugepages are needed.
        fn eal(&self, role: &str, core: u8) -> String {
            let socket = self.0.display();
            let prefix = format!("erpc-{role}-{}", process::id());
            format!(
                "--no-huge -m 512 --no-pci --no-telemetry -l {core} --file-prefix={prefix} \
                 --vdev=net_memif0,role={role},id=0,bsize=9100,socket={socket},socket-abstract=no"
            )
        }
    }

    impl Runner<'_> {
        pub(super) fn dpdk(&self, server: &str, client: &str) -> Result<Row, Failure> {
            let socket = Socket::new();
            let mut command = Command::new(&self.erpc);
            command.args(["server", "--addr", "10.9.0.1:31850", "--core", "1"]);
            command.args(["--transport", "dpdk", "--port", "net_memif0 10.9.0.1/24 mtu=9000"]);
            command.args(["--eal", &socket.eal("server", 1)]).args(words(server));
            let _server = Server(started(&mut command)?);
            let mut command = Command::new(&self.erpc);
            command.args(["client", "--addr", "10.9.0.1:31850", "--core", "0"]);
            command.args(["--transport", "dpdk", "--port", "net_memif0 10.9.0.2/24 mtu=9000"]);
            command.args(["--eal", &socket.eal("client", 0), "--workload"]);
            self.result(command.args(words(client)))
        }

        pub(super) fn memif(&self, client: &str) -> Result<Row, Failure> {
            let socket = Socket::new();
            let mut command = Command::new(&self.raw);
            command.args(["memif", "--role", "server", "--core", "1", "--eal"]);
            let _server = Server(started(command.arg(socket.eal("server", 1)))?);
            let mut command = Command::new(&self.raw);
            command.args(["memif", "--role", "client", "--core", "0", "--eal"]);
            self.result(command.arg(socket.eal("client", 0)).args(words(client)))
        }
    }
}

/// A server process. It is killed when this value is dropped.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// How runs start.
struct Runner<'a> {
    erpc: PathBuf,
    raw: PathBuf,
    args: &'a BarsArgs,
}

impl Runner<'_> {
    fn run(&self, run: &Run) -> Result<Row, Failure> {
        match run {
            Run::Erpc(server, client) => {
                let unused = || UdpSocket::bind("127.0.0.1:0")?.local_addr();
                let address = unused().map_err(Failure::of("no unused port"))?.to_string();
                let core = [&[][..], &["--core", "1"]][usize::from(!server.contains("--core"))];
                let mut command = Command::new(&self.erpc);
                command.args(["server", "--addr", &address]).args(words(server)).args(core);
                let _server = Server(started(&mut command)?);
                let core = [&[][..], &["--core", "0"]][usize::from(!client.contains("--core"))];
                let mut command = Command::new(&self.erpc);
                command.args(["client", "--addr", &address, "--workload"]);
                self.result(command.args(words(client)).args(core))
            }
            Run::Raw(args) => {
                let mut command = Command::new(&self.raw);
                self.result(command.args(["raw", "--workload"]).args(words(args)))
            }
            #[cfg(feature = "dpdk")]
            Run::Dpdk(server, client) => self.dpdk(server, client),
            #[cfg(feature = "dpdk")]
            Run::Memif(client) => self.memif(client),
        }
    }

    /// Runs to the end. Returns the line of JSON that was printed.
    fn result(&self, command: &mut Command) -> Result<Row, Failure> {
        command.args(["--warmup", "0.3", "--secs", &self.args.secs.to_string()]);
        let output = command.output().map_err(Failure::of("a run does not start"))?;
        let printed = String::from_utf8_lossy(&output.stdout);
        let printed = printed.lines().find(|line| line.starts_with('{')).unwrap_or_default();
        match rows(printed).ok().and_then(|rows| rows.into_iter().next()) {
            Some(row) if output.status.success() => Ok(row),
            _ => Err(Failure::new(format!(
                "{command:?} failed: {}",
                String::from_utf8_lossy(&output.stderr)
            ))),
        }
    }
}

fn words(arguments: &str) -> impl Iterator<Item = &str> {
    arguments.split_whitespace()
}

/// Starts a server, and waits until it serves.
fn started(command: &mut Command) -> Result<Child, Failure> {
    let command = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut child = command.spawn().map_err(Failure::of("the server does not start"))?;
    let lines = child.stdout.take().map(|out| BufReader::new(out).lines());
    // DPDK prints its own lines before.
    match lines.into_iter().flatten().any(|line| line.is_ok_and(|line| line == "READY")) {
        true => Ok(child),
        false => Err(Failure::new("the server is not ready")),
    }
}

fn median(mut values: Vec<f64>) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let (low, high) = (values.len().checked_sub(1)? / 2, values.len() / 2);
    Some((values[low] + values[high]) / 2.0)
}

/// Runs the comparisons, and prints a line for each of their metrics.
pub(crate) fn run(args: &BarsArgs) -> Result<(), Failure> {
    let this = env::current_exe().map_err(Failure::of("the path of this program is unknown"))?;
    let erpc = args.program.clone().unwrap_or_else(|| this.clone());
    let runner = Runner { erpc, raw: this, args };
    let is_wanted = |row: &&Comparison| {
        let in_group = args.groups.is_empty() || args.groups.iter().any(|group| group == row.group);
        in_group && row.name.contains(&args.only)
    };
    for comparison in ROWS.iter().filter(is_wanted) {
        compare(&runner, comparison)?;
    }
    Ok(())
}

fn compare(runner: &Runner<'_>, comparison: &Comparison) -> Result<(), Failure> {
    let (mut ours, mut theirs) = (vec![], vec![vec![]; comparison.theirs.len()]);
    for _ in 0..runner.args.rounds {
        ours.push(runner.run(&comparison.ours)?);
        for (results, run) in theirs.iter_mut().zip(comparison.theirs) {
            results.push(runner.run(run)?);
        }
    }
    let field = |results: &[Row], name: &str| -> Vec<f64> {
        results.iter().filter_map(|row| row.number(name)).collect()
    };
    for &(metric, bar) in comparison.metrics {
        let best = theirs.iter().filter_map(|results| {
            // The results of a round, side by side.
            let ratio = |(our, their): (&Row, &Row)| {
                Some(our.number(metric.field())? / their.number(metric.field())?)
            };
            let ratios = ours.iter().zip(results).filter_map(ratio).collect();
            Some((median(ratios)?, median(field(results, metric.field()))?))
        });
        let worst = |a: &(f64, f64), b: &(f64, f64)| match metric.rises() {
            true => a.0.total_cmp(&b.0),
            false => b.0.total_cmp(&a.0),
        };
        let (ratio, their) = best.min_by(worst).unzip();
        let our = median(field(&ours, metric.field()));
        let judged = if comparison.theirs.is_empty() { our } else { ratio };
        let is_met = judged.zip(bar).map(|(value, bar)| (value >= bar) == metric.rises());
        eprintln!(
            "{:<22} {:<19} {:>12.3} beside {:>12.3}: {:>6.3}{}",
            comparison.name,
            metric.field(),
            our.unwrap_or(f64::NAN),
            their.unwrap_or(f64::NAN),
            ratio.unwrap_or(f64::NAN),
            match (is_met, bar) {
                (Some(true), Some(bar)) => format!(", meets {bar}"),
                (Some(false), Some(bar)) => format!(", misses {bar}"),
                _ => String::new(),
            }
        );
        Line::new()
            .text("name", comparison.name)
            .text("metric", metric.field())
            .number("erpc", our)
            .number("beside", their)
            .number("ratio", ratio)
            .number("bar", bar)
            .number("pp_ns", median(field(&ours, "pp_ns")))
            .number("retx", median(field(&ours, "retx")))
            .print();
    }
    Ok(())
}
