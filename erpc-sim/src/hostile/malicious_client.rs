//! A client that opens sessions correctly and breaks the rules afterwards.

use erpc_core::time::Instant;
use erpc_core::transport::Route;
use erpc_core::wire::control::{Control, Parameters};
use erpc_core::wire::{CANCEL, ConnectionId, Kind};

use super::craft::{self, Craft, PARAMETERS};
use super::{Attacker, Forged, Pace};
use crate::net::Packet;
use crate::{Random, SimRoute};

/// The attack of a malicious client: one packet at a time, round robin over its sessions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClientAttack {
    /// Complete requests in a row, without regard to credits, windows or answers.
    Overrun {
        /// Packets of each request, at least 1.
        packets: u32,
    },
    /// Packets from the middle of requests that have only begun. Each leaves a gap.
    Gaps,
    /// One large request, then endless requests for its response, each for as many packets as the
    /// session has credits, at most 39.
    PullStorm,
    /// One request per slot, then endless copies of its packets. If requests have several packets,
    /// half of the packets after the request are not copies, but requests for one packet of the
    /// response.
    Copies {
        /// Packets of each request, at least 1. The server must answer with the request's bytes, so
        /// that the response is as large.
        packets: u32,
    },
    /// Request numbers far ahead of, far behind, just before and just after the real one.
    Leaps,
    /// First packets of requests that declare a size of 2^31 bytes or more, or the largest size
    /// that the server accepts. No other packets follow.
    DeclaredSizes {
        /// The largest message that the server accepts, in bytes.
        allowed: u32,
    },
    /// Complete requests, incomplete requests, cancellations of these, and cancellations of
    /// requests that have not arrived, in random order.
    Cancels,
    /// Credit returns, responses, failures and `Accepted`s, which only servers may send.
    ServersWords,
    /// Keeps the first `keep` sessions open. Closes the other sessions and opens them again with
    /// their old cookies, as often as the pace allows.
    Churn {
        /// Sessions that stay open.
        keep: u32,
    },
    /// Only opens its sessions.
    Sessions,
}

/// A session that is opening or open.
struct AttackSession {
    client: ConnectionId,
    cookie: Option<[u8; 16]>,
    open: Option<OpenSession>,
    slots: [Slot; SLOTS],
}

/// The server's side of the session, once it is open.
#[derive(Clone, Copy)]
struct OpenSession {
    server: ConnectionId,
    terms: Parameters,
}

/// The number of a slot's current request, and the number of its packet to send next.
#[derive(Clone, Copy)]
struct Slot {
    number: u32,
    packet: u32,
}

const SLOTS: usize = 8;

/// A client that attacks after its handshakes. It opens its sessions correctly, with the server's
/// answers, and then sends the packets of its [`ClientAttack`].
pub struct MaliciousClient {
    me: SimRoute,
    victim: SimRoute,
    attack: ClientAttack,
    pace: Pace,
    random: Random,
    parameters: Parameters,
    /// Each session has a port of its own.
    ports: bool,
    sessions: Vec<AttackSession>,
    /// Packets sent after the handshakes.
    attack_packets: u64,
    at: usize,
}

impl MaliciousClient {
    /// A client at `me` with `sessions` sessions to `victim`. With `steers`, each session has a
    /// different steer byte, as if it belonged to a different endpoint. The handshakes keep to the
    /// pace, too.
    #[must_use]
    pub fn new(
        me: SimRoute,
        victim: SimRoute,
        attack: ClientAttack,
        pace: Pace,
        sessions: u32,
        steers: bool,
    ) -> Self {
        let session = |index: u32| AttackSession {
            client: ConnectionId::new(if steers { index as u8 } else { 0 }, false, index, 0x5EED),
            cookie: None,
            open: None,
            slots: std::array::from_fn(|slot| Slot { number: slot as u32, packet: 0 }),
        };
        Self {
            me,
            victim,
            attack,
            pace,
            random: Random::new(u64::from(me.host)),
            parameters: Parameters {
                credits: 32,
                eager: 1_448,
                max_message: 8 << 20,
                ..PARAMETERS
            },
            ports: false,
            sessions: (0..sessions.max(1)).map(session).collect(),
            attack_packets: 0,
            at: 0,
        }
    }

    /// Opens each session from a port of its own.
    #[must_use]
    pub fn from_many_ports(mut self) -> Self {
        self.ports = true;
        self
    }

