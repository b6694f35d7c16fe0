//! The graceful end of a server: by its handle, by a future, and by a signal, also as process 1 of a
//! container.

use std::future::poll_fn;
use std::net::{SocketAddr, UdpSocket};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::thread;
use std::time::Instant;

use erpc::{
    CallError, Cause, Code, ConnectError, Endpoint, EndpointConfig, IdlePolicy, Server,
    ServerHandle, join_all,
};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::netns::skip;
use erpc_test_tools::process::Process;
use erpc_tests::lab::{LabService, client, loopback};
use erpc_tests::proto::{LocalLabClient, NapRequest};

/// Whether a call has failed because its server drains. Either the server has refused the call, or
/// it has refused a session for a further attempt, because the channel has no other server.
fn is_refused(error: &CallError) -> bool {
    let cause = match error {
        CallError::NotExecuted(cause) => *cause,
        CallError::NoServer(why) => why.cause(),
        _ => return false,
    };
    [Cause::PeerDraining, Cause::Connect(ConnectError::Draining)].contains(&cause)
}

#[track_caller]
fn assert_refused<R: std::fmt::Debug>(result: Result<R, CallError>) {
    assert!(result.as_ref().is_err_and(is_refused), "{result:?}");
}

fn start(workers: usize) -> ServerHandle {
    let server = Server::builder().add_service(LabService::default()).udp(loopback());
    let server = server.threads(2).workers(workers).idle(IdlePolicy::Sleep);
    server.spawn("127.0.0.1:0").expect("the server starts")
}

/// Whether nothing uses the address. Waits up to a second: if another test starts a process, it has
/// copies of all sockets of this process until it runs its program.
fn is_free(address: SocketAddr) -> bool {
    let begun = Instant::now();
    loop {
        match UdpSocket::bind(address) {
            Ok(_) => return true,
            Err(_) if begun.elapsed() < secs(1) => thread::sleep(millis(1)),
            Err(_) => return false,
        }
    }
}

fn nap(ms: u32) -> NapRequest {
    NapRequest { millis: ms }
}

/// Runs the loop for 50 ms, so that the call is sent and executes.
fn begin<C: Future>(endpoint: &Endpoint, call: C) -> std::pin::Pin<Box<C>> {
    let call = Box::pin(call);
    endpoint.run_for(millis(50));
    call
}

#[test]
fn a_drain_waits_for_workers_and_frees_the_port() {
    within(secs(30), || {
        let server = start(2);
        let address = server.local_addr();
        let endpoint = client(EndpointConfig::new());
        let lab = LocalLabClient::connect(&endpoint, address).expect("the server answers");
        let call = begin(&endpoint, lab.nap(nap(400)));
        let (begun, drain) = (Instant::now(), thread::spawn(move || server.drain(secs(10))));
        assert!(endpoint.block_on(call).is_ok());
        endpoint.run_until(|| drain.is_finished());
        assert_eq!(drain.join().expect("no panic"), 0);
        assert!(begun.elapsed() < secs(5), "the drain took {:?}", begun.elapsed());
        assert!(is_free(address));
        assert_refused(endpoint.block_on(lab.nap(nap(0))));
    });
}

#[test]
fn at_the_deadline_running_calls_are_told_and_waiting_calls_are_refused() {
    within(secs(30), || {
        let server = start(1);
        let address = server.local_addr();
        let endpoint = client(EndpointConfig::new());
        let lab = LocalLabClient::connect(&endpoint, address).expect("the server answers");
        let calls = begin(&endpoint, join_all((0..3).map(|_| lab.nap(nap(3_000)))));
        let (begun, drain) = (Instant::now(), thread::spawn(move || server.drain(millis(300))));
        let results = endpoint.block_on(calls);
        let codes: Vec<_> = results.iter().map(|result| result.as_ref().map(|_| ())).collect();
        let told = |error: &CallError| matches!(error, CallError::Status(status) if status.code() == Code::Unavailable);
        let is_told = codes.iter().filter(|result| result.is_err_and(told)).count();
        assert_eq!(is_told, 1, "one call runs: {codes:?}");
        let refused = codes.iter().filter(|result| result.is_err_and(is_refused)).count();
        assert_eq!(refused, 2, "two calls wait for the worker: {codes:?}");
        endpoint.run_until(|| drain.is_finished());
        assert_eq!(drain.join().expect("no panic"), 3);
        let time = begun.elapsed();
        assert!((millis(300)..secs(2)).contains(&time), "the drain took {time:?}");
        assert!(is_free(address));
    });
}

