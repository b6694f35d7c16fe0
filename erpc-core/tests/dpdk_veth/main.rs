//! Servers and clients on DPDK ports over the kernel: `net_af_packet` and `net_af_xdp` on the two
//! ends of a veth pair, each in a network namespace of its own. Needs root and iproute2.
//!
//! DPDK starts once per process, so each test runs its own binary again, once for each end
//! ([`play`]). The processes end with the test, also if it is killed. The namespaces end with it
//! unless it is killed; then the next test of the same kind deletes them.

use std::env;
use std::fs;
use std::io::Write;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::dpdk::{self, DpdkConfig, DpdkTransport};
use erpc_test_tools::limit::secs;
use erpc_test_tools::netns::{Namespace, run, skip, skip_unsupported};
use erpc_test_tools::process::{Process, end_with_input};
use socket2::{Domain, Socket, Type};

mod calls;
mod link;
mod refused;

/// Environment variables of an end's process: its role, and the arguments of its device.
const ROLE: &str = "ERPC_VETH_ROLE";
const DEVICE: &str = "ERPC_VETH_DEVICE";
/// Name of the interface in both namespaces.
const INTERFACE: &str = "erpc0";
/// Longest time of one call, on a machine with other load.
const PATIENCE: Duration = secs(15);
/// The address family of AF_XDP.
const AF_XDP: i32 = 44;

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.v1.Test/Echo");

/// An end of the veth pair.
#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    First,
    Second,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Second => "second",
        }
    }

    /// The end that this process plays; `None` in the test's own process.
    fn of_this_process() -> Option<Self> {
        let role = env::var(ROLE).ok()?;
        Some(if role == "first" { Self::First } else { Self::Second })
    }

    /// Address of the port, which the kernel does not own.
    fn ip(self) -> IpAddr {
        [10, 9, 0, if self == Self::First { 1 } else { 2 }].into()
    }

    fn peer(self) -> SocketAddr {
        let peer = if self == Self::First { Self::Second } else { Self::First };
        (peer.ip(), 31_850).into()
    }
}

/// A driver over the kernel.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Driver {
    Packet,
    Xdp,
}

impl Driver {
    /// Name of the device.
    fn device(self) -> &'static str {
        match self {
            Self::Packet => "net_af_packet0",
            Self::Xdp => "net_af_xdp0",
        }
    }

    /// What this machine lacks for the driver.
    fn missing(self) -> Option<String> {
        let socket = match self {
            Self::Packet => return None,
            Self::Xdp => Socket::new(Domain::from(AF_XDP), Type::RAW, None),
        };
        socket.err().map(|error| format!("the kernel has no sockets of AF_XDP: {error}"))
    }
}

/// Two namespaces and a veth pair between them.
struct Net {
    first: Namespace,
    second: Namespace,
}

impl Net {
    /// # Errors
    /// The reason why the machine cannot create the namespaces or the pair.
    fn new(mtu: u16) -> Result<Self, String> {
        let net = Self { first: Namespace::new("first")?, second: Namespace::new("second")? };
        let (first, second) = (net.first.name(), net.second.name());
        let ends =
            format!("{INTERFACE} netns {first} type veth peer name {INTERFACE} netns {second}");
        run("ip", &format!("link add {ends}"))?;
        for namespace in [&net.first, &net.second] {
            // The kernel sends nothing by itself.
            namespace.ip(&format!("link set {INTERFACE} addrgenmode none mtu {mtu}"))?;
            namespace.ip(&format!("link set {INTERFACE} up"))?;
        }
        Ok(net)
    }

    fn of(&self, end: End) -> &Namespace {
        if end == End::First { &self.first } else { &self.second }
    }

