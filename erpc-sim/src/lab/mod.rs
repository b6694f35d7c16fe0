//! Experiments: how fast, how fair, and how long the queues.
//!
//! The [world](crate::world) asks whether the protocol is right when everything goes wrong. Here nothing goes wrong but
//! what an experiment is about, and what is looked at is figures: the real endpoints over the same network, users that
//! keep so many calls under way, and a [`Meter`] at the hosts' cables. One seed is one run here, too.
//!
//! ```text
//!   Setting    network, interfaces, endpoints' settings, loss          setting.rs
//!   Load       what an endpoint calls                                  caller.rs
//!   Lab        moves the clock, and what is measured meanwhile         bench.rs, meter.rs
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
