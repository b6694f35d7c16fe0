//! Bytes: the 24-byte packet header, the trailer, control messages and extensions, as drawn in `WIRE.md`.
//!
//! Everything here is a pure function of its input. Parsers check sizes first, return a typed error
//! for what a peer may have got wrong, and never panic on any input.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod checksum;
pub mod control;
pub mod extension;
mod header;
mod layout;
mod numbers;
mod reply_info;
mod short;
mod stamp;
mod status;

pub use header::{ANNOUNCEMENT, CANCEL, Flags, HEADER_LEN, Header, HeaderError, Kind, VERSION};
pub use layout::PacketLayout;
pub use numbers::{ConnectionId, PacketNumber, RequestNumber};
pub use reply_info::ReplyInfo;
pub use short::ShortPacket;
pub use stamp::Stamp;
pub use status::{MAX_STATUS_MESSAGE, decode_status, encode_status};
