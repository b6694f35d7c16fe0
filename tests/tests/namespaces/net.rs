//! Two network namespaces, and this program in both of them.

use std::env;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use erpc_tests::process::Process;

/// Which of a test's processes this is; the test itself has none.
pub(crate) const ROLE: &str = "ERPC_NAMESPACE_ROLE";
const REQUIRE: &str = "ERPC_REQUIRE_NAMESPACES";

/// Addresses that nobody has: TEST-NET-1.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_000);
pub(crate) const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 0);
/// The name of the cable's end in either namespace.
pub(crate) const CABLE: &str = "erpc0";

/// Two network namespaces and a cable. They go when this does.
pub(crate) struct Net {
    pub(crate) server: String,
    pub(crate) client: String,
}

impl Net {
    /// # Errors
    /// What the machine says against it.
    pub(crate) fn new() -> Result<Self, String> {
        static SERIAL: AtomicU32 = AtomicU32::new(0);
        let serial = SERIAL.fetch_add(1, Ordering::Relaxed);
        let name = |role| format!("erpc-{}-{serial}-{role}", std::process::id());
        // From here on, `drop` takes away whatever there is.
        let net = Self { server: name("server"), client: name("client") };
        let Self { server, client } = &net;
        ip(&format!("netns add {server}"))?;
        ip(&format!("netns add {client}"))?;
        // Both ends are made where they belong, and are never among the machine's own interfaces.
        ip(&format!("link add {CABLE} netns {server} type veth peer name {CABLE} netns {client}"))?;
        for (namespace, address) in [(server, SERVER.ip()), (client, CLIENT.ip())] {
            ip(&format!("-n {namespace} address add {address}/24 dev {CABLE}"))?;
            ip(&format!("-n {namespace} link set {CABLE} up"))?;
        }
        Ok(net)
    }

    /// Says that a test is not run, and why.
    ///
    /// # Panics
    /// If it must be run.
    pub(crate) fn skip(test: &str, reason: &str) {
        assert!(env::var_os(REQUIRE).is_none(), "no network namespaces: {reason}");
        // Past the harness, which keeps to itself what tests print that do not fail.
        let said = format!("SKIPPED {test}: no network namespaces here: {reason}\n");
        std::io::stderr().write_all(said.as_bytes()).expect("somebody listens");
    }

    /// This program in a namespace, as one of a test's processes.
    pub(crate) fn start(namespace: &str, role: &str, test: &str) -> Process {
        let program = env::current_exe().expect("a test knows its program");
        let program = program.to_str().expect("its path is text");
        let variable = format!("{ROLE}={role}");
        let arguments =
            ["netns", "exec", namespace, "env", &variable, program, "--exact", test, "--nocapture"];
        Process::start(&format!("{test}'s {role}"), "ip", &arguments)
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for namespace in [&self.server, &self.client] {
            // An error means that it was not made. The cable goes with what it is in.
            ip(&format!("netns delete {namespace}")).unwrap_or_default();
        }
    }
}

fn ip(arguments: &str) -> Result<(), String> {
    let output = Command::new("ip")
        .args(arguments.split(' '))
        .output()
        .map_err(|error| format!("`ip` of iproute2 does not start: {error}"))?;
    match output.status.success() {
        true => Ok(()),
        false => {
            Err(format!("`ip {arguments}`: {}", String::from_utf8_lossy(&output.stderr).trim()))
        }
    }
}

/// One line, one system call. Begun on a new line, as the test harness may have said something.
pub(crate) fn say(line: &str) {
    let written = std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes());
    written.expect("the test listens");
}
