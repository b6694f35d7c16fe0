//! Two network namespaces, and processes of this binary in them.

use std::env;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use erpc_test_tools::netns::{Namespace, run};
use erpc_test_tools::process::Process;

/// Environment variable with the role of this process in a test. Not set in the test itself.
pub(crate) const ROLE: &str = "ERPC_NAMESPACE_ROLE";

/// The server's address. Addresses here are in TEST-NET-1, which is reserved.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_000);
pub(crate) const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 0);
/// A second address of the client.
pub(crate) const CLIENT_TOO: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)), 0);
/// Name of the cable's interface in both namespaces.
pub(crate) const CABLE: &str = "erpc0";

/// Two network namespaces and a cable. Dropping a `Net` deletes the namespaces and the cable.
pub(crate) struct Net {
    pub(crate) server: Namespace,
    pub(crate) client: Namespace,
}

impl Net {
    /// Creates the namespaces and the cable, and sets the addresses.
    ///
    /// # Errors
    /// The reason why the machine cannot create the namespaces or the cable.
    pub(crate) fn new() -> Result<Self, String> {
        let net = Self { server: Namespace::new("server")?, client: Namespace::new("client")? };
        // Creates both ends in their namespaces, so that they never appear among the machine's
        // interfaces.
        let (server, client) = (net.server.name(), net.client.name());
        let ends = format!("{CABLE} netns {server} type veth peer name {CABLE} netns {client}");
        run("ip", &format!("link add {ends}"))?;
        for (namespace, address) in [(&net.server, SERVER.ip()), (&net.client, CLIENT.ip())] {
            namespace.ip(&format!("address add {address}/24 dev {CABLE}"))?;
            namespace.ip(&format!("link set {CABLE} up"))?;
        }
        net.client.ip(&format!("address add {}/24 dev {CABLE}", CLIENT_TOO.ip()))?;
        Ok(net)
    }

    /// Starts this binary in a namespace, as the process of `test` with this `role`.
    pub(crate) fn start(namespace: &Namespace, role: &str, test: &str) -> Process {
        let program = env::current_exe().expect("the path of this binary is known");
        let program = program.to_str().expect("the path is UTF-8");
        let variable = format!("{ROLE}={role}");
        let arguments = [
            "netns",
            "exec",
            namespace.name(),
            "env",
            &variable,
            program,
            "--exact",
            test,
            "--nocapture",
        ];
        Process::start(&format!("{test}'s {role}"), "ip", &arguments)
    }
}

/// Prints a line with one system call. Starts with a newline, because the test harness may have
/// printed the start of a line.
pub(crate) fn say(line: &str) {
    let written = std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes());
    written.expect("the test reads the line");
}