    /// Sessions that are open, as far as the attacker knows.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.sessions.iter().filter(|session| session.open.is_some()).count()
    }

    /// A packet of the session `client`.
    fn forged(&self, client: ConnectionId, bytes: Vec<u8>) -> Forged {
        let port = self.me.port.wrapping_add(if self.ports { client.index() as u16 } else { 0 });
        Forged { from: self.me.with_port(port), to: self.victim, bytes }
    }

    /// The handshake message whose answer the session waits for.
    fn knock(&self, session: &AttackSession) -> Forged {
        let client = session.client;
        let message = match session.cookie {
            None => Control::Hello { client, low: 1, high: 1 },
            Some(cookie) => Control::Open { client, cookie, parameters: self.parameters },
        };
        self.forged(client, craft::control(ConnectionId::endpoint(0), 0, message))
    }

    /// The next packet of the attack in a session. `None` if there is none.
    fn attack(&mut self, at: usize) -> Option<Forged> {
        let slot = match self.attack {
            ClientAttack::Overrun { packets } => {
                (self.attack_packets / u64::from(packets)) as usize % SLOTS
            }
            // Only the request of slot 0 gets a large response.
            ClientAttack::PullStorm => 0,
            _ => self.random.below(SLOTS as u64) as usize,
        };
        let session = &mut self.sessions[at];
        let client = session.client;
        let open = session.open?;
        let slot = &mut session.slots[slot];
        self.attack_packets += 1;
        let (craft, len) = match self.attack {
            ClientAttack::Overrun { packets } => open.overrun(slot, packets),
            ClientAttack::Gaps => open.gap(slot, &mut self.random),
            ClientAttack::PullStorm => open.storm(slot),
            ClientAttack::Copies { packets } => open.copy(slot, packets, &mut self.random),
            ClientAttack::Leaps => open.leap(slot, &mut self.random),
            ClientAttack::DeclaredSizes { allowed } => {
                open.declared(slot, allowed, &mut self.random)
            }
            ClientAttack::Cancels => open.cancel(slot, &mut self.random),
            ClientAttack::ServersWords => open.servers_word(slot, &mut self.random),
            ClientAttack::Churn { keep } if at >= keep as usize => {
                session.open = None;
                let close = Control::Close { sender: client };
                return Some(self.forged(client, craft::control(open.server, 0, close)));
            }
            ClientAttack::Churn { .. } | ClientAttack::Sessions => return None,
        };
        Some(self.forged(client, craft.bytes(&FILLING[..len as usize])))
    }

    /// The next session, round robin. From the third round on, `Churn` leaves out the sessions that
    /// it keeps open.
    fn turn(&mut self) -> usize {
        let idle = match self.attack {
            ClientAttack::Churn { keep } if self.at >= self.sessions.len() * 2 => keep as usize,
            _ => 0,
        };
        let at = idle + self.at % (self.sessions.len() - idle).max(1);
        self.at += 1;
        at.min(self.sessions.len() - 1)
    }
}

/// One function for each [`ClientAttack`] with data packets. Each such function returns the header
/// and the length of the body in bytes.
impl OpenSession {
    fn payload(&self) -> u32 {
        craft::payload(&self.terms)
    }

    fn craft(&self, kind: Kind, slot: &Slot) -> Craft {
        Craft { request: slot.number, ..Craft::new(self.server, kind, &self.terms) }
    }

    fn request(&self, slot: &Slot) -> Craft {
        Craft { aux: 7, ..self.craft(Kind::Request, slot) }
    }

    fn overrun(&self, slot: &mut Slot, packets: u32) -> (Craft, u32) {
        let size = packets * self.payload();
        let craft = Craft { packet: slot.packet, size, ..self.request(slot) };
        slot.packet += 1;
        if slot.packet == packets {
            *slot = Slot { number: slot.number.wrapping_add(SLOTS as u32), packet: 0 };
        }
        (craft, self.payload())
    }

    fn gap(&self, slot: &mut Slot, random: &mut Random) -> (Craft, u32) {
        let packet = if slot.packet == 0 { 0 } else { 2 + random.below(30) as u32 };
        slot.packet = 1;
        (Craft { packet, size: 64 * self.payload(), ..self.request(slot) }, self.payload())
    }

