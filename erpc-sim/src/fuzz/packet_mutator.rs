//! Incorrect packets of a hostile peer: earlier packets again, unchanged or with changed bytes;
//! packets with any fields; any bytes.

use std::collections::VecDeque;

use erpc_core::wire::control::{Control, Refusal};
use erpc_core::wire::{ConnectionId, Kind, ReplyInfo};

use super::harness;
use super::input::Input;
use crate::SimRoute;
use crate::hostile::craft::{self, Craft};

/// The most packets that are remembered.
const REMEMBERED: usize = 16;

/// An address at which no attacker receives.
pub(super) const STRANGER: SimRoute = SimRoute::new(3, 3);

const KINDS: [Kind; 8] = [
    Kind::Request,
    Kind::Response,
    Kind::Failure,
    Kind::CreditReturn,
    Kind::RequestForResponse,
    Kind::Accepted,
    Kind::Done,
    Kind::Control,
];

/// Makes packets, and remembers the packets that were sent.
#[derive(Default)]
pub(super) struct PacketMutator {
    /// The last packets that were sent, the oldest first, with their source addresses.
    past: VecDeque<(SimRoute, Vec<u8>)>,
    /// Bodies of packets were changed, so messages may differ from `PATTERN`.
    pub(super) has_changed_bodies: bool,
}

impl PacketMutator {
    /// Remembers a packet. Reuses the buffer of the packet that it replaces.
    pub(super) fn note(&mut self, from: SimRoute, packet: &[u8]) {
        let oldest = if self.past.len() == REMEMBERED { self.past.pop_front() } else { None };
        let (_, mut copy) = oldest.unwrap_or((from, Vec::new()));
        copy.clear();
        copy.extend_from_slice(packet);
        self.past.push_back((from, copy));
    }

    /// Writes an earlier packet to `out`. Returns the source address to send it from: the earlier
    /// address, or [`STRANGER`].
    pub(super) fn again(&self, input: &mut Input<'_>, out: &mut Vec<u8>) -> Option<SimRoute> {
        let at = usize::from(input.u8());
        let (from, packet) = self.past.get(at % REMEMBERED)?;
        out.clone_from(packet);
        Some(if at & 0x80 == 0 { *from } else { STRANGER })
    }

    /// Writes an earlier packet with some changed bytes, sealed again: an attacker can compute
    /// checksums.
    pub(super) fn changed(&mut self, input: &mut Input<'_>, out: &mut Vec<u8>) -> Option<SimRoute> {
        let (from, packet) = self.past.get(usize::from(input.u8()) % REMEMBERED)?;
        out.clone_from(packet);
        for _ in 0..=input.u8() % 4 {
            let (place, change) = (usize::from(input.u8()), input.u8());
            if let Some(byte) = out.get_mut(place) {
                *byte ^= change;
            }
        }
        craft::seal_again(out);
        self.has_changed_bodies = true;
        Some(*from)
    }

    /// Writes any control message. `to` is the endpoint's id of a session, `own` the attacker's id.
    /// The message names `to`, `own` or an unknown id as the sender, and is usually addressed to
    /// `to`.
    pub(super) fn any_control(
        &mut self,
        input: &mut Input<'_>,
        [to, own]: [ConnectionId; 2],
        out: &mut Vec<u8>,
    ) {
        let nobody = ConnectionId::from_u64(0x0BAD_0BAD_0000_0100);
        let sender = input.pick(&[own, to, nobody]);
        let to = match input.u8() {
            0..=199 => to,
            200..=219 => ConnectionId::endpoint(0),
            220..=239 => own,
            _ => ConnectionId::new(0, input.u8() & 1 != 0, input.u32(), input.u32()),
        };
        let message = match input.u8() % 16 {
            0 => Control::Ping { sender },
            1 => Control::Pong,
            2 => Control::Closed,
            3 => Control::Challenge {
                cookie: [1; 16],
                port: u16::from(input.u8()),
                steer: input.u8(),
                proof: 1_472,
            },
            4 => Control::Opened { server: sender, parameters: harness::terms(input) },
            5 => Control::Refused { reason: Refusal::Full, low: 1, high: 1 },
            6 => Control::Hello { client: sender, low: 1, high: u16::from(input.u8()) },
            7 => {
                let parameters = harness::terms(input);
                Control::Open { client: sender, cookie: [2; 16], parameters }
            }
            8 => Control::Reset { unknown: sender },
            9 => Control::Close { sender },
            10 => Control::Probe,
            11 => Control::Probed,
            12 => Control::Resize { max_datagram: input.near(1_472) },
            13 => Control::Resized,
            14 => Control::GoAway { sender },
            _ => Control::Moved { server: sender },
        };
        let info = ReplyInfo::from_u32(input.near(0));
        out.clear();
        out.extend_from_slice(message.emit(to, 0, info).as_bytes());
    }

    /// Writes a packet of any kind with any fields, to one of three ids.
    pub(super) fn any_packet(
        &mut self,
        input: &mut Input<'_>,
        ids: [ConnectionId; 3],
        request: u32,
        out: &mut Vec<u8>,
    ) {
        let mut craft = Craft {
            connection: input.pick(&ids),
            kind: input.pick(&KINDS),
            packet: input.u32(),
            request: input.near(request),
            aux: input.u32(),
            size: input.u32(),
            trailer: false,
            extended: false,
            large: false,
        };
        let flags = input.u8();
        (craft.trailer, craft.extended, craft.large) =
            (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
        let len = usize::from(input.u8());
        out.clear();
        craft.append(input.take(len), out);
        self.has_changed_bodies = true;
    }

    /// Writes bytes that need not be a packet. Returns their source address, one of `senders`.
    pub(super) fn any_bytes(
        &mut self,
        input: &mut Input<'_>,
        senders: &[SimRoute],
        out: &mut Vec<u8>,
    ) -> SimRoute {
        let from = input.pick(senders);
        let len = usize::from(input.u8());
        out.clear();
        out.extend_from_slice(input.take(len));
        self.has_changed_bodies = true;
        from
    }
}
