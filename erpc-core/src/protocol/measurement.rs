//! Switches for benchmarks and simulations. Applications have no use for them.

/// The shortcuts of congestion control while there is no congestion (thesis section 6.4.2). Benchmarks switch one off to
/// measure its gain, simulations to test the long way.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bypasses {
    /// A controller at the link's rate gets no round trips without a queue.
    pub update: bool,
    /// A session at the link's rate sends at once, without the pacing wheel.
    pub wheel: bool,
    /// The event loop reads the clock once per burst, not for every packet. Endpoints in virtual
    /// time need it: without it they would mix the clocks.
    pub timestamp: bool,
}

impl Bypasses {
    /// All, the default.
    pub const ALL: Self = Self { update: true, wheel: true, timestamp: true };
    /// None.
    pub const NONE: Self = Self { update: false, wheel: false, timestamp: false };
}
