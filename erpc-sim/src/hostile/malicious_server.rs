//! A server that accepts sessions and lies afterwards.

use erpc_core::time::Instant;
use erpc_core::wire::control::{Control, Parameters};
use erpc_core::wire::{ConnectionId, Kind};

use super::craft::{self, Craft};
use super::{Attacker, Forged, Pace};
use crate::net::Packet;
use crate::{Random, SimRoute};

/// A server that answers handshakes correctly, but never serves a request. Instead it sends lies at
/// its pace:
///
/// * credit returns for packets that were never sent, or whose credits were returned long ago
/// * credit returns that report gaps where there are none
/// * responses without a body and `Accepted`s, for requests that were sent and for other requests
///
/// All these packets tell windows of any size.
pub struct MaliciousServer {
    me: SimRoute,
    pace: Pace,
    random: Random,
    sessions: Vec<ClientSession>,
}

/// A client's session, and the latest request in it.
struct ClientSession {
    route: SimRoute,
    client: ConnectionId,
    terms: Parameters,
    request: u32,
    packets: u32,
}

impl MaliciousServer {
    /// A server at `me` that lies at this pace to all clients with a session.
    #[must_use]
    pub fn new(me: SimRoute, pace: Pace, seed: u64) -> Self {
        Self { me, pace, random: Random::new(seed), sessions: Vec::new() }
    }

    /// The server's id of a client's session: the client's id with the other role.
    #[must_use]
    pub fn name(client: ConnectionId) -> ConnectionId {
        ConnectionId::new(client.steer(), true, client.index(), client.generation())
    }

    fn answer(&mut self, from: SimRoute, nonce: u32, message: Control, out: &mut Vec<Forged>) {
        let mut reply = |client, message| {
            out.push(Forged {
                from: self.me,
                to: from,
                bytes: craft::control(client, nonce, message),
            });
        };
        match message {
            Control::Hello { client, .. } => {
                reply(client, Control::Challenge { cookie: [1; 16], port: 0, steer: 0, proof: 0 });
            }
            Control::Open { client, parameters, .. } => {
                let eager = parameters.eager.min(craft::payload(&parameters));
                let terms = Parameters { eager, ..parameters };
                reply(client, Control::Opened { server: Self::name(client), parameters: terms });
                if self.sessions.iter().all(|session| session.client != client) {
                    let session =
                        ClientSession { route: from, client, terms, request: 0, packets: 1 };
                    self.sessions.push(session);
                }
            }
            Control::Ping { sender } => reply(sender, Control::Pong),
            _ => {}
        }
    }
}

impl Attacker for MaliciousServer {
    fn next_at(&self) -> Option<Instant> {
        self.pace.next_at()
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Forged>) {
        self.pace.step(now);
        if self.sessions.is_empty() {
            return;
        }
        let at = self.random.below(self.sessions.len() as u64) as usize;
        let ClientSession { route, client, terms, request, packets } = &self.sessions[at];
        let kind = match self.random.below(8) {
            0 => Kind::Accepted,
            1 => Kind::Response,
            _ => Kind::CreditReturn,
        };
        let craft = Craft {
            // Half of the packets name the latest request that the client has sent, the others a
            // request with a number near it.
            request: request.wrapping_add(*self.random.pick(&[0, 0, 0, 8, u32::MAX - 7, 1])),
            packet: *self.random.pick(&[0, 1, packets / 2, packets - 1, *packets, 0xFF_FFFF]),
            // Window and processing time are random.
            aux: self.random.word() as u32,
            size: self.random.below(3) as u32,
            ..Craft::new(*client, kind, terms)
        };
        out.push(Forged { from: self.me, to: *route, bytes: craft.bytes(&[]) });
    }

    fn receive(&mut self, _: Instant, packet: &Packet, out: &mut Vec<Forged>) {
        if let Some((header, message)) = craft::read_control(&packet.bytes) {
            return self.answer(packet.from, header.request.to_u32(), message, out);
        }
        let Some((header, _)) = craft::read(&packet.bytes) else { return };
        let known =
            self.sessions.iter_mut().find(|known| Self::name(known.client) == header.connection);
        if let (Some(session), Kind::Request) = (known, header.kind) {
            session.request = header.request.to_u32();
            session.packets = craft::request_layout(&session.terms, header.size).packets();
        }
    }
}
