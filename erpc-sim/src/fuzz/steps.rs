//! What the first byte of a step means.
//!
//! Its low half says what is done, by both sides or by one of them; three bits of its high half say at
//! which slot, the highest at which session.

pub(super) const NEXT: u8 = 0;
pub(super) const WHOLE: u8 = 1;
pub(super) const CRAFTED: u8 = 2;
pub(super) const CONTROL: u8 = 5;
pub(super) const AGAIN: u8 = 6;
pub(super) const CHANGED: u8 = 7;
pub(super) const RAW: u8 = 8;
pub(super) const PASS: u8 = 9;
pub(super) const TURN: u8 = 12;
pub(super) const ANY: u8 = 15;

/// Steps of a hostile client, and of the handler of the server that it plays with.
pub(super) mod client {
    pub(in crate::fuzz) const PULL: u8 = 3;
    pub(in crate::fuzz) const DONE: u8 = 4;
    pub(in crate::fuzz) const ANSWER: u8 = 10;
    pub(in crate::fuzz) const CANCEL: u8 = 11;
    pub(in crate::fuzz) const HELLO: u8 = 13;
    pub(in crate::fuzz) const OPEN: u8 = 14;
}

/// Steps of a hostile server, and of the user of the client that it plays with.
pub(super) mod server {
    pub(in crate::fuzz) const RETURN: u8 = 3;
    pub(in crate::fuzz) const ACCEPTED: u8 = 4;
    /// The slot says what kind of call: 1 has an extension, 2 and 3 have a deadline.
    pub(in crate::fuzz) const CALL: u8 = 10;
    /// With slot 0 a session is disconnected; with another, the call is cancelled that was made so many ago.
    pub(in crate::fuzz) const LEAVE: u8 = 11;
    pub(in crate::fuzz) const HANDSHAKE: u8 = 13;
    pub(in crate::fuzz) const CONNECT: u8 = 14;
}

/// The slot, to be added to a step.
pub(super) const fn slot(slot: u8) -> u8 {
    slot << 4
}

/// The older one of an attacker's two sessions, to be added to a step.
pub(super) const OLDER: u8 = 0x80;

/// Steps of a client that streams.
pub(super) mod streams {
    pub(in crate::fuzz) const CALL: u8 = 0;
    pub(in crate::fuzz) const TURN: u8 = 1;
    pub(in crate::fuzz) const RAW: u8 = 2;
    pub(in crate::fuzz) const CANCEL: u8 = 3;
    pub(in crate::fuzz) const LEAP: u8 = 4;
    pub(in crate::fuzz) const RECONNECT: u8 = 5;
}
