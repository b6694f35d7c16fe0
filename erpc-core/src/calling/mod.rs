//! An endpoint's calls in progress: from submission to the protocol until the outcome is delivered.

#![forbid(unsafe_code)]

pub(crate) mod callback;
pub(crate) mod calls;
pub(crate) mod link;
pub(crate) mod options;
mod outcomes;
pub(crate) mod plan;
mod planned;
pub(crate) mod posted;
pub(crate) mod response;
pub(crate) mod retry;
pub(crate) mod streams;
pub(crate) mod submissions;
pub(crate) mod table;

pub use options::CallOptions;
pub use retry::RetryPolicy;
