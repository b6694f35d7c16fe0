//! The meaning of a step's first byte.
//!
//! In steps of a hostile client or server, the low four bits select the action. Bits 4 to 6 select
//! the slot, and the highest bit selects the session. In steps of a client that streams, the byte
//! selects only the action.

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

/// Steps of a hostile client, and of the handler at the server under test.
pub(super) mod client {
    pub(in crate::fuzz) const PULL: u8 = 3;
    pub(in crate::fuzz) const DONE: u8 = 4;
    pub(in crate::fuzz) const ANSWER: u8 = 10;
    pub(in crate::fuzz) const CANCEL: u8 = 11;
    pub(in crate::fuzz) const HELLO: u8 = 13;
    pub(in crate::fuzz) const OPEN: u8 = 14;
}

/// Steps of a hostile server, and of the user of the client under test.
pub(super) mod server {
    pub(in crate::fuzz) const RETURN: u8 = 3;
    pub(in crate::fuzz) const ACCEPTED: u8 = 4;
    /// The slot selects the kind of call: slot 1 makes a call with an extension, slots 2 and 3 make
    /// calls with an extension and a deadline.
    pub(in crate::fuzz) const CALL: u8 = 10;
    /// Slot 0 disconnects a session. Slot n cancels the n-th newest call; 1 is the newest.
    pub(in crate::fuzz) const LEAVE: u8 = 11;
    pub(in crate::fuzz) const HANDSHAKE: u8 = 13;
    pub(in crate::fuzz) const CONNECT: u8 = 14;
}

/// The bits of a step that select this slot.
pub(super) const fn slot(slot: u8) -> u8 {
    slot << 4
}

/// The bit of a step that selects the older of an attacker's two sessions.
pub(super) const OLDER: u8 = 0x80;

/// Steps of a client that streams. The byte modulo 8 selects the action. 6 and 7 mean a call, and
/// then enough turns to complete it.
pub(super) mod streams {
    pub(in crate::fuzz) const CALL: u8 = 0;
    pub(in crate::fuzz) const TURN: u8 = 1;
    pub(in crate::fuzz) const RAW: u8 = 2;
    pub(in crate::fuzz) const CANCEL: u8 = 3;
    pub(in crate::fuzz) const LEAP: u8 = 4;
    pub(in crate::fuzz) const RECONNECT: u8 = 5;
}
