//! A concurrent ordered index after Masstree (Mao, Kohler, Morris, "Cache craftiness for fast
//! multicore key-value storage", EuroSys'12).
//!
//! [`Masstree`] maps byte strings to values, in order. It is a trie: each layer is a B+-tree of the
//! keys' next 8 bytes, compared as numbers. Keys with the same 8 bytes that go on share a layer
//! below. So a comparison takes one instruction however long keys are, and a long common prefix is
//! compared once.
//!
//! ```text
//!             layer of bytes 0 to 7
//!             interior node
//!            /      |      \            tree/    the operations
//!      border <-> border <-> border     node/    nodes, layers, versions, locks
//!      |  |         |                   memory/  references, links, when memory is freed
//!    value tail   layer of bytes 8 to 15
//! ```
//!
//! Readers take no lock: they read a node's version, the node, and the version again. Writers lock
//! single nodes. Memory that leaves the tree is freed when no reader can look at it any more
//! (epochs, [`pin`]). `docs/design/masstree.md` describes the protocols, where they differ from the
//! paper's and why, and how they are tested.
#![deny(missing_docs)]
#![deny(unsafe_code)]

#[cfg(test)]
mod check;
mod key;
#[expect(unsafe_code, reason = "memory that readers use without a lock")]
mod memory;
mod mutants;
#[expect(unsafe_code, reason = "what the words of a node lead to")]
mod node;
mod sync;
mod tree;

#[cfg(all(test, loom))]
mod schedules;
#[cfg(all(test, not(loom)))]
mod tests;

pub use key::{KeyTooLong, MAX_KEY};
pub use memory::{Guard, Value, pin};
pub use tree::{BATCH, Masstree, Scan};
