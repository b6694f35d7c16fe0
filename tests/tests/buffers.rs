//! With default receive buffers (212,992 bytes by the kernel's count, the limit of an unprivileged
//! process), nothing overflows: senders stay within the capacity of receivers.
//!
//! Retransmission timers are far above the delays of threads on a busy machine. So a retransmitted
//! packet was lost, and not just late.

use std::cell::Cell;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::{Arc, Barrier};
use std::thread;

use erpc::raw::DropReason;
use erpc::{Endpoint, EndpointConfig, EndpointStats, Server, ServerHandle, Udp, UdpConfig};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_tests::lab::{LabService, client, loopback, work};
use erpc_tests::proto::*;

const EIGHT_MIB: usize = (8 << 20) - 100;

fn config() -> EndpointConfig {
    EndpointConfig::new()
        .min_rto(millis(500))
        .ping_interval(secs(20))
        .liveness_timeout(secs(60))
        .connect_timeout(secs(20))
}

fn serve(udp: UdpConfig) -> ServerHandle {
    Server::builder()
        .add_service(LabService::default())
        .udp(udp)
        .config(config())
        .spawn("127.0.0.1:0")
        .expect("the server starts")
}

fn connect(endpoint: &Endpoint, server: SocketAddr) -> LocalLabClient {
    LocalLabClient::new(endpoint.connect(server).expect("the server answers"))
}

fn stats(endpoint: &Endpoint) -> EndpointStats {
    endpoint.stats().expect("called outside of the loop")
}

/// Asserts that neither side lost packets.
#[track_caller]
fn nothing_was_lost(client: EndpointStats, server: EndpointStats) {
    for (side, stats) in [("client", client), ("server", server)] {
        assert_eq!(stats.transport.rx_overflow, 0, "the {side}'s buffer overflowed: {stats:?}");
        assert_eq!(stats.transport.tx_dropped, 0, "the {side}'s packets were refused: {stats:?}");
        let again = stats.protocol.retransmissions.packets() + stats.protocol.repeated_responses;
        assert_eq!(again, 0, "the {side} retransmitted packets: {stats:?}");
        // On a busy machine, the client may retransmit a handshake.
        let dropped =
            stats.protocol.dropped_in_all() - stats.protocol.dropped(DropReason::Handshake);
        assert_eq!(dropped, 0, "the {side} dropped packets: {stats:?}");
    }
}

/// Starts `calls` calls together, spread over the sessions, and waits for the replies.
fn all_at_once(endpoint: &Endpoint, labs: &[LocalLabClient], calls: u64, lengths: (usize, usize)) {
    let (there, back) = lengths;
    let done = Rc::new(Cell::new(0));
    for id in 0..calls {
        let (request, expected) = work(id, there, back);
        let done = Rc::clone(&done);
        labs[id as usize % labs.len()].work_with(request, move |reply| {
            let reply = reply.unwrap_or_else(|error| panic!("call {id}: {error}"));
            assert!(reply == expected, "call {id} has a wrong answer");
            done.set(done.get() + 1);
        });
    }
    endpoint.run_until(|| done.get() == calls);
}

#[test]
fn the_receive_buffer_has_the_default_size() {
    let transport = Udp::bind(&loopback()).expect("a socket");
    assert_eq!(transport.recv_buffer(), 212_992);
}

#[test]
fn messages_of_8_mib_overflow_no_buffer() {
    within(secs(60), || {
        for udp in [loopback(), loopback().max_datagram(1_472)] {
            let server = serve(udp.clone());
            let endpoint = Endpoint::udp_with(&udp, config()).expect("a client endpoint");
            let labs =
                [connect(&endpoint, server.local_addr()), connect(&endpoint, server.local_addr())];
            for lengths in [(EIGHT_MIB, 0), (0, EIGHT_MIB), (EIGHT_MIB, EIGHT_MIB)] {
                all_at_once(&endpoint, &labs[..1], 1, lengths);
                all_at_once(&endpoint, &labs, 4, lengths);
            }
            nothing_was_lost(stats(&endpoint), server.stats());
        }
    });
}

#[test]
fn a_thousand_sessions_of_one_endpoint_overflow_no_buffer() {
    within(secs(60), || {
        let server = serve(loopback());
        let endpoint = client(config());
        let labs: Vec<_> = (0..1_000).map(|_| connect(&endpoint, server.local_addr())).collect();
        assert_eq!(server.stats().server_sessions, 1_000);
        for lengths in [(32, 32), (0, 900), (900, 0), (3_000, 5_000)] {
            all_at_once(&endpoint, &labs, 8_000, lengths);
        }
        nothing_was_lost(stats(&endpoint), server.stats());
    });
}

/// Runs `load` on `clients` endpoints, each on its own thread and with `sessions` sessions.
fn from_several_endpoints(
    udp: &UdpConfig,
    clients: usize,
    sessions: usize,
    load: impl Fn(&Endpoint, &[LocalLabClient]) + Send + Sync + 'static,
) {
    let server = serve(udp.clone());
    let (address, load) = (server.local_addr(), Arc::new(load));
    // All clients start together, and none ends before the server's counters are read.
    let together = Arc::new(Barrier::new(clients + 1));
    let threads: Vec<_> = (0..clients)
        .map(|_| {
            let (udp, load, together) = (udp.clone(), Arc::clone(&load), Arc::clone(&together));
            thread::spawn(move || {
                let endpoint = Endpoint::udp_with(&udp, config()).expect("a client endpoint");
                let labs: Vec<_> = (0..sessions).map(|_| connect(&endpoint, address)).collect();
                together.wait();
                // Each client that joined made the shares of the other clients smaller. Here every
                // client learns its final share.
                endpoint.run_for(millis(100));
                load(&endpoint, &labs);
                let stats = stats(&endpoint);
                together.wait();
                together.wait();
                stats
            })
        })
        .collect();
    together.wait();
    together.wait();
    let at_server = server.stats();
    together.wait();
    for thread in threads {
        let client = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        nothing_was_lost(client, at_server);
    }
}

#[test]
fn a_thousand_sessions_of_eight_endpoints_overflow_no_buffer() {
    within(secs(60), || {
        from_several_endpoints(&loopback(), 8, 125, |endpoint, labs| {
            all_at_once(endpoint, labs, 1_000, (32, 32));
            all_at_once(endpoint, labs, 1_000, (900, 900));
        });
    });
}

#[test]
fn large_messages_of_eight_endpoints_overflow_no_buffer() {
    within(secs(60), || {
        for udp in [loopback().max_datagram(1_472), loopback()] {
            from_several_endpoints(&udp, 8, 2, |endpoint, labs| {
                all_at_once(endpoint, labs, 4, (1 << 20, 0));
                all_at_once(endpoint, labs, 4, (0, 1 << 20));
                all_at_once(endpoint, labs, 4, (1 << 20, 1 << 20));
            });
        }
    });
}
