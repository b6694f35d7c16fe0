//! The controller of a session: dispatch to the configured algorithm.

use super::config::CongestionControl;
use super::controller::{Controller, Path, Sample};
use super::dcqcn::Dcqcn;
use super::swift::Swift;
use super::timely::Timely;
use crate::time::Instant;

/// One session's controller. An enum, so that calls are direct. The controllers are boxed, because
/// sessions within a host need none, and plain calls look at it only once per burst.
#[derive(Clone, Debug)]
pub(in crate::protocol) enum Congestion {
    None,
    Timely(Box<Timely>),
    Swift(Box<Swift>),
    Dcqcn(Box<Dcqcn>),
}

/// Forwards a call to the session's controller.
macro_rules! controller {
    ($self:ident, $none:expr, $controller:ident => $call:expr) => {
        match $self {
            Self::None => $none,
            Self::Timely($controller) => $call,
            Self::Swift($controller) => $call,
            Self::Dcqcn($controller) => $call,
        }
    };
}

impl Congestion {
    /// The configured controller in its initial state. Timely and DCQCN need the line's rate; where
    /// it is unknown, the result is [`Self::None`].
    pub(in crate::protocol) fn new(control: &CongestionControl, path: &Path) -> Self {
        match (control, path.line_rate) {
            (CongestionControl::None, _) => Self::None,
            (CongestionControl::Swift(config), _) => {
                Self::Swift(Box::new(Swift::new(config, path)))
            }
            (CongestionControl::Timely(config), Some(line)) => {
                Self::Timely(Box::new(Timely::new(config, path, line)))
            }
            (CongestionControl::Dcqcn(config), Some(line)) => {
                Self::Dcqcn(Box::new(Dcqcn::new(config, line)))
            }
            (CongestionControl::Timely(_) | CongestionControl::Dcqcn(_), None) => Self::None,
        }
    }

    /// The most packets of the session that may be in flight; `u16::MAX` for no limit.
    #[inline]
    pub(in crate::protocol) fn window(&self) -> u16 {
        match self {
            Self::Swift(swift) => swift.window(),
            Self::None | Self::Timely(_) | Self::Dcqcn(_) => u16::MAX,
        }
    }

    /// Whether the session sends at the full rate of the line, so that packets need no spacing.
    #[inline]
    pub(in crate::protocol) fn is_at_line(&self) -> bool {
        match self {
            Self::None => true,
            Self::Timely(timely) => timely.is_at_line(),
            Self::Swift(swift) => swift.is_at_line(),
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
        }
    }

    /// The session, with nothing in flight, begins to send.
    #[inline]
    pub(in crate::protocol) fn on_begin(&mut self, now: Instant) {
        if let Self::Swift(swift) = self {
            swift.on_begin(now);
        }
    }

    /// Sets the size of full packets, in bytes.
    pub(in crate::protocol) fn set_datagram(&mut self, bytes: u32) {
        if let Self::Swift(swift) = self {
            swift.set_datagram(bytes);
        }
    }

    /// Whether the sample would change nothing, so that [`Controller::on_rtt`] need not be called.
    #[inline(always)]
    pub(in crate::protocol) fn is_calm(&self, sample: &Sample) -> bool {
        let network = sample.nanos.saturating_sub(sample.waited);
        match self {
            Self::None => true,
            Self::Dcqcn(dcqcn) => dcqcn.is_at_line(),
            Self::Timely(timely) => timely.is_calm(network),
            Self::Swift(swift) => swift.is_calm(sample.nanos, network, sample.is_full),
        }
    }
}

impl Controller for Congestion {
    #[inline]
    fn on_sent(&mut self, now: Instant, bytes: u32) {
        controller!(self, (), controller => controller.on_sent(now, bytes));
    }

    #[inline]
    fn on_rtt(&mut self, sample: &Sample) {
        controller!(self, (), controller => controller.on_rtt(sample));
    }

    #[inline]
    fn on_mark(&mut self, now: Instant) {
        controller!(self, (), controller => controller.on_mark(now));
    }

    #[inline]
    fn on_loss(&mut self, now: Instant, in_flight: u32) {
        controller!(self, (), controller => controller.on_loss(now, in_flight));
    }

    #[inline]
    fn rate(&self) -> u64 {
        controller!(self, u64::MAX, controller => controller.rate())
    }
}
