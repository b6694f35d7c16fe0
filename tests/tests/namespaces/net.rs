//! Two network namespaces, and this program in both of them.

use std::env;
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use erpc_test_tools::netns::{Namespace, run};
use erpc_test_tools::process::Process;

/// Which of a test's processes this is; the test itself has none.
pub(crate) const ROLE: &str = "ERPC_NAMESPACE_ROLE";

/// Addresses that nobody has: TEST-NET-1.
pub(crate) const SERVER: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), 7_000);
pub(crate) const CLIENT: SocketAddr = SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 2)), 0);
/// Another address of the client's end.
pub(crate) const CLIENT_TOO: SocketAddr =
    SocketAddr::new(IpAddr::V4(Ipv4Addr::new(192, 0, 2, 3)), 0);
/// The name of the cable's end in either namespace.
pub(crate) const CABLE: &str = "erpc0";

/// Two network namespaces and a cable. They go when this does.
pub(crate) struct Net {
    pub(crate) server: Namespace,
    pub(crate) client: Namespace,
}

impl Net {
    /// # Errors
    /// What the machine says against it.
    pub(crate) fn new() -> Result<Self, String> {
        let net = Self { server: Namespace::new("server")?, client: Namespace::new("client")? };
        // Both ends are made where they belong, and are never among the machine's own interfaces.
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

    /// This program in a namespace, as one of a test's processes.
    pub(crate) fn start(namespace: &Namespace, role: &str, test: &str) -> Process {
        let program = env::current_exe().expect("a test knows its program");
        let program = program.to_str().expect("its path is text");
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

/// One line, one system call. Begun on a new line, as the test harness may have said something.
pub(crate) fn say(line: &str) {
    let written = std::io::stdout().lock().write_all(format!("\n{line}\n").as_bytes());
    written.expect("the test listens");
}
