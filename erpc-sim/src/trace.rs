//! The lines that `--packets` prints, in order of time: packets, lost packets with the reason, and
//! events.

use std::fmt;
use std::time::Duration;

use erpc_core::protocol::{DropReason, ProtocolStats};
use erpc_core::stream::StreamOp;
use erpc_core::time::Instant;
use erpc_core::transport::fault::{Fate, FaultCounts};
use erpc_core::wire::control::Control;
use erpc_core::wire::extension::Extension;
use erpc_core::wire::{HEADER_LEN, Header, Kind};

use crate::hostile::craft::read_control;
use crate::net::Packet;
use crate::party::{call_of, stream_of};
use crate::{Feature, Features, SimRoute};

/// Sender, receiver and connection id, as they begin a packet's line.
#[derive(Clone, Copy)]
pub(crate) struct Ends {
    from: SimRoute,
    to: SimRoute,
    id: u64,
}

impl fmt::Display for Ends {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} -> {} id {:x}", self.from, self.to, self.id)
    }
}

/// The beginning of the lines of all packets from `from` to `to` with this connection id.
pub(crate) fn ends(from: SimRoute, to: SimRoute, id: u64) -> Ends {
    Ends { from, to, id }
}

/// The session of a packet, as the place of a violation.
pub(crate) fn session(from: SimRoute, to: SimRoute, header: &Header) -> String {
    format!("session {}", ends(from, to, header.connection.to_u64()))
}

/// Prints an event.
pub(crate) fn event(now: Instant, what: impl fmt::Display) {
    crate::say!("{:>13} {what}", now.as_nanos());
}

/// Prints a packet on one line. `fate` is one word. `why` ends the line.
#[cold]
pub(crate) fn packet(now: Instant, fate: &str, packet: &Packet, why: &str) {
    let Packet { from, to, bytes, .. } = packet;
    let len = bytes.len();
    let line = match Header::parse(bytes) {
        Ok(header) => {
            let ends = ends(*from, *to, header.connection.to_u64());
            format!("{ends} {fate:9} {}, {len} bytes{why}", message(&header, bytes))
        }
        Err(error) => {
            format!("{from} -> {to} {fate:9} no valid header ({error:?}), {len} bytes{why}")
        }
    };
    event(now, line);
}

/// Prints a packet that does not arrive.
#[cold]
pub(crate) fn lost(now: Instant, lost: &Packet, why: &str) {
    packet(now, "lost", lost, &format!(": {why}"));
}

/// Prints the copies of a packet that faults have added, delayed or damaged. If no copy remains,
/// prints that the packet is lost. `before` and `after` are the counts of faults before and after
/// the faults of this packet were drawn.
#[cold]
pub(crate) fn fate(
    now: Instant,
    harmed: &Packet,
    fate: &Fate,
    (before, after): (FaultCounts, FaultCounts),
    features: Features,
) {
    if fate.copies().len() == 0 {
        return lost(now, harmed, &loss(before, after, features));
    }
    for (at, copy) in fate.copies().enumerate() {
        let word = match (copy.damage, at) {
            (Some(_), _) => "damaged",
            (None, 0) if copy.is_intact() => continue,
            (None, 0) => "delayed",
            (None, _) => "repeated",
        };
        let late = match copy.delay {
            Duration::ZERO => String::new(),
            delay => format!(", in {} ns", delay.as_nanos()),
        };
        packet(now, word, harmed, &late);
    }
}

/// Prints how many packets an endpoint has dropped after their delivery, by reason.
#[cold]
pub(crate) fn drops(now: Instant, at: SimRoute, before: &ProtocolStats, after: &ProtocolStats) {
    for reason in DropReason::ALL {
        let count = after.dropped(reason) - before.dropped(reason);
        if count > 0 {
            let packets = if count == 1 { "packet" } else { "packets" };
            event(now, format_args!("{at} drops {count} delivered {packets}: {reason:?}"));
        }
    }
}

/// The features that may have caused the loss of a packet.
fn loss(before: FaultCounts, after: FaultCounts, features: Features) -> String {
    let outages = [Feature::Partitions, Feature::OneWay, Feature::MtuShrink];
    let causes: Vec<_> = match () {
        () if after.dropped > before.dropped => vec![Feature::Loss],
        () if after.burst_dropped > before.burst_dropped => vec![Feature::Bursts],
        () => outages.into_iter().filter(|&feature| features.has(feature)).collect(),
    };
    causes.iter().map(|feature| feature.name()).collect::<Vec<_>>().join(" or ")
}

/// The kind of a packet, and the fields that matter for it.
fn message(header: &Header, bytes: &[u8]) -> String {
    let Header { kind, packet, request, aux, size, flags, .. } = *header;
    let (packet, request) = (packet.get(), request.to_u32());
    if kind == Kind::Control {
        return match read_control(bytes) {
            Some((_, control)) => control_message(&control, request),
            None => format!("Control of type {packet}, malformed, nonce {request}"),
        };
    }
    let call = match kind == Kind::Request && packet == 0 {
        true => call(header, &bytes[HEADER_LEN..], flags.extended()),
        false => String::new(),
    };
    format!("{kind:?} packet {packet} request {request} aux {aux} size {size}{call}")
}

/// The name of a control message, its nonce, and the id or the reason in it.
fn control_message(control: &Control, nonce: u32) -> String {
    let all = format!("{control:?}");
    let name = all.split(' ').next().unwrap_or_default();
    let more = match control {
        Control::Hello { client: own, .. }
        | Control::Open { client: own, .. }
        | Control::Opened { server: own, .. }
        | Control::Ping { sender: own }
        | Control::Close { sender: own }
        | Control::GoAway { sender: own } => format!(", answers get id {:x}", own.to_u64()),
        Control::Reset { unknown: id } => format!(", unknown id {:x}", id.to_u64()),
        Control::Moved { server: id } => format!(", moved id {:x}", id.to_u64()),
        Control::Refused { reason, .. } => format!(", {reason:?}"),
        _ => String::new(),
    };
    format!("Control {name} nonce {nonce}{more}")
}

/// The call of a request, from its first packet.
fn call(header: &Header, payload: &[u8], extended: bool) -> String {
    if extended && let Some(of_stream) = call_of_stream(header.aux, payload) {
        return of_stream;
    }
    match call_of(header.aux, extended, payload) {
        u32::MAX => String::new(),
        id => format!(" (call {id})"),
    }
}

/// The operation in a request's first packet, if the request is a call of a stream.
fn call_of_stream(method: u32, payload: &[u8]) -> Option<String> {
    let id = stream_of(method)?;
    let (extension, frame) = Extension::split(payload).ok()?;
    let word = |at: usize| Some(u32::from_le_bytes(*frame.get(at..)?.first_chunk()?));
    let (number, seq, count) = (word(0)?, word(4)?, word(8)?);
    let asks = [StreamOp::Open, StreamOp::Pull, StreamOp::Push, StreamOp::Close];
    let (end, op) = (extension.op() & 0x80 != 0, extension.op() & 0x7F);
    let ask = asks.into_iter().find(|ask| ask.op(false) == op)?;
    let end = if end { ", the last" } else { "" };
    Some(format!(" ({ask:?} of stream {id}, here {number}; batch {seq} of {count} items{end})"))
}
