//! erpc, tested in a simulated world.
//!
//! Two to a thousand endpoints run the real protocol and the real event loop, in one thread and
//! virtual time. The modelled network loses, repeats, delays, damages and forges packets. An oracle
//! checks everything that happens. A seed reproduces its run bit for bit.
//!
//! ```text
//!   seed -> plan      everything that will happen, drawn before the run begins
//!             |
//!           world     moves the clock from event to event
//!           |   \
//!        network  nodes   links and switches; endpoints: erpc_core::event_loop::Rpc over transport::SimTransport
//!                  |
//!                party    an endpoint's user: its calls, answers, streams
//!                  |
//!                oracle   the rules for every call and stream
//! ```
//!
//! | module | contents |
//! |---|---|
//! | [`scenario`](Scenario), [`feature`](Feature), [`plan`] | the properties and the faults of a run |
//! | [`net`] | topologies, links, switches with a shared buffer |
//! | [`transport`] | an endpoint's interface: the receive queue, a device that reads late |
//! | [`world`], [`oracle`] | one run |
//! | [`runner`], [`shrink`] | many runs; reduces a failing run to a smaller failing run |
//! | [`hostile`] | peers that lie |
//! | [`lab`] | experiments: speed, fairness, queue lengths |
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
mod trace;
pub mod transport;
pub mod typed;
pub mod world;

pub use call_behaviour::CallMix;
pub use erpc_test_tools::random::Random;
pub use feature::{Feature, Features};
pub use loop_pauses::LoopPauses;
pub use output::print_line;
pub use route::SimRoute;
pub use scenario::Scenario;
pub use stream_script::StreamMix;
