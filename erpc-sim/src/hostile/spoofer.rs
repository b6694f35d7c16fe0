//! An attacker without a session, which floods from forged source addresses.

use erpc_core::time::Instant;
use erpc_core::wire::control::Control;
use erpc_core::wire::{ConnectionId, Kind};

use super::craft::{self, Craft, PARAMETERS};
use super::{Attacker, Forged, Pace};
use crate::net::Packet;
use crate::{Random, SimRoute};

/// What a spoofer sends.
#[derive(Clone, Copy, Debug)]
pub enum Spoof {
    /// `Hello`s, each from a different address and for a different session.
    Hellos,
    /// `Open`s with cookies that no server issued, each from a different address.
    ForgedOpens,
    /// Packets of every kind to sessions with guessed ids, from a real client's address.
    Guesses {
        /// The client's address.
        pretend: SimRoute,
    },
    /// `Reset`s, `Close`s and `Closed`s with guessed ids, as if the two ends of a session sent them
    /// to each other.
    Resets {
        /// The address of a client of the victim. The client receives half of the packets, as if
        /// from the victim. The victim receives the other half, as if from the client.
        client: SimRoute,
    },
    /// `Ping`s and `Close`s to sessions that do not exist, each from a different address. The
    /// server answers every packet, to the host with that address.
    Reflections,
}

/// Forges source addresses and sees no answers.
#[derive(Debug)]
pub struct Spoofer {
    victim: SimRoute,
    what: Spoof,
    pace: Pace,
    random: Random,
}

/// Hosts with this number or a higher one are in no topology.
const UNUSED_HOSTS: u32 = 1 << 24;

impl Spoofer {
    /// Sends `what` to `victim`. Addresses and guesses come from `seed`.
    #[must_use]
    pub fn new(victim: SimRoute, what: Spoof, pace: Pace, seed: u64) -> Self {
        Self { victim, what, pace, random: Random::new(seed) }
    }

    /// A random address without a host.
    fn anywhere(&mut self) -> SimRoute {
        SimRoute::new(
            UNUSED_HOSTS + self.random.below(1 << 20) as u32,
            self.random.word() as u16 | 1,
        )
    }

    /// A guessed session id. An attacker can guess the steer byte and the index, because they are
    /// small numbers, but not the 32 random bits.
    fn guess(&mut self, server_role: bool) -> ConnectionId {
        ConnectionId::new(0, server_role, self.random.below(16) as u32, self.random.word() as u32)
    }

    fn control(&mut self, from: SimRoute, to: ConnectionId, message: Control) -> Forged {
        let nonce = self.random.word() as u32;
        Forged { from, to: self.victim, bytes: craft::control(to, nonce, message) }
    }

    fn any_data(&mut self, from: SimRoute) -> Forged {
        let kind = *self.random.pick(&craft::DATA_KINDS);
        let to_server = matches!(kind, Kind::Request | Kind::RequestForResponse | Kind::Done);
        let craft = Craft {
            request: self.random.below(64) as u32,
            aux: 7,
            size: 8,
            ..Craft::new(self.guess(to_server), kind, &PARAMETERS)
        };
        Forged { from, to: self.victim, bytes: craft.bytes(&[0; 8]) }
    }

    fn any_end(&mut self, client: SimRoute) -> Forged {
        let (to_victim, id) = (self.random.percent(50), self.random.word());
        let message = match id % 3 {
            0 => Control::Reset { unknown: self.guess(!to_victim) },
            1 => Control::Close { sender: self.guess(!to_victim) },
            _ => Control::Closed,
        };
        let to = self.guess(to_victim);
        let mut forged = self.control(client, to, message);
        if !to_victim {
            (forged.from, forged.to) = (self.victim, client);
        }
        forged
    }
}

impl Attacker for Spoofer {
    fn next_at(&self) -> Option<Instant> {
        self.pace.next_at()
    }

    fn act(&mut self, now: Instant, out: &mut Vec<Forged>) {
        self.pace.step(now);
        let from = self.anywhere();
        let endpoint = ConnectionId::endpoint(0);
        let client =
            ConnectionId::new(self.random.word() as u8, false, 1, self.random.word() as u32);
        let forged = match self.what {
            Spoof::Hellos => {
                self.control(from, endpoint, Control::Hello { client, low: 1, high: 1 })
            }
            Spoof::ForgedOpens => {
                // The time in a cookie can be guessed, its MAC cannot.
                let mut cookie = [0; 16];
                cookie[..8].copy_from_slice(&now.as_nanos().to_le_bytes());
                cookie[8..].copy_from_slice(&self.random.word().to_le_bytes());
                self.control(
                    from,
                    endpoint,
                    Control::Open { client, cookie, parameters: PARAMETERS },
                )
            }
            Spoof::Guesses { pretend } => self.any_data(pretend),
            Spoof::Resets { client } => self.any_end(client),
            Spoof::Reflections => {
                let unknown = self.guess(true);
                let message = if self.random.percent(50) {
                    Control::Ping { sender: client }
                } else {
                    Control::Close { sender: client }
                };
                self.control(from, unknown, message)
            }
        };
        out.push(forged);
    }

    fn receive(&mut self, _: Instant, _: &Packet, _: &mut Vec<Forged>) {}
}
