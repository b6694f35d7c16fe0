//! Parsers and encoders of the wire format in `WIRE.md`: the 24-byte packet header, the trailer,
//! control messages and extensions.
//!
//! All functions are pure. Parsers check sizes first and never panic. Malformed input from a peer
//! leads to a typed error; a malformed status leads to a status that says so.

#![forbid(unsafe_code)]
#![cfg_attr(not(test), deny(clippy::disallowed_methods))]

pub mod bundle;
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

pub use header::{
    ANNOUNCEMENT, CANCEL, Flags, HEADER_LEN, Header, HeaderError, HeaderWords, Kind, MAX_DONE,
    VERSION,
};
pub(crate) use header::{Head, MAX_PADDING, PADDING};
pub use layout::PacketLayout;
pub use numbers::{ConnectionId, PacketNumber, RequestNumber};
pub use reply_info::ReplyInfo;
pub use short::ShortPacket;
pub use stamp::Stamp;
pub use status::{
    DRAINING, MAX_STATUS_MESSAGE, decode_status, encode_refusal, encode_status, is_refusal,
};
