//! One process of a mesh: endpoints that are each a server and a client of all others.
//!
//! `mesh_node ENDPOINTS SECONDS` says `ENDPOINT address` for each, reads one line with the addresses of
//! all endpoints of the mesh, and calls them for that long, itself included. It says `DONE calls` when its
//! calls have ended, reads a line, disconnects, waits until everybody else has, and says `GONE` and what
//! then is left.

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
use erpc_tests::proto::LabClient;

/// Calls under way per session: the window and two that wait.
const OUTSTANDING: usize = 10;

/// How far the mesh is, as the test says.
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
    // When a thread panics the others go on; the end of all says that something is wrong.
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
    orders.peers.set(peers).expect("set once");
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
    orders.disconnect.set(()).expect("set once");
    handles.iter().for_each(Handle::wake);
    for _ in 0..endpoints {
        let Report::Gone(stats) = next(&reports) else {
            panic!("an endpoint is ahead of the others")
        };
        println!(
            "GONE {} sent again, {} dropped, {} overflows",
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

/// The next line of the test; without one, the test is gone.
fn read_line() -> String {
    let mut line = String::new();
    match std::io::stdin().read_line(&mut line) {
        Ok(1..) => line,
        _ => std::process::exit(0),
    }
}

/// Ends the process if this thread panics: nobody waits for threads one by one.
struct ExitOnPanic;

impl Drop for ExitOnPanic {
    fn drop(&mut self) {
        if thread::panicking() {
            std::process::exit(1);
        }
    }
}

fn pool(endpoint: &Endpoint) -> PoolStats {
    endpoint.stats().expect("outside of the loop").pool
}

/// An endpoint's life.
fn take_part(orders: &Orders, time: Duration, report: &Sender<Report>) {
    static IDS: AtomicU64 = AtomicU64::new(0);
    let _guard = ExitOnPanic;
    let send = |what| report.send(what).expect("the main thread listens");
    let endpoint = client(EndpointConfig::new());
    endpoint.listen();
    assert!(endpoint.serve(LabService::default().routes(), None));
    let at_start = pool(&endpoint);
    send(Report::Listening(
        endpoint.local_route().expect("outside of the loop").socket_addr(),
        endpoint.handle(),
    ));

    endpoint.run_until(|| orders.peers.get().is_some());
    let peers = orders.peers.get().expect("they were waited for");
    let connect = |peer| endpoint.connect(peer).unwrap_or_else(|error| panic!("{peer}: {error}"));
    let sessions: Vec<_> = peers.iter().copied().map(connect).collect();
    let labs: Vec<_> = sessions.iter().cloned().map(LabClient::new).collect();
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
                assert!(reply == expected, "call {id} brings a wrong answer");
                calls.set(calls.get() + 1);
            }
        })
    });
    let all = join_all(tasks.collect::<Vec<_>>());
    endpoint.block_on(all);
    send(Report::Done(calls.get()));

    // Others may still call.
    endpoint.run_until(|| orders.disconnect.get().is_some());
    let gone: Vec<_> = sessions.iter().map(erpc::Session::disconnect).collect();
    endpoint.block_on(join_all(gone));
    drop((labs, sessions));
    let patience = Instant::now() + secs(10);
    let stats = || endpoint.stats().expect("outside of the loop");
    while stats().server_sessions > 0 && Instant::now() < patience {
        endpoint.run_for(millis(10));
    }
    let left = stats();
    assert_eq!((left.client_sessions, left.server_sessions), (0, 0), "sessions are left: {left:?}");
    assert_eq!(
        (left.pool.in_use, left.pool.in_use_bytes),
        (at_start.in_use, at_start.in_use_bytes),
        "msgbufs have leaked: {left:?}"
    );
    assert_eq!(left.protocol.failures, 0, "{left:?}");
    send(Report::Gone(Box::new(left)));
}

/// Now and then some of many packets.
const LENGTHS: Lengths = &[(180, 300), (19, 20_000), (1, 400_000)];
