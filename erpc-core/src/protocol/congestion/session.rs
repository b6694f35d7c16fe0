//! The controller of a session, whichever was chosen.

use super::config::CongestionControl;
use super::controller::{Controller, Path};
use super::dcqcn::Dcqcn;
use super::timely::Timely;
use crate::time::Instant;

/// One session's controller.
#[derive(Clone, Debug)]
pub(in crate::protocol) enum Congestion {
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
    pub(in crate::protocol) fn new(control: &CongestionControl, path: &Path) -> Self {
        match control {
            CongestionControl::None => Self::None,
            CongestionControl::Timely(config) => Self::Timely(Timely::new(config, path)),
            CongestionControl::Dcqcn(config) => Self::Dcqcn(Dcqcn::new(config, path)),
        }
    }

    /// Whether packets need not be spaced.
    #[inline]
    pub(in crate::protocol) fn is_at_line(&self) -> bool {
        match self {
            Self::None => true,
            Self::Timely(timely) => timely.is_at_line(),
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
        }
    }

    /// Whether a round trip of `nanos` would change nothing, and [`Controller::on_rtt`] need not be called.
    #[inline]
    pub(in crate::protocol) fn is_calm(&self, nanos: u64) -> bool {
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
