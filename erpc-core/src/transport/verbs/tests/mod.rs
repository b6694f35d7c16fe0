//! Tests of the transport over devices in memory.
//!
//! | module | tests |
//! |---|---|
//! | `sending` | chains, signaling, inline data, ownership of slots and messages |
//! | `receiving` | the ring of buffers, its exhaustion, marks, strangers |
//! | `meeting` | the exchange of addresses, presentations, forged ones, the table of peers |
//! | `errors` | broken queue pairs |

mod errors;
mod meeting;
mod receiving;
mod sending;

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

use super::*;
use crate::buf::{MsgBuf, Pool};
use crate::clock;
use crate::transport::udp::UdpRoute;
use crate::transport::{RxQueue, Transport, TxQueue};
use crate::wire::HeaderWords;

/// A header, whose meaning no transport knows.
pub(super) const WORDS: HeaderWords = HeaderWords { connection: 1, numbers: 2, sizes: 3 };

/// A message of `len` bytes `byte`.
pub(super) fn filled(pool: &mut Pool, byte: u8, len: usize) -> MsgBuf {
    let mut message = pool.alloc(len).expect("the pool has memory");
    message.resize(len);
    message.as_mut_slice().fill(byte);
    message
}

pub(super) type Soft = VerbsTransport<SoftDevice>;

/// Longest time that a test waits for something that must happen.
const PATIENCE: Duration = Duration::from_secs(30);

pub(super) fn config(host: u8) -> VerbsConfig {
    let ip = IpAddr::V4(Ipv4Addr::new(127, 0, 0, host));
    VerbsConfig::new("soft0").interface(ip).sessions(32).credits(8).arena(1 << 20)
}

pub(super) fn open(fabric: &SoftFabric, host: u8) -> Soft {
    Soft::open(fabric, &config(host)).expect("a device in memory opens")
}

/// Runs turns of both endpoints until `is_done`.
pub(super) fn run(
    ends: &mut [&mut Soft],
    what: &str,
    mut is_done: impl FnMut(&mut [&mut Soft]) -> bool,
) {
    let end = clock::now() + PATIENCE;
    while !is_done(ends) {
        assert!(clock::now() < end, "{what} does not happen");
        for transport in ends.iter_mut() {
            transport.split().1.doorbell();
        }
    }
}

/// The datagrams of one burst: their senders and bytes.
pub(super) fn burst(transport: &mut Soft) -> Vec<(UdpRoute, Vec<u8>)> {
    let (rx, _) = transport.split();
    let count = rx.burst();
    (0..count).map(|at| (rx.packet(at).route, rx.packet(at).bytes.to_vec())).collect()
}

/// All datagrams that have arrived.
pub(super) fn drain(transport: &mut Soft) -> Vec<(UdpRoute, Vec<u8>)> {
    let mut all = Vec::new();
    loop {
        let more = burst(transport);
        if more.is_empty() && transport.split().0.is_drained() {
            return all;
        }
        all.extend(more);
    }
}

pub(super) fn send(from: &mut Soft, to: UdpRoute, bytes: &[u8]) {
    let (_, tx) = from.split();
    tx.push_bytes(&to, bytes);
    tx.doorbell();
}

/// Makes the two know each other: each has heard the other.
pub(super) fn introduce(a: &mut Soft, b: &mut Soft) {
    let (to_a, to_b) = (a.local_route(), b.local_route());
    send(a, to_b, b"hello");
    run(&mut [a, b], "an introduction", |ends| {
        burst(ends[0]);
        !burst(ends[1]).is_empty()
    });
    send(b, to_a, b"hello");
    run(&mut [a, b], "an answer", |ends| {
        burst(ends[1]);
        !burst(ends[0]).is_empty()
    });
}
