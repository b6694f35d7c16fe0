//! What the tests of whole systems share; the tests themselves are in `tests/`.
//!
//! | module | what for |
//! |---|---|
//! | [`proto`], [`lab`] | a service with a method for each thing that is tested |
//! | [`raw`] | the same below the typed layer |
//! | [`load`] | calls without end, and whether what is told of them is true |
//! | [`incast`] | a slow port between network namespaces, through which many clients send, or one that is far away |
//!
//! What knows nothing of erpc is in the crate `erpc-test-tools`.

#![deny(missing_docs)]

pub mod incast;
pub mod lab;
pub mod load;
pub mod raw;

/// The service `test.v1.Lab`.
pub mod proto {
    erpc::include_proto!("test.v1");
}
