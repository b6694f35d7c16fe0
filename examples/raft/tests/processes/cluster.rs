//! Three nodes as processes, and those that join them.

use std::fs::{self, File};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::atomic::{AtomicU16, Ordering};
use std::time::{Duration, Instant};

use erpc::transport::udp::UdpRoute;
use erpc::{Channel, Endpoint, EndpointConfig, UdpConfig};
use erpc_raft::client::{Nodes, Patience};
use erpc_raft::proto::{LocalPeerClient, LocalStoreClient};

use crate::PATIENCE;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Durability {
    Disk,
    Volatile,
}

/// The nodes 1, 2 and 3 begin the cluster.
const FIRST: u64 = 3;

/// Nodes 1, 2 and 3, and those that [join](Cluster::join). They are killed at the end.
pub(crate) struct Cluster {
    folder: PathBuf,
    /// The data of node 1.
    first: PathBuf,
    addresses: Vec<SocketAddr>,
    durability: Durability,
    arguments: Vec<String>,
    children: Vec<Option<Child>>,
}

impl Cluster {
    pub(crate) fn start(name: &str, durability: Durability, arguments: &[&str]) -> Self {
        let first = folder(name).join("data-1");
        Self::start_at(name, durability, arguments, &first)
    }

    /// With the data of node 1 in this folder.
    pub(crate) fn start_at(
        name: &str,
        durability: Durability,
        arguments: &[&str],
        first: &Path,
    ) -> Self {
        let mut cluster = Self::stopped(name, durability, arguments);
        first.clone_into(&mut cluster.first);
        (1..=FIRST).for_each(|id| cluster.restart(id));
        cluster
    }

    /// No node runs yet.
    pub(crate) fn stopped(name: &str, durability: Durability, arguments: &[&str]) -> Self {
        let folder = folder(name);
        let addresses = (0..FIRST).map(|_| free_address()).collect();
        let arguments = arguments.iter().map(ToString::to_string).collect();
        let children = (0..FIRST).map(|_| None).collect();
        let first = folder.join("data-1");
        Self { folder, first, addresses, durability, arguments, children }
    }

    /// Starts one more node, which waits to be added. Returns its id.
    pub(crate) fn join(&mut self) -> u64 {
        self.addresses.push(free_address());
        self.children.push(None);
        let id = self.addresses.len() as u64;
        self.restart(id);
        id
    }

    /// The folder for the data of a node.
    pub(crate) fn data(&self, id: u64) -> PathBuf {
        if id == 1 { self.first.clone() } else { self.folder.join(format!("data-{id}")) }
    }

