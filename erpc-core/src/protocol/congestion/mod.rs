//! The rate at which a session sends.
//!
//! Each client session has a [`Controller`], which turns round trips, ECN marks and losses into a
//! rate. The session spaces its packets by this rate: requests, and also the requests for response
//! that pull the server's packets.
//!
//! | controller | input | source |
//! |---|---|---|
//! | none | | |
//! | [`Timely`](timely::Timely) | round trips | Mittal et al., SIGCOMM'15; Zhu et al., CoNEXT'16 |
//! | [`Swift`](swift::Swift) | round trips | Kumar et al., SIGCOMM'20 |
//! | [`Dcqcn`](dcqcn::Dcqcn) | ECN marks of switches | Zhu et al., SIGCOMM'15 |
//!
//! Most sessions are never congested (thesis 6.4.2.2). They are [at line](Congestion::is_at_line)
//! and need no pacing wheel. Their round trips are [calm](Congestion::is_calm): a cheap check shows
//! that a sample changes nothing, and the controller is not called.

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
