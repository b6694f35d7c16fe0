//! Memory of large tables: their allocation, and prefetches of what will be read.

mod prefetch;
mod zeroed;

pub use prefetch::prefetch;
pub(crate) use prefetch::prefetch_line;
pub use zeroed::{OutOfMemory, ZeroedArray};