    fn storm(&self, slot: &mut Slot) -> (Craft, u32) {
        let packet = slot.packet;
        if packet < STORM_PACKETS {
            slot.packet += 1;
            let size = STORM_PACKETS * self.payload();
            return (Craft { packet, size, ..self.request(slot) }, self.payload());
        }
        let count = u32::from(self.terms.credits).min(STORM_PACKETS - 1);
        (Craft { packet: 1, size: count, ..self.craft(Kind::RequestForResponse, slot) }, 0)
    }

    fn copy(&self, slot: &mut Slot, packets: u32, random: &mut Random) -> (Craft, u32) {
        let whole = slot.packet >= packets;
        if whole && packets > 1 && random.below(2) == 0 {
            let packet = 1 + random.below(u64::from(packets) - 1) as u32;
            return (Craft { packet, size: 1, ..self.craft(Kind::RequestForResponse, slot) }, 0);
        }
        let packet = slot.packet % packets;
        slot.packet += 1;
        let size = packets * self.payload();
        (Craft { packet, size, ..self.request(slot) }, self.payload())
    }

    fn leap(&self, slot: &Slot, random: &mut Random) -> (Craft, u32) {
        const LEAPS: [u32; 8] = [8, 16, 9, 1 << 31, (1 << 31) - 8, u32::MAX - 7, 0, 0x7FFF_FFF8];
        let number = slot.number.wrapping_add(*random.pick(&LEAPS));
        (Craft { request: number, size: 8, ..self.request(slot) }, 8)
    }

    fn declared(&self, slot: &Slot, allowed: u32, random: &mut Random) -> (Craft, u32) {
        let size = *random.pick(&[u32::MAX, u32::MAX - 1, 1 << 31, allowed, allowed]);
        (Craft { size, ..self.request(slot) }, self.payload())
    }

    fn cancel(&self, slot: &mut Slot, random: &mut Random) -> (Craft, u32) {
        match random.below(4) {
            0 => (Craft { size: 8, ..self.request(slot) }, 8),
            1 => (Craft { size: 3 * self.payload(), ..self.request(slot) }, self.payload()),
            next => {
                slot.number = slot.number.wrapping_add(if next == 2 { SLOTS as u32 } else { 0 });
                (Craft { packet: CANCEL, ..self.craft(Kind::Done, slot) }, 0)
            }
        }
    }

    fn servers_word(&self, slot: &Slot, random: &mut Random) -> (Craft, u32) {
        const KINDS: [Kind; 4] =
            [Kind::CreditReturn, Kind::Response, Kind::Failure, Kind::Accepted];
        let kind = *random.pick(&KINDS);
        (Craft { packet: 1, size: 1, ..self.craft(kind, slot) }, 0)
    }
}

/// Packets of the request whose response is pulled endlessly. The server answers with the request's
/// bytes, so the response has as many packets.
const STORM_PACKETS: u32 = 40;

/// Bodies are zeros, because the server does not interpret them.
static FILLING: [u8; 65_536] = [0; 65_536];

impl Attacker for MaliciousClient {
    fn next_at(&self) -> Option<Instant> {
        self.pace.next_at()
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Forged>) {
        self.pace.step(now);
        let at = self.turn();
        let forged = match &self.sessions[at] {
            session if session.open.is_none() => Some(self.knock(session)),
            _ => self.attack(at),
        };
        out.extend(forged);
    }

    fn receive(&mut self, _: Instant, packet: &Packet, out: &mut Vec<Forged>) {
        let Some((header, message)) = craft::read_control(&packet.bytes) else { return };
        let index = header.connection.index() as usize;
        let Some(session) = self.sessions.get_mut(index) else { return };
        if session.client != header.connection {
            return;
        }
        match message {
            Control::Challenge { cookie, .. } if session.cookie.is_none() => {
                session.cookie = Some(cookie);
                out.push(self.knock(&self.sessions[index]));
            }
            Control::Opened { server, parameters } if session.open.is_none() => {
                session.open = Some(OpenSession { server, terms: parameters });
            }
            // The server would close a session that does not answer.
            Control::Ping { sender } => {
                let pong = craft::control(sender, header.request.to_u32(), Control::Pong);
                out.push(self.forged(header.connection, pong));
            }
            Control::Reset { .. } => session.open = None,
            _ => {}
        }
    }
}
