//! Streams over sessions: the client's end of [`crate::stream`], bound to an endpoint.
//!
//! ```text
//!   Incoming, Outgoing   what users hold                          service/streaming/
//!        |
//!   ClientStream         one stream that this endpoint began      caller.rs
//!        |
//!   StreamCalls          its calls on their way                   calling/streams.rs
//! ```
//!
//! A stream has a session to itself, so that a stalled one holds no slot, credit or place in a queue that other
//! calls need. Sessions are taken from a [`StreamPool`](pool::StreamPool) and go back there.

mod caller;
mod open;
pub(super) mod pool;
