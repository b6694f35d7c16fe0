//! Shared code of the end-to-end tests. The tests are in `tests/`.
//!
//! | module | purpose |
//! |---|---|
//! | [`proto`], [`lab`] | a service with a method for each tested feature |
//! | [`raw`] | servers and clients that use `erpc::raw`, the layer below generated code |
//! | [`load`] | an endless load of calls, and a check that their outcomes are true |
//! | [`logged`] | a server and a client for the tests of the log |
//! | [`mod@suite`] | the tests that every transport passes |
//! | [`incast`] | many clients that share a slow port between network namespaces, or a distant client |
//!
//! Code that does not depend on erpc is in the crate `erpc-test-tools`.

#![deny(missing_docs)]

pub mod incast;
pub mod lab;
pub mod load;
pub mod logged;
pub mod raw;
pub mod suite;

/// The service `test.v1.Lab`.
pub mod proto {
    erpc::include_proto!("test.v1");
}
