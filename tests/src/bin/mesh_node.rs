//! One process of a mesh. Each of its endpoints is a server, and a client of all endpoints of the
//! mesh, itself included.
//!
//! Steps of `mesh_node ENDPOINTS SECONDS`:
//!
//! 1. The process prints `ENDPOINT address` for each of its endpoints.
//! 2. The process reads a line with the addresses of all endpoints of the mesh.
//! 3. Each endpoint calls all endpoints of the mesh for `SECONDS`. When all calls have ended, the
//!    process prints `DONE calls`, with the sum over its endpoints.
//! 4. The process reads a line, and its endpoints disconnect.
//! 5. Each endpoint waits until its clients have disconnected, too. The process prints `GONE` and
//!    counters for each endpoint.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use erpc::raw::PoolStats;
use erpc::{Endpoint, EndpointConfig, EndpointStats, Handle, join_all};
use erpc_test_tools::limit::{millis, secs};
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::{LabService, client, work};
use erpc_tests::load::{Lengths, lengths_of};
use erpc_tests::proto::LocalLabClient;

/// Calls in flight per session: the window of 8 and two that wait.
const OUTSTANDING: usize = 10;

/// Commands of the test, from the main thread to the endpoints.
#[derive(Default)]
struct Orders {
    peers: OnceLock<Vec<SocketAddr>>,
    disconnect: OnceLock<()>,
}

enum Report {
    Listening(SocketAddr, Handle),
    Done(u64),
    Gone(Box<EndpointStats>),
}

fn main() {
    let arguments: Vec<u64> =
        std::env::args().skip(1).map(|number| number.parse().expect("a number")).collect();
    let [endpoints, seconds] = arguments[..] else { panic!("usage: mesh_node ENDPOINTS SECONDS") };
    let orders = Arc::new(Orders::default());
    let (send, reports) = channel();
    for _ in 0..endpoints {
        let (orders, send) = (Arc::clone(&orders), send.clone());
        thread::spawn(move || take_part(&orders, secs(seconds), &send));
    }
    // Only the threads hold senders now, so `next` fails when all of them have ended.
    drop(send);

    let handles: Vec<Handle> = (0..endpoints)
        .map(|_| match next(&reports) {
            Report::Listening(address, handle) => {
                println!("ENDPOINT {address}");
                handle
            }
            _ => panic!("an endpoint is ahead of the others"),
        })
        .collect();
    let line = read_line();
    let peers =
        line.split_whitespace().map(|address| address.parse().expect("an address")).collect();
    orders.peers.set(peers).expect("peers are set once");
    handles.iter().for_each(Handle::wake);

    let mut calls = 0;
    for _ in 0..endpoints {
        let Report::Done(more) = next(&reports) else {
            panic!("an endpoint is ahead of the others")
        };
        calls += more;
    }
    println!("DONE {calls}");
    read_line();
    orders.disconnect.set(()).expect("disconnect is set once");
    handles.iter().for_each(Handle::wake);
    for _ in 0..endpoints {
        let Report::Gone(stats) = next(&reports) else {
            panic!("an endpoint is ahead of the others")
        };
        println!(
            "GONE {} retransmitted, {} dropped, {} overflows",
            stats.protocol.retransmissions.packets() + stats.protocol.repeated_responses,
            stats.protocol.dropped_in_all(),
            stats.transport.rx_overflow
        );
    }
    end_with_input();
    loop {
        thread::park();
    }
}

fn next(reports: &Receiver<Report>) -> Report {
    reports.recv().unwrap_or_else(|_| std::process::exit(1))
}

/// The next line from the test. Ends the process if the test has ended.
fn read_line() -> String {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(1..) => line,
        _ => std::process::exit(0),
    }
}

/// Ends the process if this thread panics, because the main thread does not join threads.
struct ExitOnPanic;

impl Drop for ExitOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::exit(1);
        }
    }
}

fn pool(endpoint: &Endpoint) -> PoolStats {
    endpoint.stats().expect("called outside of the loop").pool
}

/// Runs an endpoint through all steps.
fn take_part(orders: &Orders, time: Duration, report: &Sender<Report>) {
    static IDS: AtomicU64 = AtomicU64::new(0);
    let _guard = ExitOnPanic;
    let send = |what| report.send(what).expect("the main thread receives reports");
    let endpoint = client(EndpointConfig::new());
    endpoint.listen();
    assert!(endpoint.serve(LabService::default().routes(), None));
    let at_start = pool(&endpoint);
    send(Report::Listening(
        endpoint.local_route().expect("called outside of the loop").socket_addr(),
        endpoint.handle(),
    ));

    endpoint.run_until(|| orders.peers.get().is_some());
    let peers = orders.peers.get().expect("`run_until` waited for the peers");
    let connect = |peer| endpoint.connect(peer).unwrap_or_else(|error| panic!("{peer}: {error}"));
    let sessions: Vec<_> = peers.iter().copied().map(connect).collect();
    let labs: Vec<_> = sessions.iter().cloned().map(LocalLabClient::new).collect();
    let calls = Rc::new(Cell::new(0));
    let end = Instant::now() + time;
    let tasks = labs.iter().flat_map(|lab| std::iter::repeat_n(lab, OUTSTANDING)).map(|lab| {
        let (lab, calls) = (lab.clone(), Rc::clone(&calls));
        endpoint.spawn(async move {
            while Instant::now() < end {
                let id = IDS.fetch_add(1, Ordering::Relaxed);
                let (there, back) = lengths_of(LENGTHS, id);
                let (request, expected) = work(id, there, back);
                let reply =
                    lab.work(request).await.unwrap_or_else(|error| panic!("call {id}: {error}"));
                assert!(reply == expected, "call {id} has a wrong answer");
                calls.set(calls.get() + 1);
            }
        })
    });
    let all = join_all(tasks.collect::<Vec<_>>());
    endpoint.block_on(all);
    send(Report::Done(calls.get()));

    // Other endpoints may still call this one, so it serves until the order to disconnect.
    endpoint.run_until(|| orders.disconnect.get().is_some());
    let gone: Vec<_> = sessions.iter().map(erpc::Session::disconnect).collect();
    endpoint.block_on(join_all(gone));
    drop((labs, sessions));
    let patience = Instant::now() + secs(10);
    let stats = || endpoint.stats().expect("called outside of the loop");
    while stats().server_sessions > 0 && Instant::now() < patience {
        endpoint.run_for(millis(10));
    }
    let left = stats();
    assert_eq!((left.client_sessions, left.server_sessions), (0, 0), "open sessions: {left:?}");
    assert_eq!(
        (left.pool.in_use, left.pool.in_use_bytes),
        (at_start.in_use, at_start.in_use_bytes),
        "leaked msgbufs: {left:?}"
    );
    assert_eq!(left.protocol.failures, 0, "{left:?}");
    send(Report::Gone(Box::new(left)));
}

/// Most messages fit one packet, some need many.
const LENGTHS: Lengths = &[(180, 300), (19, 20_000), (1, 400_000)];
