//! The client API: sessions to one server, channels to a service, and the futures of their calls.

#![forbid(unsafe_code)]

mod call;
mod channel;
mod connect;
mod connect_error;
mod link_guard;
mod session;
mod shared;
mod stream;
mod target;

pub use call::{Call, WithMetadata};
pub use channel::{BackendStats, Balance, Channel, ChannelBuilder, ChannelStats, Lookup, Resolver};
pub use connect::Connect;
pub use connect_error::{ConnectFailed, ConnectFailure};
pub use session::{Disconnect, Session};
pub use shared::{
    ClientThreads, ClientThreadsBuilder, ClientThreadsError, SharedCall, SharedCallWithMetadata,
    SharedChannel, SharedChannelBuilder,
};
pub use target::Target;
