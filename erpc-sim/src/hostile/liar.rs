//! A client that was let in and lies from then on.

use erpc_core::time::Instant;
use erpc_core::wire::control::{Control, Parameters};
use erpc_core::wire::{ConnectionId, Kind};

use super::craft::{self, Craft, PARAMETERS};
use super::{Attacker, Forged, Pace};
use crate::net::Packet;
use crate::{Random, SimRoute};

/// What a liar does with its sessions, one packet at a time, in turn over sessions and slots.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lie {
    /// Requests one after the other, whole, without regard to credits, window or answers.
    Overrun {
        /// Packets of each request, at least 1.
        packets: u32,
    },
    /// Packets from the middle of requests that have hardly begun: each leaves a gap.
    Gaps,
    /// One large request, and then its response over and over again, as much as one packet can ask for.
    PullStorm,
    /// Numbers that are far ahead, far behind, just before and just after the true one.
    Leaps,
    /// First packets of messages that are said to be as large as 32 bits can say, or as the server takes,
    /// and that never go on.
    DeclaredSizes {
        /// The largest message that the server takes, in bytes.
        allowed: u32,
    },
    /// Credit returns, responses and `Accepted`s, which only servers send.
    ServersWords,
    /// The sessions behind the first `keep` are closed and opened again, as often as the pace allows, with
    /// the cookies that they once got.
    Churn {
        /// Sessions that stay.
        keep: u32,
    },
    /// Nothing but the sessions.
    Sessions,
}

/// A session on its way or open.
struct Session {
    client: ConnectionId,
    cookie: Option<[u8; 16]>,
    /// The server's id and the terms, once it is open.
    open: Option<(ConnectionId, Parameters)>,
    /// Request numbers by slot, and the next packet of each.
    slots: [(u32, u32); 8],
}

/// An admitted client that lies: it performs the true handshake for each of its sessions, reading what
/// the server answers, and then does as its [`Lie`] says.
pub struct Liar {
    me: SimRoute,
    victim: SimRoute,
    lie: Lie,
    pace: Pace,
    random: Random,
    parameters: Parameters,
    sessions: Vec<Session>,
    /// Packets sent after the handshakes.
    told: u64,
    at: usize,
}

impl Liar {
    /// A liar at `me` with `sessions` sessions to `victim`, each with another steer byte if `steers`: as
    /// if each were another endpoint's. The handshakes keep to the pace, too.
    #[must_use]
    pub fn new(
        me: SimRoute,
        victim: SimRoute,
        lie: Lie,
        pace: Pace,
        sessions: u32,
        steers: bool,
    ) -> Self {
        let session = |index: u32| Session {
            client: ConnectionId::new(if steers { index as u8 } else { 0 }, false, index, 0x5EED),
            cookie: None,
            open: None,
            slots: std::array::from_fn(|slot| (slot as u32, 0)),
        };
        Self {
            me,
            victim,
            lie,
            pace,
            random: Random::new(u64::from(me.host)),
            parameters: Parameters {
                credits: 32,
                eager: 1_448,
                max_message: 8 << 20,
                ..PARAMETERS
            },
            sessions: (0..sessions.max(1)).map(session).collect(),
            told: 0,
            at: 0,
        }
    }

    /// Sessions that are open, as far as the liar knows.
    #[must_use]
    pub fn open_sessions(&self) -> usize {
        self.sessions.iter().filter(|session| session.open.is_some()).count()
    }

    fn forged(&self, bytes: Vec<u8>) -> Forged {
        Forged { from: self.me, to: self.victim, bytes }
    }

    /// The handshake message that the session waits for an answer to.
    fn knock(&self, session: &Session) -> Forged {
        let client = session.client;
        let message = match session.cookie {
            None => Control::Hello { client, low: 1, high: 1 },
            Some(cookie) => Control::Open { client, cookie, parameters: self.parameters },
        };
        self.forged(craft::control(ConnectionId::endpoint(0), 0, message))
    }

