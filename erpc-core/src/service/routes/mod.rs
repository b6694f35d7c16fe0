//! The methods of a server.

mod entry;
mod service;
mod table;
#[cfg(test)]
mod tests;
mod tokio;

pub(crate) use entry::FastPath;
pub use entry::RouteEntry;
pub use service::{Service, SharedByThreads};
pub use table::{MethodCollision, Routes};
