//! erpc, tested in a world of our own making.
//!
//! Hundreds of endpoints, each the real protocol and the real event loop, run in one thread and virtual
//! time over a modelled network that loses, repeats, delays, damages and forges packets, and an oracle
//! looks at everything that happens. One seed is one run, to the last bit.
//!
//! ```text
//!   seed -> plan      everything that will happen, drawn before the run begins
//!             |
//!           world     moves the clock from event to event
//!           |   \
//!        network  nodes   links and switches; endpoints: erpc_core::event_loop::Rpc over transport::SimTransport
//!                  |
//!                party    what an endpoint's user does: calls, answers, streams
//!                  |
//!                oracle   what must be true of every call and stream
//! ```
//!
//! | module | is about |
//! |---|---|
//! | [`scenario`](Scenario), [`feature`](Feature), [`plan`] | what a run is like and what goes wrong in it |
//! | [`net`] | topologies, links, switches with a shared buffer |
//! | [`transport`] | an endpoint's interface: receive queue, a device that reads late |
//! | [`world`], [`oracle`] | one run |
//! | [`runner`], [`shrink`] | many runs; and from one that fails to a small one that fails |
//! | [`hostile`] | peers that lie |
//! | [`lab`] | experiments: how fast, how fair, how long the queues |
//! | [`fuzz`] | the bodies of the fuzz targets |

mod call_behaviour;
mod clock;
mod counters;
mod driver;
mod event_queue;
mod feature;
pub mod fuzz;
pub mod hostile;
pub mod lab;
mod loop_pauses;
#[cfg(erpc_mutants)]
pub mod mutants;
pub mod net;
mod node;
pub mod oracle;
mod output;
mod party;
mod pattern;
pub mod plan;
mod probe_budget;
mod route;
pub mod runner;
mod scenario;
pub mod shrink;
mod stream_script;
mod timeout_budget;
mod told_windows;
pub mod transport;
pub mod world;

pub use call_behaviour::CallMix;
pub use erpc_test_tools::random::Random;
pub use feature::{Feature, Features};
pub use loop_pauses::LoopPauses;
pub use output::print_line;
pub use route::SimRoute;
pub use scenario::Scenario;
pub use stream_script::StreamMix;
