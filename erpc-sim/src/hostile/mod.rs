//! Peers that attack.
//!
//! | attacker | what it may do | what it does |
//! |---|---|---|
//! | [`Spoofer`] | send anything from any address, see no answers | floods of `Hello`s and forged `Open`s, guesses at connection ids, resets |
//! | [`MaliciousClient`] | the true handshake, then anything | more packets than credits, pulls without end, request-number leaps, declared sizes, sessions without end |
//! | [`MaliciousServer`] | accept a client's session, then anything | forged credit returns, windows, replies to what was not asked |
//!
//! They speak the protocol by themselves, packet by packet, through [`craft`]. [`Bench`] runs one of them
//! against a server with honest clients and says what the server and the clients noticed.

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
    /// Where it says that it comes from, true or not.
    pub from: SimRoute,
    /// Where it goes.
    pub to: SimRoute,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// Somebody at a host of the network who does not keep to the rules. An attacker is off path: it sees
/// what is sent to it, and nothing else.
pub trait Attacker {
    /// When it wants to act next, `None` if never again.
    fn next_at(&self) -> Option<Instant>;

    /// It acts: what it puts into `out` leaves its host.
    fn act(&mut self, now: Instant, out: &mut Vec<Forged>);

    /// Something was delivered to it.
    fn receive(&mut self, now: Instant, packet: &Packet, out: &mut Vec<Forged>);
}
