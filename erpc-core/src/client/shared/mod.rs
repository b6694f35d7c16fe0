//! Clients that all threads of a program share.
//!
//! An endpoint belongs to one thread. A [`SharedChannel`] belongs to no thread: its calls are made
//! by endpoints on threads of their own ([`ClientThreads`]).
//!
//! ```text
//!   any thread                                   an endpoint's thread
//!   SharedChannel  encodes the request  --Post-->  Lane  hands it to the thread's own Channel
//!   SharedCall     decodes the response <-outcome-   |   one wake per turn for all outcomes
//! ```
//!
//! Both directions are batched: the first post to an idle lane queues one job for the endpoint, and
//! further posts join its batch. The endpoint stores the outcomes of a turn and then wakes their
//! tasks together.

mod buffers;
mod call;
mod channel;
mod lane;
#[cfg(all(test, loom))]
mod schedules;
mod threads;

pub use call::{SharedCall, SharedCallWithMetadata};
pub use channel::{SharedChannel, SharedChannelBuilder};
pub use threads::{ClientThreads, ClientThreadsBuilder, ClientThreadsError};
