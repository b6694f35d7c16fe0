//! What users call over: sessions to one server, channels to a service, and the futures of their calls.

#![forbid(unsafe_code)]

pub(crate) mod call;
pub(crate) mod channel;
pub(crate) mod session;
pub(crate) mod stream;

pub use call::{Call, WithMetadata};
pub use channel::{BackendStats, Balance, Channel, ChannelBuilder, ChannelStats, Lookup, Resolver};
pub use session::{Connect, ConnectFailed, ConnectFailure, Disconnect, Session, Target};