#[test]
fn a_future_that_another_thread_completes_ends_the_server() {
    within(secs(30), || {
        let state = Arc::new(Mutex::new((false, None::<Waker>)));
        let ends = Arc::clone(&state);
        let end = poll_fn(move |cx| {
            let mut state = ends.lock().expect("no panic");
            state.1 = Some(cx.waker().clone());
            if state.0 { Poll::Ready(()) } else { Poll::Pending }
        });
        let server = start(1);
        let address = server.local_addr();
        let waiting = thread::spawn(move || server.wait_with_shutdown(end, secs(10)));
        let endpoint = client(EndpointConfig::new());
        let lab = LocalLabClient::connect(&endpoint, address).expect("the server answers");
        let call = begin(&endpoint, lab.nap(nap(200)));
        assert!(!waiting.is_finished());
        let waker = {
            let mut state = state.lock().expect("no panic");
            state.0 = true;
            state.1.take()
        };
        waker.expect("the future was polled").wake();
        assert!(endpoint.block_on(call).is_ok());
        endpoint.run_until(|| waiting.is_finished());
        assert!(waiting.join().expect("no panic").is_ok());
        assert!(is_free(address));
    });
}

/// An address that nothing uses now.
fn free_address() -> SocketAddr {
    let socket = UdpSocket::bind("127.0.0.1:0").expect("a free port");
    socket.local_addr().expect("a bound socket")
}

/// Connects to a server process as soon as it listens. The caller limits the time.
fn connect(endpoint: &Endpoint, address: SocketAddr) -> LocalLabClient {
    loop {
        if let Ok(lab) = LocalLabClient::connect(endpoint, address) {
            return lab;
        }
    }
}

/// Connects to the server, begins a call, and lets `end` signal the server. Checks that first the
/// call and then the server ends without an error.
fn end_by_signal(mut server: Process, address: SocketAddr, end: impl FnOnce(&Process)) {
    let endpoint = client(EndpointConfig::new().connect_timeout(secs(10)));
    let lab = connect(&endpoint, address);
    let call = begin(&endpoint, lab.nap(nap(500)));
    let begun = Instant::now();
    end(&server);
    assert!(endpoint.block_on(call).is_ok());
    assert_refused(endpoint.block_on(lab.nap(nap(0))));
    endpoint.run_for(millis(50));
    assert_eq!(server.ended(), (vec!["ENDED".to_owned()], Some(0)));
    assert!(begun.elapsed() < secs(5), "the server ended after {:?}", begun.elapsed());
    assert!(is_free(address));
}

const SERVER: &str = env!("CARGO_BIN_EXE_signal_server");

#[test]
fn sigterm_and_sigint_end_a_server_gracefully() {
    within(secs(60), || {
        for end in [Process::terminate, Process::interrupt] {
            let address = free_address();
            let server = Process::start("server", SERVER, &[&address.to_string(), "10000"]);
            let _process = server.expect("PROCESS");
            end_by_signal(server, address, end);
        }
    });
}

#[test]
fn process_1_of_a_container_ends_gracefully_with_sigterm() {
    within(secs(60), || {
        let arguments = ["--pid", "--fork", "--kill-child", "true"];
        let probe = std::process::Command::new("unshare").args(arguments).output();
        match probe {
            Ok(output) if output.status.success() => {}
            Ok(output) => {
                let reason = String::from_utf8_lossy(&output.stderr).into_owned();
                return skip("process_1_of_a_container_ends_gracefully_with_sigterm", &reason);
            }
            Err(error) => {
                let reason = format!("unshare: {error}");
                return skip("process_1_of_a_container_ends_gracefully_with_sigterm", &reason);
            }
        }
        let address = free_address();
        let text = address.to_string();
        // LeakSanitizer cannot stop the threads of a process 1, and reports false leaks.
        let without_leaks = "ASAN_OPTIONS=detect_leaks=0";
        let unshare = ["--pid", "--fork", "--kill-child", "env", without_leaks];
        let arguments = [&unshare[..], &[SERVER, &text, "10000"]].concat();
        let server = Process::start("server", "unshare", &arguments);
        assert_eq!(server.expect("PROCESS"), "1");
        end_by_signal(server, address, Process::terminate_child);
    });
}

#[test]
fn a_second_signal_ends_a_server_immediately() {
    within(secs(60), || {
        let address = free_address();
        let mut server = Process::start("server", SERVER, &[&address.to_string(), "10000"]);
        let _process = server.expect("PROCESS");
        let endpoint = client(EndpointConfig::new().connect_timeout(secs(10)));
        let lab = connect(&endpoint, address);
        let call = begin(&endpoint, lab.nap(nap(8_000)));
        let begun = Instant::now();
        server.terminate();
        // Once the server refuses a call, it drains.
        while endpoint.block_on(lab.nap(nap(0))).is_ok() {}
        server.terminate();
        assert_eq!(server.ended(), (Vec::new(), Some(128 + 15)));
        assert!(begun.elapsed() < secs(5), "the server ended after {:?}", begun.elapsed());
        drop(call);
    });
}