    /// Starts the process of an end.
    fn start(&self, end: End, test: &str, device: &str) -> Port {
        let program = env::current_exe().expect("the path of this binary is known");
        let program = program.to_str().expect("the path is UTF-8");
        let (role, device) = (format!("{ROLE}={}", end.name()), format!("{DEVICE}={device}"));
        let namespace = self.of(end).name();
        let prefix = format!("ERPC_VETH_PREFIX={namespace}");
        let arguments = ["netns", "exec", namespace, "env", &role, &device, &prefix];
        let program = [program, "--exact", test, "--nocapture"];
        let arguments = [&arguments[..], &program].concat();
        Port {
            process: Process::start(&format!("{test}'s {}", end.name()), "ip", &arguments),
            files: format!("/var/run/dpdk/{namespace}"),
        }
    }
}

/// The process of an end. Dropping a `Port` kills the process and deletes DPDK's files of it.
struct Port {
    process: Process,
    files: String,
}

impl Port {
    /// Waits until the process says `word`. Returns the rest of the line.
    fn expect(&self, word: &str) -> String {
        loop {
            let line = self.process.line();
            if let Some(rest) = line.strip_prefix(word) {
                return rest.trim().to_owned();
            }
            assert!(!line.contains("panicked"), "{line}");
        }
    }
}

impl Drop for Port {
    fn drop(&mut self) {
        self.process.kill();
        // An error means that DPDK has not started.
        fs::remove_dir_all(&self.files).unwrap_or_default();
    }
}

/// Prints a line with one system call. Starts with a newline, because the test harness may have
/// printed the start of a line.
fn say(line: &str) {
    let written = std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes());
    written.expect("the test reads the line");
}

/// Plays `end` in the process of an end. In the test's own process, runs `test` between two
/// namespaces whose link has this MTU, one test at a time; says loudly if the machine cannot.
fn play(name: &str, driver: Driver, mtu: u16, end: fn(End), test: impl FnOnce(&Net)) {
    static ONE_AT_A_TIME: Mutex<()> = Mutex::new(());
    if let Some(role) = End::of_this_process() {
        end_with_input();
        return end(role);
    }
    if let Some(reason) = driver.missing() {
        return skip_unsupported(name, &reason);
    }
    let _one_at_a_time = ONE_AT_A_TIME.lock().unwrap_or_else(PoisonError::into_inner);
    match Net::new(mtu) {
        Err(reason) => skip(name, &reason),
        Ok(net) => test(&net),
    }
}

/// Starts DPDK with the device that the test has chosen.
fn start_dpdk() {
    let device = env::var(DEVICE).expect("the test names the device");
    let prefix = env::var("ERPC_VETH_PREFIX").expect("the test names the files");
    let (prefix, device) = (format!("--file-prefix={prefix}"), format!("--vdev={device}"));
    let arguments =
        ["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "-l", "0", &prefix, &device];
    dpdk::init(&arguments).expect("DPDK starts");
}

fn config(driver: Driver, end: End, mtu: u16) -> DpdkConfig {
    DpdkConfig::new(driver.device(), end.ip(), 24).mtu(mtu).udp_port(31_850)
}

/// Requests that this process has answered.
static ANSWERED: AtomicU64 = AtomicU64::new(0);

fn echo(_: &(), request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    ANSWERED.fetch_add(1, Ordering::Relaxed);
    Ok(Response::new(request.into_message()))
}

/// An endpoint that answers calls.
fn serve(transport: DpdkTransport) -> Endpoint<DpdkTransport> {
    let endpoint = Endpoint::new(transport, EndpointConfig::new()).expect("default settings");
    let mut routes = Routes::new();
    routes.unary(ECHO, Mode::Dispatch, &Arc::new(()), echo).expect("one method");
    assert!(endpoint.serve(Arc::new(routes), None));
    endpoint.listen();
    endpoint
}

/// Calls the peer with `len` bytes each way.
fn call(endpoint: &Endpoint<DpdkTransport>, session: &Session<DpdkTransport>, len: usize) {
    let request: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    let call = endpoint.timeout(PATIENCE, session.call(&ECHO, &request));
    let answer = endpoint.block_on(call).expect("in time").expect("an answer");
    assert!(answer == request, "{len} bytes");
}
