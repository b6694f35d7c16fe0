//! How fast a session may send.
//!
//! A session's client asks its [`Controller`] for a rate and spaces its packets by it, requests as well as the requests
//! for response that pull the server's packets. What the network tells goes in: round trips, marks, losses.
//!
//! | | listens to | source |
//! |---|---|---|
//! | [`NoControl`] | nothing | |
//! | [`Timely`] | round trips | Mittal et al., SIGCOMM'15; Zhu et al., CoNEXT'16 |
//! | [`Dcqcn`] | marks of switches (ECN) | Zhu et al., SIGCOMM'15 |
//!
//! Most sessions are never congested (thesis 6.4.2.2): they are [at line](Congestion::is_at_line), need no
//! wheel, and their round trips are [calm](Congestion::is_calm), which two comparisons find out.

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

/// What a controller knows of the path.
#[derive(Clone, Copy, Debug)]
pub(super) struct Path {
    /// The slowest link that is known, in bytes per second.
    pub(super) line_rate: u64,
    /// How far round trips scatter for reasons that are not queues in the network, the path's own length included.
    pub(super) noise: Duration,
    /// The largest datagram, in bytes.
    pub(super) datagram: u32,
}

/// What makes a rate out of what the network tells. Time does not run backwards.
pub(super) trait Controller {
    /// A packet of `bytes` has left.
    fn on_sent(&mut self, now: Instant, bytes: u32);
    /// A packet and its answer took `nanos` on the network, the server's own time not counted.
    fn on_rtt(&mut self, now: Instant, nanos: u64);
    /// A switch has marked a packet, or the one that it answers.
    fn on_mark(&mut self, now: Instant);
    /// A packet was lost, or looks so: a roll-back or a timeout.
    fn on_loss(&mut self, now: Instant);
    /// Bytes per second, from the minimum rate to the line's.
    fn rate(&self) -> u64;
}

/// As fast as credits and windows allow.
#[derive(Clone, Copy, Debug)]
pub(super) struct NoControl;

impl Controller for NoControl {
    #[inline]
    fn on_sent(&mut self, _: Instant, _: u32) {}
    #[inline]
    fn on_rtt(&mut self, _: Instant, _: u64) {}
    #[inline]
    fn on_mark(&mut self, _: Instant) {}
    #[inline]
    fn on_loss(&mut self, _: Instant) {}
    #[inline]
    fn rate(&self) -> u64 {
        u64::MAX
    }
}

/// One session's controller.
#[derive(Clone, Debug)]
pub(super) enum Congestion {
    None(NoControl),
    Timely(Timely),
    Dcqcn(Dcqcn),
}

/// Hands a call on to the controller that there is.
macro_rules! controller {
    ($self:ident, $controller:ident => $call:expr) => {
        match $self {
            Self::None($controller) => $call,
            Self::Timely($controller) => $call,
            Self::Dcqcn($controller) => $call,
        }
    };
}

impl Congestion {
    /// The controller that was chosen, at line.
    pub(super) fn new(control: &CongestionControl, path: &Path) -> Self {
        match control {
            CongestionControl::None => Self::None(NoControl),
            CongestionControl::Timely(config) => Self::Timely(Timely::new(config, path)),
            CongestionControl::Dcqcn(config) => Self::Dcqcn(Dcqcn::new(config, path)),
        }
    }

    /// Whether packets need not be spaced.
    #[inline]
    pub(super) fn is_at_line(&self) -> bool {
        match self {
            Self::None(_) => true,
            Self::Timely(timely) => timely.is_at_line(),
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
        }
    }

    /// Whether a round trip of `nanos` would change nothing, and [`Controller::on_rtt`] need not be called.
    #[inline]
    pub(super) fn is_calm(&self, nanos: u64) -> bool {
        match self {
            Self::None(_) => true,
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
            Self::Timely(timely) => timely.is_calm(nanos),
        }
    }
}

impl Controller for Congestion {
    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        controller!(self, controller => controller.on_sent(now, bytes));
    }

    #[inline]
    fn on_rtt(&mut self, now: Instant, nanos: u64) {
        controller!(self, controller => controller.on_rtt(now, nanos));
    }

    #[inline]
    fn on_mark(&mut self, now: Instant) {
        controller!(self, controller => controller.on_mark(now));
    }

    #[inline]
    fn on_loss(&mut self, now: Instant) {
        controller!(self, controller => controller.on_loss(now));
    }

    #[inline]
    fn rate(&self) -> u64 {
        controller!(self, controller => controller.rate())
    }
}
