//! Streams over sessions: the client's end of [`crate::stream`], bound to an endpoint.
//!
//! ```text
//!   Incoming, Outgoing   the user's handles                       service/streaming/
//!        |
//!   ClientStream         one stream that this endpoint opened     caller.rs
//!        |
//!   StreamCalls          its calls in flight                      calling/streams.rs
//! ```
//!
//! Each stream has a session to itself, so that a stalled stream holds no slot, credit or queue
//! place that other calls need. Sessions come from a [`StreamPool`](pool::StreamPool) and return to
//! it.

pub(super) mod caller;
pub(super) mod open;
pub(super) mod pool;
mod search;
pub(super) mod start;
