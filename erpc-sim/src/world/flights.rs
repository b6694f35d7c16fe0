//! Checks how many packets a client sends before it receives an answer.

use std::collections::{BTreeMap, BTreeSet};

use erpc_core::protocol::{MAX_RTO, MAX_SLOTS};
use erpc_core::time::Instant;
use erpc_core::wire::{Header, Kind};

use crate::SimRoute;

/// A session that has sent nothing for this long, in ns, starts again with its first credits. The
/// client itself counts two RTOs without backoff as a pause. This time is longer.
const PAUSE: u64 = MAX_RTO / 2;

/// The most response packets that one request for response may ask for.
const MOST_PULLED: u32 = 64;

/// A client's session with a server: the client, the server, and the server's id of the session.
type Session = (SimRoute, SimRoute, u64);

/// The largest number of slots. Two requests of a session that have the same remainder are of the
/// same slot, whatever the session's number of slots.
const SLOTS: usize = MAX_SLOTS;

/// What a slot has sent for its current request.
#[derive(Clone, Copy, Default)]
struct SlotSent {
    request: u32,
    /// Number of packets of the request that were sent, and of the response that were asked for,
    /// at least once.
    packets: u32,
    pulled: u32,
}

impl SlotSent {
    /// Notes that packets of `request` below number `end` have been sent or asked for. Returns the
    /// number of the first one that is not a copy of an earlier packet.
    fn first_new(&mut self, request: u32, is_pull: bool, end: u32) -> u32 {
        if self.request != request {
            *self = Self { request, ..Self::default() };
        }
        let sent = if is_pull { &mut self.pulled } else { &mut self.packets };
        let before = *sent;
        *sent = before.max(end);
        before
    }
}

/// The packets that a session has sent since it was idle.
struct Flight {
    /// Time of the last sent packet, by the client's clock.
    last: Option<Instant>,
    slots: [SlotSent; SLOTS],
    /// Packets that were sent or asked for since a pause, except copies of packets from before the
    /// pause: request number, packet number, and whether the packet belongs to the response. `None`
    /// after an answer.
    unanswered: Option<BTreeSet<(u32, u32, bool)>>,
}

impl Flight {
    const NONE: Self = Self {
        last: None,
        slots: [SlotSent { request: 0, packets: 0, pulled: 0 }; SLOTS],
        unanswered: None,
    };
}

/// The sessions of all clients.
#[derive(Default)]
pub(super) struct Flights(BTreeMap<Session, Flight>);

impl Flights {
    /// Notes a packet that a client sends at `now`, by its clock. `credits` are the session's first
    /// credits. Returns the broken rule, if any.
    pub(super) fn sent(
        &mut self,
        session: Session,
        header: &Header,
        credits: u16,
        now: Instant,
    ) -> Option<String> {
        let (number, packet) = (header.request.to_u32(), header.packet.get());
        let packets = match header.kind {
            Kind::Request => 1,
            Kind::RequestForResponse => header.size,
            _ => return None,
        };
        if packets > MOST_PULLED {
            return Some(format!("asks for {packets} packets with one request for response"));
        }
        let flight = self.0.entry(session).or_insert(Flight::NONE);
        if flight.last.replace(now).is_some_and(|last| now.nanos_since(last) > PAUSE) {
            flight.unanswered = Some(BTreeSet::new());
        }
        let is_pull = header.kind == Kind::RequestForResponse;
        let end = packet.saturating_add(packets);
        let slot = flight.slots.get_mut(number as usize % SLOTS)?;
        let first_new = slot.first_new(number, is_pull, end);
        let unanswered = flight.unanswered.as_mut()?;
        unanswered.extend((packet.max(first_new)..end).map(|at| (number, at, is_pull)));
        let count = unanswered.len();
        (count > usize::from(credits))
            .then(|| format!("has {count} packets in flight after a pause"))
    }

    /// Notes that a packet from the server reached the client.
    pub(super) fn answered(&mut self, from: SimRoute, to: SimRoute) {
        let first = (to, from, 0);
        let last = (to, from, u64::MAX);
        for (_, flight) in self.0.range_mut(first..=last) {
            flight.unanswered = None;
        }
    }
}

#[cfg(test)]
mod tests {
    use erpc_core::wire::{ConnectionId, Flags, PacketNumber, RequestNumber};

    use super::*;

    const CLIENT: SimRoute = SimRoute::new(1, 1);
    const SERVER: SimRoute = SimRoute::new(0, 1);
    const SESSION: Session = (CLIENT, SERVER, 7);

    fn at(nanos: u64) -> Instant {
        Instant::from_nanos(1_000 + nanos)
    }

    /// Sends a packet at `nanos`. Returns the broken rule, if any. A session has 2 credits at
    /// first.
    fn sent(
        flights: &mut Flights,
        nanos: u64,
        kind: Kind,
        packet: u32,
        size: u32,
    ) -> Option<String> {
        let header = Header {
            connection: ConnectionId::new(0, true, 0, 7),
            kind,
            packet: PacketNumber::new(packet),
            request: RequestNumber::from_u32(9),
            aux: 0,
            size,
            flags: Flags::NONE,
        };
        flights.sent(SESSION, &header, 2, at(nanos))
    }

    #[test]
    fn after_a_pause_a_session_sends_no_more_than_its_first_credits() {
        let mut flights = Flights::default();
        for packet in 0..9 {
            assert_eq!(sent(&mut flights, 0, Kind::Request, packet, 99), None, "no pause yet");
        }
        let after = PAUSE + 1;
        for packet in 0..9 {
            assert_eq!(sent(&mut flights, after, Kind::Request, packet, 99), None, "a copy");
        }
        assert_eq!(sent(&mut flights, after, Kind::Request, 9, 99), None);
        assert_eq!(sent(&mut flights, after, Kind::Request, 10, 99), None);
        assert_eq!(sent(&mut flights, after, Kind::Request, 10, 99), None, "a retransmission");
        assert!(sent(&mut flights, after, Kind::Request, 11, 99).is_some());
    }

    #[test]
    fn an_answer_ends_the_count_of_packets() {
        let mut flights = Flights::default();
        sent(&mut flights, 0, Kind::Request, 0, 99);
        sent(&mut flights, PAUSE + 1, Kind::Request, 0, 99);
        flights.answered(SERVER, CLIENT);
        assert_eq!(sent(&mut flights, PAUSE + 2, Kind::RequestForResponse, 1, 64), None);
    }

    #[test]
    fn response_packets_that_a_client_asks_for_count() {
        let mut flights = Flights::default();
        sent(&mut flights, 0, Kind::Request, 0, 99);
        assert!(sent(&mut flights, PAUSE + 1, Kind::RequestForResponse, 1, 3).is_some());
    }

    #[test]
    fn a_request_for_response_asks_for_64_packets_at_most() {
        let mut flights = Flights::default();
        assert_eq!(sent(&mut flights, 0, Kind::RequestForResponse, 1, 64), None);
        assert!(sent(&mut flights, 0, Kind::RequestForResponse, 1, 65).is_some());
    }
}
