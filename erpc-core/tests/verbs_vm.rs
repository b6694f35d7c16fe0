//! Calls between two devices of libibverbs, in one process and in two. `.ci/verbs` runs this in a
//! virtual machine with devices in software (`erpc-core/tests/verbs-vm`).
//!
//! `ERPC_VERBS_DEVICES` has the names and addresses, for instance `rxe0 10.77.0.1 rxe1 10.77.0.2`.
//! Emulated processors are slow, so all limits are long, and nothing here measures time.

use std::env;
use std::net::{IpAddr, SocketAddr};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, Mode, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::transport::Transport;
use erpc_core::transport::verbs::{IbvDevice, Ibverbs, VerbsConfig, VerbsError, VerbsTransport};

type Verbs = VerbsTransport<IbvDevice>;

const ECHO: Method<Vec<u8>, Vec<u8>> = Method::new("test.v1.Test/Echo");
const PATIENCE: Duration = Duration::from_secs(120);
const PORT: u16 = 31_850;

fn echo(_: &(), request: Request<'_, Vec<u8>>) -> Result<Response<Vec<u8>>, Status> {
    Ok(Response::new(request.into_message()))
}

/// Settings of both sides, and the server's address.
fn devices() -> ([VerbsConfig; 2], IpAddr) {
    let devices = env::var("ERPC_VERBS_DEVICES").expect("ERPC_VERBS_DEVICES names two devices");
    let words: Vec<_> = devices.split_whitespace().collect();
    let [first, first_address, second, second_address] = words[..] else {
        panic!("`{devices}` is not DEVICE ADDRESS DEVICE ADDRESS");
    };
    let address = |text: &str| text.parse::<IpAddr>().expect("an address");
    let side = |device: &str, ip: &str| VerbsConfig::new(device).interface(address(ip));
    ([side(first, first_address), side(second, second_address)], address(first_address))
}

/// Liveness in seconds, because the machine may stop either side for long.
fn patient() -> EndpointConfig {
    EndpointConfig::new()
        .ping_interval(Duration::from_secs(1))
        .liveness_timeout(Duration::from_secs(20))
        .connect_timeout(PATIENCE)
}

fn serve(endpoint: &Endpoint<Verbs>, is_over: impl FnMut() -> bool) {
    let mut routes = Routes::new();
    routes.unary(ECHO, Mode::Dispatch, &Arc::new(()), echo).expect("one method");
    assert!(endpoint.serve(Arc::new(routes), None));
    endpoint.listen();
    endpoint.run_until(is_over);
}

fn call(endpoint: &Endpoint<Verbs>, session: &Session<Verbs>, len: usize) {
    let request: Vec<u8> = (0..len).map(|at| (at * 7) as u8).collect();
    let call = endpoint.timeout(PATIENCE, session.call(&ECHO, &request));
    let answer = endpoint.block_on(call).expect("in time").expect("an answer");
    assert!(answer == request, "{len} bytes");
}

/// A server on a thread of this process. `at_turns` runs within its loop.
struct Server {
    stop: Arc<AtomicBool>,
    thread: Option<thread::JoinHandle<()>>,
    address: SocketAddr,
}

impl Server {
    fn start(config: VerbsConfig, mut at_turn: impl FnMut() + Send + 'static) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (send, started) = channel();
        let thread = thread::spawn({
            let stop = Arc::clone(&stop);
            move || {
                let endpoint = Endpoint::verbs_with(&config, patient()).expect("the device opens");
                let route = endpoint.local_route().expect("outside of the loop");
                send.send(route.socket_addr()).expect("the test waits");
                let end = Instant::now() + 5 * PATIENCE;
                serve(&endpoint, || {
                    at_turn();
                    stop.load(Ordering::Relaxed) || Instant::now() > end
                });
            }
        });
        let address = started.recv().expect("the server starts");
        Self { stop, thread: Some(thread), address }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            assert!(thread.join().is_ok() || thread::panicking(), "the server ends");
        }
    }
}

#[test]
#[ignore = "needs two verbs devices; .ci/verbs runs it in a virtual machine"]
fn messages_of_all_sizes_and_two_hundred_sessions() {
    let ([server, client], _) = devices();
    let server = Server::start(server, || {});
    let transport = Verbs::open(&Ibverbs, &client).expect("the device opens");
    println!("{:?} {:?}", transport, transport.capabilities());
    assert!(transport.is_zero_copy() && transport.is_link_up());
    let endpoint = Endpoint::new(transport, patient()).expect("settings");
    let session: Session<Verbs> = endpoint.connect(server.address).expect("a session");
    for len in [0, 1, 32, 1_000, 4_072, 4_073, 100_000, 8_000_000] {
        call(&endpoint, &session, len);
    }
    let sessions: Vec<Session<Verbs>> =
        (0..200).map(|_| endpoint.open(server.address.into())).collect();
    for (at, session) in sessions.iter().enumerate() {
        call(&endpoint, session, at * 31);
    }
    let stats = endpoint.stats().expect("outside of the loop");
    assert_eq!(stats.client_sessions, 201);
    println!("{:?}", stats.transport);
}

