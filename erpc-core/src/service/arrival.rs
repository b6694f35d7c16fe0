//! A request that an asynchronous handler will answer.

use std::net::SocketAddr;

use super::Metadata;
use crate::protocol::RequestHandle;
use crate::time::Instant;

/// The properties of a request for an asynchronous method.
pub(crate) struct Arrival {
    pub(crate) call: RequestHandle,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) deadline: Instant,
    pub(crate) metadata: Metadata,
}
