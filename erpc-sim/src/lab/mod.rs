//! Experiments that measure throughput, fairness and queue lengths.
//!
//! The [world](crate::world) tests whether the protocol is correct under all kinds of faults. An
//! experiment here injects only the faults that it is about, and measures. The real endpoints run
//! over the same simulated network. Their users keep a number of calls in progress, and a [`Meter`]
//! observes the hosts' cables. As in the world, a seed reproduces its run. "The thesis" in this
//! module is Kalia's (CMU-CS-19-126), whose experiments some of these repeat.
//!
//! ```text
//!   Setting    network, interfaces, endpoints' settings, loss          setting.rs
//!   Load       the calls of an endpoint                                caller.rs
//!   Lab        moves the clock and measures                            bench.rs, meter.rs
//!   loss, recovery, incast, paths, scale                               the experiments
//! ```

mod bench;
mod caller;
pub mod incast;
pub mod loss;
mod meter;
pub mod paths;
pub mod recovery;
pub mod scale;
mod setting;

pub use bench::{Counts, Lab};
pub use caller::{Load, Spread};
pub use erpc_test_tools::statistics::{Samples, jain};
pub use meter::Meter;
pub use setting::Setting;
