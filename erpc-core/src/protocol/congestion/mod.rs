//! The rate at which a session sends.
//!
//! A client session takes its rate from its [`Controller`] and spaces its packets by it, requests as well as the requests
//! for response that pull the server's packets. The controller's inputs are round trips, marks and losses.
//!
//! | | input | source |
//! |---|---|---|
//! | none | | |
//! | [`Timely`](timely::Timely) | round trips | Mittal et al., SIGCOMM'15; Zhu et al., CoNEXT'16 |
//! | [`Swift`](swift::Swift) | round trips | Kumar et al., SIGCOMM'20 |
//! | [`Dcqcn`](dcqcn::Dcqcn) | marks of switches (ECN) | Zhu et al., SIGCOMM'15 |
//!
//! Most sessions are never congested (thesis 6.4.2.2): they are [at line](Congestion::is_at_line), need no
//! wheel, and their round trips are [calm](Congestion::is_calm), a check of two comparisons.

#[cfg(test)]
mod bottleneck;
mod config;
mod controller;
mod dcqcn;
mod session;
mod swift;
#[cfg(test)]
mod tests;
mod timely;

pub use config::{CongestionControl, DcqcnConfig, SwiftConfig, TimelyConfig};
pub(super) use controller::{Controller, Path, Sample};
pub(super) use session::Congestion;
