//! What shall go wrong.

use std::time::Duration;

use super::Injector;
use super::chance::{Stream, Use};
use crate::time::Instant;

/// What may happen to the packets of one direction.
///
/// Every chance is drawn on its own for every packet, from 0 (never, the default) to 1 (always); what is
/// outside of that is taken for the nearer of the two, and what is no number for 0. A packet can suffer
/// several faults at once. Their decisions are independent: switching one on changes none of another's,
/// though a packet that is lost suffers nothing else.
#[derive(Clone, PartialEq, Debug, Default)]
pub struct Faults {
    pub(super) drop: f64,
    pub(super) bursts: Bursts,
    pub(super) duplicate: Duplicate,
    pub(super) reorder: Delay,
    pub(super) spike: Delay,
    pub(super) corrupt: f64,
    pub(super) truncate: f64,
    pub(super) extend: f64,
    pub(super) outages: Vec<Outage>,
}

/// The model of Gilbert and Elliott: two states, one of which loses.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Bursts {
    pub(super) enter: f64,
    pub(super) mean_packets: f64,
    pub(super) drop_inside: f64,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Duplicate {
    pub(super) chance: f64,
    pub(super) copies: u8,
    pub(super) late: Duration,
}

#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub(super) struct Delay {
    pub(super) chance: f64,
    pub(super) max: Duration,
}

/// A time in which long packets are lost, all of them.
///
/// With `over: 0` it is a partition (an empty datagram would pass), with `over: 1_400` a path whose MTU
/// has shrunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// When it begins, after the plan took effect. That instant is part of it.
    pub from: Duration,
    /// When it ends, after the plan took effect. That instant is no longer part of it.
    pub until: Duration,
    /// Packets of more bytes than this are lost.
    pub over: usize,
}

impl Faults {
    /// Most copies that [`Faults::duplicate`] makes of a packet, beside the packet itself.
    pub const MAX_COPIES: u8 = 5;
    /// Longest delay of any kind.
    pub const MAX_DELAY: Duration = Duration::from_secs(10);

    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// The packet is lost.
    #[must_use]
    pub fn drop(mut self, chance: f64) -> Self {
        self.drop = chance;
        self
    }

    /// Losses in bursts, after Gilbert and Elliott: before each packet outside of a burst, one begins
    /// with `enter_chance`; it lasts for 1 packet or more, `mean_packets` on average (at least 1); inside,
    /// a packet is lost with the chance `drop_inside`.
    #[must_use]
    pub fn bursts(mut self, enter_chance: f64, mean_packets: f64, drop_inside: f64) -> Self {
        self.bursts = Bursts { enter: enter_chance, mean_packets, drop_inside };
        self
    }

    /// The packet arrives again: 1 to `copies` times, all equally likely, each late by 0 to `late` of its
    /// own. `copies` is within 1 and [`Faults::MAX_COPIES`], `late` at most [`Faults::MAX_DELAY`]; what is
    /// outside is taken for the nearest within.
    #[must_use]
    pub fn duplicate(mut self, chance: f64, copies: u8, late: Duration) -> Self {
        let (copies, late) = (copies.clamp(1, Self::MAX_COPIES), late.min(Self::MAX_DELAY));
        self.duplicate = Duplicate { chance, copies, late };
        self
    }

    /// The packet is held back for 0 to `late`, so that later ones overtake it. At most
    /// [`Faults::MAX_DELAY`].
    #[must_use]
    pub fn reorder(mut self, chance: f64, late: Duration) -> Self {
        self.reorder = Delay { chance, max: late.min(Self::MAX_DELAY) };
        self
    }

    /// The packet is held back for 0 to `max`, for delays that are long and rare. At most
    /// [`Faults::MAX_DELAY`]. Beside [`Faults::reorder`], so that a plan can have both; a packet that
    /// suffers both waits for their sum.
    #[must_use]
    pub fn spike(mut self, chance: f64, max: Duration) -> Self {
        self.spike = Delay { chance, max: max.min(Self::MAX_DELAY) };
        self
    }

    /// 1 to 8 bits are flipped. Drawn for each copy of a packet, as are the other two kinds of damage.
    #[must_use]
    pub fn corrupt(mut self, chance: f64) -> Self {
        self.corrupt = chance;
        self
    }

    /// The packet loses some of its end, at least a byte; nothing may be left.
    #[must_use]
    pub fn truncate(mut self, chance: f64) -> Self {
        self.truncate = chance;
        self
    }

    /// 1 to 64 random bytes are appended.
    #[must_use]
    pub fn extend(mut self, chance: f64) -> Self {
        self.extend = chance;
        self
    }

    /// Adds a time in which packets are lost. There may be several, also at once; each costs a comparison
    /// per packet until the last has ended.
    #[must_use]
    pub fn outage(mut self, outage: Outage) -> Self {
        self.outages.push(outage);
        self
    }
}

/// The faults of both directions, and the seed that decides when they act.
#[derive(Clone, PartialEq, Debug)]
pub struct FaultPlan {
    seed: u64,
    rx: Faults,
    tx: Faults,
}

impl FaultPlan {
    /// A plan without faults.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { seed, rx: Faults::none(), tx: Faults::none() }
    }

    /// Sets what happens to packets that are received.
    #[must_use]
    pub fn receiving(mut self, faults: Faults) -> Self {
        self.rx = faults;
        self
    }

    /// Sets what happens to packets that are sent.
    #[must_use]
    pub fn sending(mut self, faults: Faults) -> Self {
        self.tx = faults;
        self
    }

    /// Sets both directions alike; they are still decided independently.
    #[must_use]
    pub fn both(self, faults: Faults) -> Self {
        self.receiving(faults.clone()).sending(faults)
    }

    /// What decides for the packets that are received, if the plan takes effect at `start`.
    #[must_use]
    pub(crate) fn rx_injector(&self, start: Instant) -> Injector {
        Injector::new(Stream::new(self.seed, Use::Receiving).at(0), self.rx.clone(), start)
    }

    /// What decides for the packets that are sent, if the plan takes effect at `start`.
    #[must_use]
    pub(crate) fn tx_injector(&self, start: Instant) -> Injector {
        Injector::new(Stream::new(self.seed, Use::Sending).at(0), self.tx.clone(), start)
    }
}
