//! The processes of a cluster.

use std::net::SocketAddr;
use std::time::{Duration, Instant};
use std::{env, thread};

use erpc_test_tools::process::Process;
use erpc_txn::cluster::NodeId;
use rustix::process::Pid;

use crate::fatal::{self, Shot};
use crate::holdings::{END, Holdings};
use crate::member::{BUG, MEMBER, NODES};

/// Longer than members need to meet, also on a busy machine.
const MEETING: Duration = Duration::from_secs(60);

/// Longer than it takes until each kind of request has come often, also on a busy machine.
const DYING: Duration = Duration::from_secs(60);

pub(crate) struct Cluster {
    members: Vec<Process>,
    pids: Vec<i32>,
    pub(crate) addresses: Vec<SocketAddr>,
    pub(crate) dead: Option<NodeId>,
}

impl Cluster {
    /// Members that have met. If `bug` is not empty, they have this deliberate bug.
    pub(crate) fn start(replicas: usize, bug: &str) -> Self {
        let program = env::current_exe().expect("the path of this binary is known");
        let program = program.to_str().expect("the path is UTF-8");
        let start = |node| {
            let member = format!("{MEMBER}={node} {replicas}");
            let bug = format!("{BUG}={bug}");
            let args = [&member, &bug, program, "--exact", "member", "--nocapture"];
            Process::start(&format!("node {node}"), "env", &args)
        };
        let mut members: Vec<_> = (0..NODES).map(start).collect();
        let pid = |member| expect(member, "pid ").parse().expect("it prints a number");
        let pids = members.iter().map(pid).collect();
        let address = |member| expect(member, "at ").parse().expect("it prints an address");
        let addresses: Vec<SocketAddr> = members.iter().map(address).collect();
        let all: Vec<_> = addresses.iter().map(SocketAddr::to_string).collect();
        for member in &mut members {
            member.say(&format!("meet {}", all.join(" ")));
        }
        let end = Instant::now() + MEETING;
        for member in &mut members {
            loop {
                member.say("active");
                if expect(member, "active ") == "true" {
                    break;
                }
                assert!(Instant::now() < end, "the members do not meet");
                thread::sleep(Duration::from_millis(10));
            }
        }
        Self { members, pids, addresses, dead: None }
    }

    /// The nodes that live.
    pub(crate) fn live(&self) -> impl Iterator<Item = NodeId> + use<> {
        let dead = self.dead;
        (0..NODES).map(NodeId).filter(move |&node| Some(node) != dead)
    }

    /// Makes a request that comes to a node fatal, and waits until it was.
    pub(crate) fn shoot(&mut self, at: NodeId, shot: Shot) -> Result<(), String> {
        let pids: Vec<_> = self.pids.iter().map(ToString::to_string).collect();
        self.members[usize::from(at.0)].say(&format!("arm {};{shot}", pids.join(" ")));
        let end = Instant::now() + DYING;
        let is_dead = |pid: &i32| Pid::from_raw(*pid).is_some_and(|pid| !fatal::lives(pid));
        loop {
            if let Some(dead) = self.pids.iter().position(is_dead) {
                self.kill(NodeId(dead as u16));
                return Ok(());
            }
            if Instant::now() > end {
                return Err(format!("no such request came to node {at} for {DYING:?}"));
            }
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// Kills a node now, if it is not dead already.
    pub(crate) fn kill(&mut self, node: NodeId) {
        self.members[usize::from(node.0)].kill();
        self.dead = Some(node);
    }

    pub(crate) fn pause(&self, node: NodeId, time: Duration) {
        let member = &self.members[usize::from(node.0)];
        member.pause();
        thread::sleep(time);
        member.resume();
    }

    /// What the live members hold.
    pub(crate) fn holdings(&mut self) -> Result<Vec<Holdings>, String> {
        let live: Vec<_> = self.live().collect();
        live.into_iter().map(|node| self.holdings_of(node)).collect()
    }

    fn holdings_of(&mut self, node: NodeId) -> Result<Holdings, String> {
        let member = &mut self.members[usize::from(node.0)];
        member.say("hold");
        let mut lines = Vec::new();
        loop {
            let line = member.line();
            if line == END {
                return Holdings::parse(node, lines.iter().map(String::as_str));
            }
            lines.push(line);
        }
    }
}

/// Waits for a line that begins so. Returns the rest.
fn expect(member: &Process, start: &str) -> String {
    loop {
        let line = member.line();
        if let Some(rest) = line.strip_prefix(start) {
            return rest.trim().to_owned();
        }
        assert!(!line.contains("panicked"), "{line}");
    }
}
