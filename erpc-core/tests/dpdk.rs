//! A server and a client in two processes, over DPDK's `net_memif`. DPDK starts once per process,
//! so this file has one test, which runs its own binary again as the server.

use std::env;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::dpdk::{self, DpdkConfig, DpdkTransport};

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.v1.Test/Echo");

fn echo(_: &(), request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    Ok(Response::new(request.into_message()))
}

/// Kills the server when it is dropped.
struct Server {
    process: Child,
    socket: String,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.process.kill();
        let _ = self.process.wait();
        // The socket of a killed server stays, and would hide that the next one is not ready.
        let _ = std::fs::remove_file(&self.socket);
    }
}

fn start(role: &str, socket: &str) {
    let prefix = format!("--file-prefix=erpc-test-{role}-{}", std::process::id());
    let device =
        format!("--vdev=net_memif0,role={role},id=0,bsize=9100,socket={socket},socket-abstract=no");
    let arguments =
        ["--no-huge", "-m", "256", "--no-pci", "--no-telemetry", "-l", "0", &prefix, &device];
    dpdk::init(&arguments).expect("DPDK starts");
    dpdk::init(&arguments).expect("a repeated start does nothing");
    assert!(dpdk::init(&["--no-huge"]).is_err());
}

fn port(last: u8) -> DpdkConfig {
    DpdkConfig::new("net_memif0", [10, 9, 0, last].into(), 24).mtu(9_000)
}

fn serve(socket: &str) {
    start("server", socket);
    let endpoint = Endpoint::dpdk(&port(1).udp_port(31_850)).expect("a port");
    let mut routes = Routes::new();
    routes.unary(ECHO, Mode::Dispatch, &Arc::new(()), echo).expect("one method");
    assert!(endpoint.serve(Arc::new(routes), None));
    endpoint.listen();
    let end = Instant::now() + Duration::from_secs(60);
    endpoint.run_until(|| Instant::now() > end);
}

/// Starts the server's process and waits for its socket.
fn spawn_server(socket: &str) -> Server {
    let server = Command::new(env::current_exe().expect("the test's path"))
        .env("ERPC_DPDK_SERVER", socket)
        .stdout(Stdio::null())
        .spawn();
    let process = server.expect("the test starts again");
    let server = Server { process, socket: socket.to_owned() };
    let begun = Instant::now();
    while std::fs::metadata(socket).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(20), "the server does not start");
        std::thread::sleep(Duration::from_millis(50));
    }
    server
}

#[test]
fn calls_and_large_messages_between_two_processes_and_a_restart() {
    if let Ok(socket) = env::var("ERPC_DPDK_SERVER") {
        return serve(&socket);
    }
    let socket = env::temp_dir().join(format!("erpc-memif-{}", std::process::id()));
    let socket = socket.to_str().expect("a path in UTF-8");
    let server = spawn_server(socket);
    start("client", socket);
    let config = EndpointConfig::new()
        .ping_interval(Duration::from_millis(500))
        .liveness_timeout(Duration::from_secs(2));
    let endpoint = Endpoint::dpdk_with(&port(2), config).expect("a port");
    assert!(Endpoint::dpdk(&port(2)).is_err(), "the port is in use");
    let session: Session<DpdkTransport> = endpoint.connect("10.9.0.1:31850").expect("an address");
    for len in [0, 1, 32, 5_000, 100_000, 8_000_000] {
        let request: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
        let answer = endpoint.block_on(session.call(&ECHO, &request)).expect("an answer");
        assert!(answer == request, "{len} bytes");
    }
    let small = vec![7; 32];
    let begun = Instant::now();
    for _ in 0..20_000 {
        endpoint.block_on(session.call(&ECHO, &small)).expect("an answer");
    }
    println!("{:?} per call of 32 bytes", begun.elapsed() / 20_000);
    // The driver can crash the survivor when a peer goes away with packets in flight, so no call is
    // in flight here. Everything that fails from here on is a fault of the transport.
    drop(server);
    let lost = endpoint.block_on(session.call(&ECHO, &small));
    assert!(lost.is_err(), "nobody answers: {lost:?}");
    let dropped = endpoint.stats().expect("outside of a turn").transport.tx_dropped;
    assert!(dropped < 1_000, "bounded retransmission, and {dropped} datagrams dropped");
    let _server = spawn_server(socket);
    let begun = Instant::now();
    let session: Session<DpdkTransport> = loop {
        match endpoint.connect("10.9.0.1:31850") {
            Ok(session) => break session,
            Err(error) => assert!(begun.elapsed() < Duration::from_secs(20), "{error}"),
        }
    };
    for len in [32, 1_000_000] {
        let request: Vec<u8> = vec![7; len];
        let answer = endpoint.block_on(session.call(&ECHO, &request)).expect("an answer");
        assert!(answer == request, "{len} bytes after the restart");
    }
}
