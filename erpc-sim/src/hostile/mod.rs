//! Peers that attack.
//!
//! | attacker | abilities | attacks |
//! |---|---|---|
//! | [`Spoofer`] | sends anything from any address, but sees no answers | floods of `Hello`s and forged `Open`s, guesses at connection ids, resets, reflections |
//! | [`MaliciousClient`] | a correct handshake, then any packet | more packets than credits, endless pulls, leaps of request numbers, false declared sizes, endless sessions |
//! | [`MaliciousServer`] | accepts a client's session, then sends any packet | forged credit returns and windows, unsolicited replies |
//!
//! Attackers build their packets themselves, with [`craft`]. [`Bench`] runs one attacker against a
//! server with honest clients, and reports the effect on the server and the clients.

pub mod craft;

mod bench;
mod malicious_client;
mod malicious_server;
mod pace;
mod spoofer;

pub use bench::{AttackReport, Bench, PACKET_NANOS, TURN_NANOS, VICTIM};
pub use malicious_client::{ClientAttack, MaliciousClient};
pub use malicious_server::MaliciousServer;
pub use pace::Pace;
pub use spoofer::{Spoof, Spoofer};

use erpc_core::time::Instant;

use crate::SimRoute;
use crate::net::Packet;

/// A datagram that leaves an attacker's host.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Forged {
    /// The source address, true or forged.
    pub from: SimRoute,
    /// The destination.
    pub to: SimRoute,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// A host of the network that breaks the protocol's rules. An attacker is off path: it sees only
/// packets that are sent to it.
pub trait Attacker {
    /// When the attacker wants to act next; `None` for never again.
    fn next_at(&self) -> Option<Instant>;

    /// The attacker acts. It appends to `out` the datagrams that leave its host.
    fn act(&mut self, now: Instant, out: &mut Vec<Forged>);

    /// A packet was delivered to the attacker. Its answers go to `out`.
    fn receive(&mut self, now: Instant, packet: &Packet, out: &mut Vec<Forged>);
}
