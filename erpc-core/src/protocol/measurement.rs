//! Switches for benchmarks and simulations. Applications have no use for them.

/// Switches for the shortcuts that congestion control takes while there is no congestion (thesis
/// section 6.4.2). Benchmarks switch a shortcut off to measure its gain. Simulations switch it off
/// to test the code that it skips.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Bypasses {
    /// While a session sends at the link's rate, its controller gets only the round trips that show
    /// a queue or a shorter path.
    pub update: bool,
    /// A session at the link's rate sends immediately, without the pacing wheel.
    pub wheel: bool,
    /// The event loop reads the clock once per burst, not for every packet. Endpoints in virtual
    /// time need this bypass: without it they would mix virtual time with the real clock.
    pub timestamp: bool,
}

impl Bypasses {
    /// All shortcuts are on: the default.
    pub const ALL: Self = Self { update: true, wheel: true, timestamp: true };
    /// All shortcuts are off.
    pub const NONE: Self = Self { update: false, wheel: false, timestamp: false };
}
