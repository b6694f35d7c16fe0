//! Tools that tests, the simulator and the benchmarks share. They know nothing of erpc, so that every crate of the
//! workspace can use them, unit tests of `erpc-core` included.
//!
//! | module | what for |
//! |---|---|
//! | [`random`] | random numbers that repeat |
//! | [`data`] | bytes that belong to a number, and a digest of bytes |
//! | [`statistics`] | quantiles, fairness |
//! | [`counting`] | an allocator that counts |
//! | [`limit`] | a test that hangs fails |
//! | [`process`] | other processes, which end when the test does |
//! | [`netns`], [`tun`] | network namespaces, and devices in them |

#![deny(missing_docs)]

pub mod counting;
pub mod data;
pub mod limit;
pub mod netns;
pub mod process;
pub mod random;
pub mod statistics;
pub mod tun;
