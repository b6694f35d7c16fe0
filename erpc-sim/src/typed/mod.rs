//! Typed endpoints in the simulated network: channels, retries, resolvers, workers and tasks.
//!
//! The endpoints are the real ones ([`erpc_core::endpoint::Endpoint`]), over the same transport and
//! network as in the [world](crate::world). Clocks are virtual. A simulated worker takes a job when
//! it is idle and runs its handler some time later, on the simulator's thread
//! ([`erpc_core::serving::StepWorkers`]), so a seed reproduces its run bit for bit.
//!
//! ```text
//!   plan      servers, channels with their settings, calls, and the weather: the faults of the run
//!    |
//!   world     turns, packets, restarts, and the workers' steps
//!    |  \
//!    |   service    handlers: at once, as a task, on a worker, deferred
//!    |   resolver   the addresses of the servers, as far as it tells them
//!    |
//!   oracle    the rules
//! ```

mod ending;
mod node;
mod oracle;
mod plan;
mod reach;
mod resolver;
mod runner;
mod service;
mod world;

pub use oracle::Outcomes;
pub use plan::Weather;
pub use runner::{Outcome, Summary, command, run_seed, run_seeds};
