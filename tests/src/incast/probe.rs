//! Measures the latency of packets with probes over plain UDP, outside of erpc.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::scheduling::{Priority, raise_priority};
use erpc_test_tools::limit::millis;

/// Interval between probes.
const EVERY: Duration = millis(1);
/// A probe that has not arrived after this time is lost.
const LOST: Duration = millis(300);

/// A probe that has arrived: when it was sent, and its latency.
#[derive(Clone, Copy, Debug)]
pub(super) struct Trip {
    pub(super) sent: Instant,
    pub(super) took: Duration,
}

/// Sends probes with the current time until `stop`. Sender and receiver are in one process and
/// share the clock.
pub(super) fn send(from: SocketAddr, to: SocketAddr, epoch: Instant, stop: &AtomicBool) {
    raise_priority(Priority::Probe);
    let socket = UdpSocket::bind(from).expect("a socket");
    while !stop.load(Ordering::Relaxed) {
        let nanos = epoch.elapsed().as_nanos() as u64;
        socket.send_to(&nanos.to_le_bytes(), to).expect("a small packet is sent");
        sleep(EVERY);
    }
}

/// Receives probes until `stop`, and then those still in flight.
pub(super) fn receive(at: SocketAddr, epoch: Instant, stop: &AtomicBool) -> Vec<Trip> {
    raise_priority(Priority::Probe);
    let socket = UdpSocket::bind(at).expect("a socket");
    socket.set_read_timeout(Some(LOST)).expect("a limit");
    let mut trips = Vec::new();
    loop {
        let mut bytes = [0; 8];
        match socket.recv(&mut bytes) {
            Ok(_) => {
                let sent = epoch + Duration::from_nanos(u64::from_le_bytes(bytes));
                trips.push(Trip { sent, took: sent.elapsed() });
            }
            Err(_) if stop.load(Ordering::Relaxed) => return trips,
            // No probe was sent yet, or all were lost. The report detects missing trips.
            Err(_) => {}
        }
    }
}
