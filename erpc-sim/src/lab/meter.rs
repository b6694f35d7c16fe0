//! Measurements on the hosts' cables.

use std::collections::BTreeMap;

use erpc_core::time::Instant;
use erpc_core::wire::{ANNOUNCEMENT, HEADER_LEN, Header, Kind, Stamp};

use super::Samples;
use crate::SimRoute;
use crate::net::Packet;

/// The largest number of slots. Two requests of a session that have the same remainder are of the
/// same slot, whatever the session's number of slots.
const SLOTS: usize = erpc_core::protocol::MAX_SLOTS;

/// Reception progress of the messages of a session in one direction.
#[derive(Clone, Copy)]
struct Progress {
    /// By slot: the latest request, and its next expected packet.
    slots: [(u32, u32); SLOTS],
}

impl Progress {
    const NONE: Self = Self { slots: [(0, 0); SLOTS] };

    /// Whether the receiver can use the packet: it is the next one of its message.
    fn takes(&mut self, request: u32, packet: u32) -> bool {
        let (current, next) = &mut self.slots[request as usize % SLOTS];
        if request.wrapping_sub(*current) as i32 > 0 {
            (*current, *next) = (request, 0);
        }
        let takes = *current == request && *next == packet;
        *next += u32::from(takes);
        takes
    }
}

/// Inspects every packet that arrives at a host.
///
/// All hosts share one clock here. The echoed stamp of an answer, subtracted from the time of the
/// answer's arrival, is therefore the true round trip of the stamped packet: from the turn that
/// sent it until its answer reaches the interface.
#[derive(Default)]
pub struct Meter {
    /// Reception progress by receiver, connection and direction (`true` for requests).
    progress: BTreeMap<(SimRoute, u64, bool), Progress>,
    /// The last stamp that a response echoed, by receiver and connection. Packets that were
    /// requested together carry the same stamp. Each of them except the first has waited for the
    /// packets before it, so only the first one gives a round trip.
    echoes: BTreeMap<(SimRoute, u64), u32>,
    /// Bytes of messages that arrived in order, by sending endpoint.
    delivered: Vec<u64>,
    rtts: Samples,
}

impl Meter {
    /// Records a packet from endpoint `from` that arrived at a host.
    pub(super) fn look_at(&mut self, now: Instant, from: usize, packet: &Packet) {
        let Ok(header) = Header::parse(&packet.bytes) else { return };
        let connection = header.connection.to_u64();
        let number = header.packet.get();
        let echo = match header.kind {
            Kind::Request => Stamp::NONE,
            Kind::Response if matches!(number, 0 | ANNOUNCEMENT) => Stamp::NONE,
            Kind::CreditReturn | Kind::Response => Stamp::from_u32(header.size),
            _ => return,
        };
        if let Some(nanos) = echo.nanos_until(now)
            && (header.kind == Kind::CreditReturn || self.is_first(packet.to, connection, echo))
        {
            self.rtts.add(nanos);
        }
        if header.kind == Kind::CreditReturn || number == ANNOUNCEMENT {
            return;
        }
        let key = (packet.to, connection, header.kind == Kind::Request);
        if self.progress.entry(key).or_insert(Progress::NONE).takes(header.request.to_u32(), number)
        {
            if self.delivered.len() <= from {
                self.delivered.resize(from + 1, 0);
            }
            self.delivered[from] += (packet.bytes.len() - HEADER_LEN) as u64;
        }
    }

    /// Whether this is the first of several packets that answer one request for response.
    fn is_first(&mut self, to: SimRoute, connection: u64, echo: Stamp) -> bool {
        let last = self.echoes.entry((to, connection)).or_default();
        std::mem::replace(last, echo.to_u32()) != echo.to_u32()
    }

    /// Forgets round trips and byte counts. The progress of messages is kept.
    pub fn clear(&mut self) {
        self.rtts.clear();
        self.delivered.fill(0);
    }

    /// Bytes of messages from endpoint `from` that arrived in order, so that their receivers could
    /// use them.
    #[must_use]
    pub fn delivered(&self, from: usize) -> u64 {
        self.delivered.get(from).copied().unwrap_or(0)
    }

    /// The round trips of stamped packets.
    pub fn rtts(&mut self) -> &mut Samples {
        &mut self.rtts
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_next_packet_of_the_latest_request_of_a_slot_counts() {
        let mut progress = Progress::NONE;
        let next = 9 + SLOTS as u32;
        let taken = [(9, 0), (9, 2), (9, 1), (9, 1), (10, 0), (9, 2), (next, 0), (9, 3), (next, 1)]
            .map(|(request, packet)| progress.takes(request, packet));
        assert_eq!(taken, [true, false, true, false, true, true, true, false, true]);
    }
}