    fn command(&self, id: u64, data: u64) -> Command {
        let named = if id <= FIRST { 1..=FIRST } else { id..=id };
        let peers: Vec<_> = named.map(|id| format!("{id}={}", self.address(id))).collect();
        let mut command = Command::new(env!("CARGO_BIN_EXE_erpc-raft"));
        command.args(["node", "--id", &id.to_string(), "--peers", &peers.join(",")]);
        match self.durability {
            Durability::Disk => command.arg("--dir").arg(self.data(data)),
            Durability::Volatile => command.arg("--volatile"),
        };
        if id > FIRST {
            command.arg("--join");
        }
        command.args(&self.arguments).stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    pub(crate) fn restart(&mut self, id: u64) {
        let errors =
            File::create(self.folder.join(format!("errors-{id}"))).expect("the folder is ours");
        let child = self.command(id, id).stderr(errors).spawn().expect("the program is built");
        self.children[id as usize - 1] = Some(child);
    }

    /// SIGKILL.
    pub(crate) fn kill(&mut self, id: u64) {
        if let Some(mut child) = self.children[id as usize - 1].take() {
            child.kill().expect("it is ours");
            child.wait().expect("it is ours");
        }
    }

    pub(crate) fn signal(&self, id: u64, signal: &str) {
        let child = self.children[id as usize - 1].as_ref().expect("it runs");
        let sent =
            Command::new("kill").args([&format!("-{signal}"), &child.id().to_string()]).status();
        assert!(sent.expect("there is a program kill").success());
    }

    /// Waits until the process ends.
    pub(crate) fn wait(&mut self, id: u64) -> ExitStatus {
        let child = self.children[id as usize - 1].as_mut().expect("it was started");
        let begun = Instant::now();
        loop {
            if let Some(status) = child.try_wait().expect("it is ours") {
                return status;
            }
            assert!(begun.elapsed() < PATIENCE, "node {id} does not end");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// What the node has said on its standard error.
    pub(crate) fn errors(&self, id: u64) -> String {
        fs::read_to_string(self.folder.join(format!("errors-{id}"))).expect("the folder is ours")
    }

    /// Runs node `id` with the data of another node, until it ends.
    pub(crate) fn run_with_folder_of(&self, data: u64, id: u64) -> Output {
        let mut child =
            self.command(id, data).stderr(Stdio::piped()).spawn().expect("the program is built");
        until("the node refuses the data", || child.try_wait().expect("it is ours").is_some());
        child.wait_with_output().expect("it is ours")
    }

    /// Runs the program as a client, until it ends.
    pub(crate) fn run_client(&self, arguments: &[&str]) -> Output {
        let mut command = client_command(&self.addresses(), arguments);
        command.output().expect("the program is built")
    }

    /// The same, and the tasks of an endpoint go on meanwhile.
    pub(crate) fn run_client_beside(&self, endpoint: &Endpoint, arguments: &[&str]) -> Output {
        let mut command = client_command(&self.addresses(), arguments);
        let child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn();
        let mut child = child.expect("the program is built");
        until("the client ends", || {
            endpoint.run_for(Duration::from_millis(2));
            child.try_wait().expect("it is ours").is_some()
        });
        child.wait_with_output().expect("it is ours")
    }

    /// The members that a node names in its line of `client status`, in the order of their ids. None if the
    /// node is silent.
    pub(crate) fn members(&self, id: u64) -> Option<Vec<String>> {
        let output = client_command(&[self.address(id)], &["status"]).output();
        let text = output.expect("the program is built").stdout;
        let text = String::from_utf8(text).expect("the program writes text");
        let columns = text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
        let line = columns.into_iter().find(|columns| columns[0] == id.to_string())?;
        // After id, address, role, term, leader, last, commit, applied, snapshot, keys.
        let members = line[10..].join(" ");
        let mut members: Vec<_> = members.split(", ").map(ToOwned::to_owned).collect();
        members.sort_unstable();
        Some(members)
    }

    pub(crate) fn address(&self, id: u64) -> String {
        self.addresses[id as usize - 1].to_string()
    }

    pub(crate) fn addresses(&self) -> Vec<String> {
        self.addresses.iter().map(ToString::to_string).collect()
    }

    /// Waits for a leader.
    pub(crate) fn leader(&self, endpoint: &Endpoint, nodes: &Nodes) -> u64 {
        let begun = Instant::now();
        loop {
            let ids = 1..=self.children.len() as u64;
            for id in ids.filter(|id| self.children[*id as usize - 1].is_some()) {
                let status = endpoint.block_on(nodes.status(&self.address(id)));
                if status.is_ok_and(|status| status.role == "leader") {
                    return id;
                }
            }
            assert!(begun.elapsed() < PATIENCE, "no node becomes leader");
            endpoint.run_for(Duration::from_millis(5));
        }
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        (1..=self.children.len() as u64).for_each(|id| self.kill(id));
        fs::remove_dir_all(&self.folder).unwrap_or_default();
    }
}

fn client_command(addresses: &[String], arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_erpc-raft"));
    command.args(["client", "--connect", &addresses.join(",")]).args(arguments);
    command.stdin(Stdio::null());
    command
}

/// Waits until something holds.
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < PATIENCE, "waited too long until {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// An address that the clients of other tests do not get from the system, and no other cluster has. Other
/// programs may take it before the node starts; that is rare.
fn free_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = std::process::id() as u16 % 1000 * 20;
    loop {
        // From 10,000 to 32,767: Linux gives higher ones to clients.
        let port = 10_000 + first.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % 22_768;
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        if UdpSocket::bind(address).is_ok() {
            return address;
        }
    }
}

fn folder(name: &str) -> PathBuf {
    let folder = std::env::temp_dir().join(format!("erpc-raft-test-{name}-{}", std::process::id()));
    fs::create_dir_all(&folder).expect("there is a folder for temporary files");
    folder
}

/// A client over UDP.
pub(crate) fn client(addresses: &[String], patience: Patience) -> (Endpoint, Nodes) {
    let config = EndpointConfig::new()
        .slots(64)
        .ping_interval(Duration::from_millis(100))
        .liveness_timeout(Duration::from_millis(500))
        .connect_timeout(Duration::from_millis(200));
    let endpoint = Endpoint::udp_with(&UdpConfig::new(), config).expect("there are ports");
    let connect = Box::new(|endpoint: &Endpoint, address: &str| {
        let route = UdpRoute::from(address.parse::<SocketAddr>().ok()?);
        Some(LocalStoreClient::new(Channel::to(endpoint, vec![route]).build()))
    });
    let nodes = Nodes::new(&endpoint, addresses, connect, patience).expect("these are addresses");
    (endpoint, nodes)
}

/// A client of a node as another node is one.
pub(crate) fn peer(endpoint: &Endpoint, address: &str) -> LocalPeerClient {
    let address: SocketAddr = address.parse().expect("it is an address");
    LocalPeerClient::new(Channel::to(endpoint, vec![UdpRoute::from(address)]).build())
}

/// A disk of 4 MiB. It is unmounted at the end.
pub(crate) struct SmallDisk {
    pub(crate) path: PathBuf,
}

/// None without the right to mount.
pub(crate) fn small_disk(name: &str) -> Option<SmallDisk> {
    let path = folder(name).join("small");
    fs::create_dir_all(&path).ok()?;
    let mounted =
        Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&path).status();
    mounted.is_ok_and(|status| status.success()).then_some(SmallDisk { path })
}

impl SmallDisk {
    pub(crate) fn grow(&self) {
        let grown = Command::new("mount").args(["-o", "remount,size=64m"]).arg(&self.path).status();
        assert!(grown.expect("there is a program mount").success());
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A lazy one: the node that uses it may still end.
        drop(Command::new("umount").arg("-l").arg(&self.path).status());
        // The cluster, which has ended before, cannot remove its folder while the disk is mounted.
        let folder = self.path.parent().expect("it is in the folder of the test");
        fs::remove_dir_all(folder).unwrap_or_default();
    }
}
