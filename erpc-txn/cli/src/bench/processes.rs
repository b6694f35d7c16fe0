//! One process per node. The benchmark starts itself once for each, and the processes talk with it
//! over pipes, in lines:
//!
//! ```text
//! process     listens ADDRESS ──────────> benchmark
//! benchmark   addresses NODE=ADDRESS .. ──> all
//! process     met ─> benchmark ─ all have said so ─> run
//! process     over ─> benchmark ─ all have said so ─> end
//! process     what its lanes did ───────> benchmark
//! ```

use std::env;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::thread;
use std::time::Duration;

use erpc_txn::cluster::NodeId;
use erpc_txn::workloads::Workload;
use rustix::process::{Signal, set_parent_process_death_signal};

use super::lane::Ran;
use super::plan::{Plan, Schedule, Stage, Stages};
use super::udp::{self, Others, Point};
use super::{SettingsArgs, pipe};
use crate::failure::Failure;
use crate::member::Addresses;
use crate::output;

/// How often the progress is shown.
const TICK: Duration = Duration::from_millis(100);

impl Point {
    /// What a process says when it has come so far, and what it waits for.
    fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Met => ("met", "run"),
            Self::Over => ("over", "end"),
        }
    }
}

/// Starts the processes, and returns what all lanes did.
pub(super) fn run(args: &SettingsArgs, kinds: usize) -> Result<Vec<Ran>, Failure> {
    let members: Result<Vec<_>, _> = (0..args.nodes).map(Member::start).collect();
    let mut members = members?;
    let mut addresses = String::from("addresses");
    for member in &mut members {
        let address = member.hear("listens")?;
        addresses.push_str(&format!(" {}={address}", member.node));
    }
    tell(&mut members, &addresses)?;
    pass(&mut members, Point::Met)?;
    let (stages, mut schedule) = (Stages::default(), Schedule::of(args));
    while stages.now() != Stage::Over {
        thread::sleep(TICK);
        schedule.tick(&stages);
        members.iter_mut().try_for_each(Member::check)?;
    }
    pass(&mut members, Point::Over)?;
    let mut lanes = Vec::new();
    for mut member in members {
        lanes.extend(pipe::read(|| member.line(), kinds)?);
        member.join()?;
    }
    Ok(lanes)
}

/// Waits until all processes have come to a point, and tells them so.
fn pass(members: &mut [Member], point: Point) -> Result<(), Failure> {
    let (said, answer) = point.words();
    members.iter_mut().try_for_each(|member| member.hear(said).map(drop))?;
    tell(members, answer)
}

fn tell(members: &mut [Member], line: &str) -> Result<(), Failure> {
    for Member { node, to, .. } in members {
        let done = writeln!(to, "{line}").and_then(|()| to.flush());
        done.map_err(Failure::of(&format!("the process of node {node} does not listen")))?;
    }
    Ok(())
}

/// A node's process, as the benchmark sees it. It is killed when this is dropped.
struct Member {
    node: u16,
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Member {
    /// Starts the benchmark again, with its own arguments, for one node.
    fn start(node: u16) -> Result<Self, Failure> {
        let program = env::current_exe().map_err(Failure::of("no path of this program"))?;
        let mut command = Command::new(program);
        command.args(env::args_os().skip(1)).arg(format!("--member={node}"));
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut child = command.spawn().map_err(Failure::of("cannot start a process"))?;
        let no_pipe = || Failure::new("a process has no pipes");
        let to = child.stdin.take().ok_or_else(no_pipe)?;
        let from = BufReader::new(child.stdout.take().ok_or_else(no_pipe)?);
        Ok(Self { node, child, to, from })
    }

    /// The next line.
    fn line(&mut self) -> Result<String, Failure> {
        let line = next_line(&mut self.from)?;
        line.ok_or_else(|| Failure::new(format!("the process of node {} has ended", self.node)))
    }

    /// What follows a word in the next line.
    fn hear(&mut self, word: &str) -> Result<String, Failure> {
        let line = self.line()?;
        expect(&line, word).map(str::to_owned)
    }

    /// Fails if the process has ended.
    fn check(&mut self) -> Result<(), Failure> {
        let ended = self.child.try_wait().map_err(Failure::of("cannot wait for a process"))?;
        ended.map_or(Ok(()), |status| Err(self.failed(status)))
    }

    /// Waits for the end of the process.
    fn join(mut self) -> Result<(), Failure> {
        let status = self.child.wait().map_err(Failure::of("cannot wait for a process"))?;
        if status.success() { Ok(()) } else { Err(self.failed(status)) }
    }

    fn failed(&self, status: ExitStatus) -> Failure {
        Failure::new(format!("the process of node {} has ended: {status}", self.node))
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        // Both fail if it has ended, and then nothing is left to do.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

/// The process of one node: runs its lanes, and tells what they did.
pub(super) fn member<W: Workload>(plan: &Plan<W>) -> Result<(), Failure> {
    set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(Failure::of("the process would outlive the benchmark"))?;
    let (lanes, _) = udp::run(plan, &mut Pipe)?;
    output::line(pipe::text(&lanes))
}

/// The other nodes, by way of the benchmark.
struct Pipe;

impl Pipe {
    /// What follows a word in the next line.
    fn hear(word: &str) -> Result<String, Failure> {
        let line = next_line(&mut io::stdin().lock())?;
        let line = line.ok_or_else(|| Failure::new("the benchmark has ended"))?;
        expect(&line, word).map(str::to_owned)
    }
}

impl Others for Pipe {
    fn exchange(&mut self, own: Addresses) -> Result<Addresses, Failure> {
        for address in own.values() {
            output::line(format_args!("listens {address}"))?;
        }
        let addresses = Self::hear("addresses")?;
        let address = |text: &str| {
            let (node, address) = text.split_once('=')?;
            Some((NodeId(node.parse().ok()?), address.parse().ok()?))
        };
        let all: Option<Addresses> = addresses.split(' ').map(address).collect();
        all.ok_or_else(|| Failure::new(format!("no addresses: {addresses}")))
    }

    fn wait(&mut self, until: Point) -> Result<(), Failure> {
        let (say, hear) = until.words();
        output::line(say)?;
        Self::hear(hear).map(drop)
    }
}

/// A line without its end. None after the last one.
fn next_line(from: &mut impl BufRead) -> Result<Option<String>, Failure> {
    let mut line = String::new();
    let read = from.read_line(&mut line).map_err(Failure::of("a pipe is broken"))?;
    Ok((read > 0).then(|| line.trim_end().to_owned()))
}

/// What follows a word in a line.
fn expect<'l>(line: &'l str, word: &str) -> Result<&'l str, Failure> {
    let rest = line.strip_prefix(word).map(str::trim_start);
    rest.ok_or_else(|| Failure::new(format!("expected '{word}', but read '{line}'")))
}
