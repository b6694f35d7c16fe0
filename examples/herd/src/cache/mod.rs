//! A partition of the cache, after MICA's cache mode (Lim, Han, Andersen, Kaminsky, NSDI'14), which
//! HERD uses: a lossy index of buckets, and a log in a ring.
//!
//! ```text
//! index   bucket of 8 slots: tag of 23 bits, position of 40 bits
//!                                              │
//! log     .. | key, length, expiry, value | .. v .. | head: the next value goes here
//! ```
//!
//! A value goes to the head of the log, over the oldest values. If it takes as many words as the old
//! value of its key, and that is in the younger half of the log, it replaces the old one in its place:
//! such a write changes neither the index nor another value. A slot is valid while its value has
//! not been overwritten, which the distance of its position to the head tells. So nothing must be
//! searched or moved when memory is needed, and each operation takes about two cache misses: one in
//! the index, one in the log. [`Partition::prefetch`] and [`Partition::locate`] let the misses of
//! several operations overlap.
//!
//! The cache may forget a value, and counts it. It never returns a value that is not the key's last
//! one.

mod config;
mod hash;
mod log;
mod model;
mod partition;
#[cfg(test)]
mod tests;

pub use config::{Config, ConfigError, MAX_LOG, MIN_LOG};
pub use hash::Hash;
pub use model::operations;
pub use partition::{Counts, Partition, ValueTooLong};

/// The length of a key in bytes.
pub const KEY: usize = 16;

/// A key.
pub type Key = [u8; KEY];

/// The longest value in bytes, as in HERD.
pub const MAX_VALUE: usize = 1000;