    fn lie(&mut self, at: usize) -> Option<Forged> {
        let slot = match self.lie {
            Lie::Overrun { packets } => (self.told / u64::from(packets)) as usize % 8,
            // The one whose response is large.
            Lie::PullStorm => 0,
            _ => self.random.below(8) as usize,
        };
        let session = &mut self.sessions[at];
        let (server, terms) = session.open?;
        self.told += 1;
        let (number, packet) = session.slots[slot];
        let payload = craft::payload(&terms);
        let request =
            Craft { request: number, aux: 7, ..Craft::new(server, Kind::Request, &terms) };
        let (craft, len) = match self.lie {
            Lie::Overrun { packets } => {
                session.slots[slot] = if packet + 1 < packets {
                    (number, packet + 1)
                } else {
                    (number.wrapping_add(8), 0)
                };
                (Craft { packet, size: packets * payload, ..request }, payload)
            }
            Lie::Gaps => {
                session.slots[slot].1 = 1;
                let packet = if packet == 0 { 0 } else { 2 + self.random.below(30) as u32 };
                (Craft { packet, size: 64 * payload, ..request }, payload)
            }
            Lie::PullStorm if packet < STORM_PACKETS => {
                session.slots[slot].1 += 1;
                (Craft { packet, size: STORM_PACKETS * payload, ..request }, payload)
            }
            Lie::PullStorm => {
                let pull = Craft::new(server, Kind::RequestForResponse, &terms);
                let count = u32::from(terms.credits).min(STORM_PACKETS - 1);
                (Craft { request: number, packet: 1, size: count, ..pull }, 0)
            }
            Lie::Leaps => {
                let leap = *self.random.pick(&[
                    8,
                    16,
                    9,
                    1 << 31,
                    (1 << 31) - 8,
                    u32::MAX - 7,
                    0,
                    0x7FFF_FFF8,
                ]);
                let number = number.wrapping_add(leap);
                (Craft { request: number, size: 8, ..request }, 8)
            }
            Lie::DeclaredSizes { allowed } => {
                let size = *self.random.pick(&[u32::MAX, u32::MAX - 1, 1 << 31, allowed, allowed]);
                (Craft { size, ..request }, payload)
            }
            Lie::ServersWords => {
                let kind = *self.random.pick(&[
                    Kind::CreditReturn,
                    Kind::Response,
                    Kind::Failure,
                    Kind::Accepted,
                ]);
                (
                    Craft {
                        request: number,
                        packet: 1,
                        size: 1,
                        ..Craft::new(server, kind, &terms)
                    },
                    0,
                )
            }
            Lie::Churn { keep } if at < keep as usize => return None,
            Lie::Churn { .. } => {
                session.open = None;
                let close = Control::Close { sender: session.client };
                return Some(self.forged(craft::control(server, 0, close)));
            }
            Lie::Sessions => return None,
        };
        Some(self.forged(craft.bytes(&FILLING[..len as usize])))
    }

    /// The session whose turn it is: all in turn, or, once they are open, those that do something.
    fn turn(&mut self) -> usize {
        let idle = match self.lie {
            Lie::Churn { keep } if self.at >= self.sessions.len() * 2 => keep as usize,
            _ => 0,
        };
        let at = idle + self.at % (self.sessions.len() - idle).max(1);
        self.at += 1;
        at.min(self.sessions.len() - 1)
    }
}

/// Packets of the request whose response is pulled without end. A server that echoes answers as much.
const STORM_PACKETS: u32 = 40;

/// Bodies are of zeros: nobody reads them.
static FILLING: [u8; 65_536] = [0; 65_536];

impl Attacker for Liar {
    fn next_at(&self) -> Option<Instant> {
        self.pace.next_at()
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Forged>) {
        self.pace.step(now);
        let at = self.turn();
        let forged = match &self.sessions[at] {
            session if session.open.is_none() => Some(self.knock(session)),
            _ => self.lie(at),
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
                session.open = Some((server, parameters));
            }
            // To be believed alive costs an answer.
            Control::Ping { sender } => {
                out.push(self.forged(craft::control(
                    sender,
                    header.request.to_u32(),
                    Control::Pong,
                )));
            }
            Control::Reset { .. } => session.open = None,
            _ => {}
        }
    }
}
