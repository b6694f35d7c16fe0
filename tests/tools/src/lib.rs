//! Tools of the tests, the simulator and the benchmarks. They do not depend on erpc, so that every
//! crate of the workspace can use them, including the unit tests of `erpc-core`.
//!
//! | module | purpose |
//! |---|---|
//! | [`random`] | reproducible random numbers |
//! | [`zipf`] | numbers of which few are frequent |
//! | [`data`] | bytes derived from a number, and a digest of bytes |
//! | [`statistics`] | quantiles, fairness |
//! | [`corpus`] | inputs of fuzz targets |
//! | [`counting`] | an allocator that counts |
//! | [`events`] | a `tracing` subscriber that keeps the events of the log |
//! | [`limit`] | time limits of tests |
//! | [`process`] | other processes, which end when the test does |
//! | [`netns`], [`tun`] | network namespaces, and devices in them |
//! | [`wakers`] | wakers with code of their own |
//! | [`ipv4`], [`nat`] | headers of packets, and a network address translator |

#![deny(missing_docs)]

pub mod corpus;
pub mod counting;
pub mod data;
pub mod events;
pub mod ipv4;
pub mod limit;
pub mod nat;
pub mod netns;
pub mod process;
pub mod random;
pub mod statistics;
pub mod tun;
pub mod wakers;
pub mod zipf;
