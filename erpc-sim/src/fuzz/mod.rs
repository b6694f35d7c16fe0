//! The fuzz targets as functions.
//!
//! The crate in `erpc-sim/fuzz` wraps each target for libFuzzer; `tests/corpora.rs` runs each over
//! its corpus. `erpc-sim/fuzz/README.md` says what they cover and how to run them.
//!
//! A target panics if it finds a bug, and returns otherwise. `header`, `control`, `status`,
//! `extension`, `message`, `stream_frame`, `frame`, `verbs_exchange` and `txn_record` test parsers. [`hostile_client`],
//! [`hostile_server`] and [`hostile_streams`] play a peer against a live endpoint, and [`txn_requests`]
//! one against a participant of the transaction store.

mod client;
mod conversations;
mod frame;
mod harness;
mod input;
mod outbox;
mod packet_mutator;
mod parsers;
mod seeds;
mod server;
mod steps;
mod streams;
mod transactions;
mod verbs;

use std::time::Duration;

use erpc_core::transport::{Capabilities, ChargeModel};

pub use client::hostile_client;
pub use frame::frame;
pub use parsers::{control, extension, header, message, status};
pub use seeds::{Seed, seeds};
pub use server::hostile_server;
pub use streams::{hostile_streams, stream_frame};
pub use transactions::{txn_record, txn_requests};
pub use verbs::verbs_exchange;

/// A target: takes any bytes, and panics if it finds a bug.
pub type Target = fn(&[u8]);

/// Every target with its name, which is also the name of its binary and its corpus.
pub const TARGETS: [(&str, Target); 13] = [
    ("header", header),
    ("control", control),
    ("status", status),
    ("extension", extension),
    ("message", message),
    ("stream_frame", stream_frame),
    ("frame", frame),
    ("verbs_exchange", verbs_exchange),
    ("hostile_client", hostile_client),
    ("hostile_server", hostile_server),
    ("hostile_streams", hostile_streams),
    ("txn_record", txn_record),
    ("txn_requests", txn_requests),
];

/// The largest message of `hostile_client` and `hostile_server`, in bytes. It is larger than the
/// first buffer of an incoming message, so that buffers grow. It is not larger than necessary, so
/// that an execution is cheap.
const MAX_MESSAGE: usize = 40_000;

/// Memory limit of the endpoint under test, in bytes. It is low, so that memory runs out.
const MEMORY: usize = 256 << 10;

/// In `hostile_client` and `hostile_server`, every message is a prefix of this pattern, unless the
/// input changes packet bodies. So these targets detect wrong reassembly.
static PATTERN: [u8; MAX_MESSAGE + 4_096] = {
    let mut bytes = [0; MAX_MESSAGE + 4_096];
    let mut at = 0;
    while at < bytes.len() {
        bytes[at] = (at % MAX_MESSAGE * 167 / 8) as u8;
        at += 1;
    }
    bytes
};

/// A part of a message from `start` on, at most 4,096 bytes.
fn pattern(start: usize, len: usize) -> &'static [u8] {
    let start = start % MAX_MESSAGE;
    &PATTERN[start..start + len.min(4_096)]
}

/// Whether `body` is a prefix of the pattern.
fn is_pattern(body: &[u8]) -> bool {
    PATTERN.starts_with(body)
}

/// A number that depends on every byte of the input (FNV-1a). Keys derive from it, so that a fuzzer
/// that watches comparisons cannot copy a cookie or a connection id that it saw into the next
/// input.
fn seed_of(data: &[u8]) -> u64 {
    let mix = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    data.iter().fold(0xcbf2_9ce4_8422_2325, mix)
}

/// A transport of 1,472-byte datagrams with a receive queue that does not limit senders.
fn capabilities() -> Capabilities {
    Capabilities {
        max_datagram: 1_472,
        burst: 32,
        inline: 0,
        charge: ChargeModel::Ring,
        rx_capacity: 1 << 20,
        min_rto: Duration::from_millis(5),
        rtt_noise: Duration::from_micros(5),
        steer: 0,
        integrity: true,
        bundles: false,
    }
}