#[test]
#[ignore = "needs two verbs devices; .ci/verbs runs it in a virtual machine"]
fn a_queue_pair_that_is_forced_into_error_is_rebuilt_and_its_sessions_live_on() {
    let ([server, client], _) = devices();
    let server = Server::start(server, || {});
    let mut transport = Verbs::open(&Ibverbs, &client).expect("the device opens");
    let number = transport.queue_pair();
    // Without a loop: the queue pair breaks, and the next bursts find out and rebuild it.
    transport.device().break_pair().expect("the state changes");
    let end = Instant::now() + PATIENCE;
    while transport.verbs_stats().rebuilds == 0 {
        assert!(Instant::now() < end, "the queue pair is rebuilt");
        let (rx, tx) = transport.split();
        erpc_core::transport::RxQueue::burst(rx);
        erpc_core::transport::TxQueue::doorbell(tx);
    }
    assert_eq!(transport.queue_pair(), number, "a reset keeps the number");
    println!("{:?}", transport.verbs_stats());
    let endpoint = Endpoint::new(transport, patient()).expect("settings");
    let session: Session<Verbs> = endpoint.connect(server.address).expect("a session");
    call(&endpoint, &session, 100_000);
}

#[test]
#[ignore = "needs two verbs devices; .ci/verbs runs it in a virtual machine"]
fn settings_that_the_device_does_not_have_are_refused() {
    let ([server, _], _) = devices();
    let refused = |config: VerbsConfig| {
        let error = Verbs::open(&Ibverbs, &config).expect_err("refused");
        println!("{error}");
        error
    };
    let absent = refused(VerbsConfig::new("no_such_device"));
    assert!(matches!(absent, VerbsError::NoDevice { found, .. } if found.len() == 2));
    assert!(matches!(refused(server.clone().port(9)), VerbsError::Port { .. }));
    assert!(matches!(refused(server.clone().gid_index(200)), VerbsError::Gid { .. }));
    assert!(matches!(refused(server.clone().pkey(0x1234)), VerbsError::Pkey { .. }));
    let long = refused(server.clone().sessions(4_096).credits(16));
    assert!(matches!(long, VerbsError::ReceiveQueue { .. }));
    let away = server.exchange("192.0.2.1:1".parse().expect("an address"));
    assert!(matches!(refused(away), VerbsError::Exchange { .. }));
}

/// Kills the server when it is dropped.
struct Process(Child);

impl Drop for Process {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts this test in another process, as the server.
fn spawn_server() -> Process {
    let server = Command::new(env::current_exe().expect("the test's path"))
        .args(["--ignored", "--exact", "two_processes_and_a_restart"])
        .env("ERPC_VERBS_SERVER", "1")
        .stdout(Stdio::null())
        .spawn();
    Process(server.expect("the test starts again"))
}

#[test]
#[ignore = "needs two verbs devices; .ci/verbs runs it in a virtual machine"]
fn two_processes_and_a_restart() {
    let ([server, client], ip) = devices();
    let address = SocketAddr::new(ip, PORT);
    if env::var_os("ERPC_VERBS_SERVER").is_some() {
        let config = server.exchange(address);
        let endpoint = Endpoint::verbs_with(&config, patient()).expect("the device opens");
        let end = Instant::now() + 3 * PATIENCE;
        return serve(&endpoint, || Instant::now() > end);
    }
    let config = patient().liveness_timeout(Duration::from_secs(4));
    let endpoint = Endpoint::verbs_with(&client, config).expect("the device opens");
    for round in 0..2 {
        let process = spawn_server();
        // The server may not have started yet, or the address is that of the last one.
        let begun = Instant::now();
        let session: Session<Verbs> = loop {
            match endpoint.connect(address) {
                Ok(session) => break session,
                Err(error) => assert!(begun.elapsed() < PATIENCE, "round {round}: {error}"),
            }
        };
        for len in [32, 1_000_000] {
            call(&endpoint, &session, len);
        }
        drop(process);
        let lost = endpoint.block_on(session.call(&ECHO, &vec![7; 32]));
        assert!(lost.is_err(), "nobody answers: {lost:?}");
    }
}
