//! Memory that optimistic readers use without a lock. Together with `node`, the place of unsafe
//! code.
//!
//! A reader holds a [`Guard`] and may look at memory that a writer takes out of the tree meanwhile.
//! The writer *retires* such memory: it is freed when all guards of that time are gone. Three rules
//! make this safe:
//!
//! 1. Memory is retired after the last link to it has been overwritten in all memory that is not
//!    retired itself. So a reader who pins after that cannot find it.
//! 2. Memory is retired once, by the thread that has unlinked it under a lock.
//! 3. A [`Ref`] comes from a link and borrows the guard, so it does not outlive the guard.

mod prefetch;
mod reclaim;
mod shared;
mod tail;
mod value;

pub(crate) use prefetch::prefetch_lines;
#[cfg(loom)]
pub(crate) use reclaim::bury;
pub use reclaim::{Guard, pin};
pub(crate) use shared::{Link, Ref, Word};
pub(crate) use tail::Tail;
pub use value::Value;
