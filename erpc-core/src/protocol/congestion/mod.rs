//! The rate at which a session sends.
//!
//! A client session takes its rate from its [`Controller`] and spaces its packets by it, requests as well as the requests
//! for response that pull the server's packets. The controller's inputs are round trips, marks and losses.
//!
//! | | input | source |
//! |---|---|---|
//! | none | | |
//! | [`Timely`] | round trips | Mittal et al., SIGCOMM'15; Zhu et al., CoNEXT'16 |
//! | [`Dcqcn`] | marks of switches (ECN) | Zhu et al., SIGCOMM'15 |
//!
//! Most sessions are never congested (thesis 6.4.2.2): they are [at line](Congestion::is_at_line), need no
//! wheel, and their round trips are [calm](Congestion::is_calm), a check of two comparisons.

#[cfg(test)]
mod bottleneck;
mod config;
mod dcqcn;
#[cfg(test)]
mod tests;
mod timely;

use std::time::Duration;

use crate::time::Instant;

pub use config::{CongestionControl, DcqcnConfig, TimelyConfig};
pub(super) use dcqcn::Dcqcn;
pub(super) use timely::Timely;

/// The properties of a path that a controller depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The slowest link that is known, in bytes per second.
    pub(super) line_rate: u64,
    /// The scatter of round trips without queues in the network, the path's own length included.
    pub(super) noise: Duration,
    /// The largest datagram, in bytes.
    pub(super) datagram: u32,
}

/// Turns feedback from the network into a rate. Time does not run backwards.
pub(super) trait Controller {
    /// A packet of `bytes` has left.
    fn on_sent(&mut self, now: Instant, bytes: u32);
    /// A packet and its answer took `nanos` on the network, the server's own time not counted.
    fn on_rtt(&mut self, now: Instant, nanos: u64);
    /// A switch has marked a reply, or the packet that it answers.
    fn on_mark(&mut self, now: Instant);
    /// A roll-back or a timeout: a packet counts as lost.
    fn on_loss(&mut self, now: Instant);
    /// Bytes per second, from the minimum rate to the line's.
    fn rate(&self) -> u64;
}

/// One session's controller.
#[derive(Clone, Debug)]
pub(super) enum Congestion {
    None,
    Timely(Timely),
    Dcqcn(Dcqcn),
}

/// Forwards a call to the session's controller.
macro_rules! controller {
    ($self:ident, $none:expr, $controller:ident => $call:expr) => {
        match $self {
            Self::None => $none,
            Self::Timely($controller) => $call,
            Self::Dcqcn($controller) => $call,
        }
    };
}

impl Congestion {
    /// The controller of this choice, at line.
    pub(super) fn new(control: &CongestionControl, path: &Path) -> Self {
        match control {
            CongestionControl::None => Self::None,
            CongestionControl::Timely(config) => Self::Timely(Timely::new(config, path)),
            CongestionControl::Dcqcn(config) => Self::Dcqcn(Dcqcn::new(config, path)),
        }
    }

    /// Whether packets need not be spaced.
    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        match self {
            Self::None => true,
            Self::Timely(timely) => timely.is_at_line(),
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
        }
    }

    /// Whether a round trip of `nanos` would change nothing, and [`Controller::on_rtt`] need not be called.
    #[inline]
    pub(super) fn is_calm(&self, nanos: u64) -> bool {
        match self {
            Self::None => true,
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
            Self::Timely(timely) => timely.is_calm(nanos),
        }
    }
}

impl Controller for Congestion {
    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        controller!(self, (), controller => controller.on_sent(now, bytes));
    }

    #[inline]
    fn on_rtt(&mut self, now: Instant, nanos: u64) {
        controller!(self, (), controller => controller.on_rtt(now, nanos));
    }

    #[inline]
    fn on_mark(&mut self, now: Instant) {
        controller!(self, (), controller => controller.on_mark(now));
    }

    #[inline]
    fn on_loss(&mut self, now: Instant) {
        controller!(self, (), controller => controller.on_loss(now));
    }

    #[inline]
    fn rate(&self) -> u64 {
        controller!(self, u64::MAX, controller => controller.rate())
    }
}
