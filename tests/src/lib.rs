//! What the tests of whole systems share; the tests themselves are in `tests/`.
//!
//! | module | what for |
//! |---|---|
//! | [`proto`], [`lab`] | a service with a method for each thing that is tested |
//! | [`raw`] | the same below the typed layer |
//! | [`data`] | bytes that are known by a number, and chance that repeats |
//! | [`load`] | calls without end, and whether what is told of them is true |
//! | [`limit`] | a test that hangs fails |
//! | [`process`] | other processes, which end when the test does |
//! | [`netns`], [`tun`], [`incast`] | network namespaces, devices of ours in them, and a slow port between them that many send through |
//! | [`counting`] | an allocator that counts |

#![deny(missing_docs)]

pub mod counting;
pub mod data;
pub mod incast;
pub mod lab;
pub mod limit;
pub mod load;
pub mod netns;
pub mod process;
pub mod raw;
pub mod tun;

/// The service `test.v1.Lab`.
pub mod proto {
    erpc::include_proto!("test.v1");
}
