//! Which faults may happen.

use std::time::Duration;

use super::Injector;
use super::chance::{Stream, Use};
use crate::time::Instant;

/// What may happen to the packets of one direction.
///
/// Every chance is the probability that the fault hits a packet, from 0 (never, the default) to 1
/// (always), and every packet is decided separately. Values outside this range are clamped, and NaN
/// counts as 0. A packet can suffer several faults.
/// The decisions are independent: enabling one fault does not change the decisions of another,
/// except that a lost packet suffers nothing else.
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

/// The Gilbert-Elliott model: two states, one of which loses packets.
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

/// A period in which all packets above a size are lost.
///
/// `over: 0` is a partition (an empty datagram would still pass); `over: 1_400` is a path whose MTU
/// has shrunk.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Outage {
    /// Start, relative to the time when the plan took effect. Inclusive.
    pub from: Duration,
    /// End, relative to the time when the plan took effect. Exclusive.
    pub until: Duration,
    /// Packets longer than this, in bytes, are lost.
    pub over: usize,
}

impl Faults {
    /// Maximum number of duplicates that [`Faults::duplicate`] adds to a packet.
    pub const MAX_COPIES: u8 = 5;
    /// Longest delay of any kind.
    pub const MAX_DELAY: Duration = Duration::from_secs(10);

    /// No faults.
    #[must_use]
    pub fn none() -> Self {
        Self::default()
    }

    /// Loses a packet.
    #[must_use]
    pub fn drop(mut self, chance: f64) -> Self {
        self.drop = chance;
        self
    }

    /// Loses packets in bursts (the Gilbert-Elliott model). For each packet outside of a burst,
    /// `enter_chance` is the chance that the packet begins a burst. A burst has at least one
    /// packet, and on average `mean_packets`; a mean below 1 counts as 1. For each packet of a
    /// burst, `drop_inside` is the chance that the packet is lost.
    #[must_use]
    pub fn bursts(mut self, enter_chance: f64, mean_packets: f64, drop_inside: f64) -> Self {
        self.bursts = Bursts { enter: enter_chance, mean_packets, drop_inside };
        self
    }

    /// Duplicates a packet: 1 to `copies` more copies arrive, each number with the same
    /// probability. Each copy has its own delay of 0 to `late`. `copies` is clamped to 1 to
    /// [`Faults::MAX_COPIES`], `late` to at most [`Faults::MAX_DELAY`].
    #[must_use]
    pub fn duplicate(mut self, chance: f64, copies: u8, late: Duration) -> Self {
        let (copies, late) = (copies.clamp(1, Self::MAX_COPIES), late.min(Self::MAX_DELAY));
        self.duplicate = Duplicate { chance, copies, late };
        self
    }

    /// Holds a packet back for 0 to `late`, so that later packets overtake it. `late` is clamped to
    /// [`Faults::MAX_DELAY`].
    #[must_use]
    pub fn reorder(mut self, chance: f64, late: Duration) -> Self {
        self.reorder = Delay { chance, max: late.min(Self::MAX_DELAY) };
        self
    }

    /// Holds a packet back for 0 to `max`. Meant for delays that are long and rare. `max` is
    /// clamped to [`Faults::MAX_DELAY`]. This fault is separate from [`Faults::reorder`], so that a
    /// plan can have both. A packet that suffers both waits for the sum of the delays.
    #[must_use]
    pub fn spike(mut self, chance: f64, max: Duration) -> Self {
        self.spike = Delay { chance, max: max.min(Self::MAX_DELAY) };
        self
    }

    /// Flips 1 to 8 bits of a packet. This damage and those of [`Faults::truncate`] and
    /// [`Faults::extend`] are drawn separately for each copy of a packet.
    #[must_use]
    pub fn corrupt(mut self, chance: f64) -> Self {
        self.corrupt = chance;
        self
    }

    /// Cuts off the end of a packet: at least the last byte, possibly all bytes.
    #[must_use]
    pub fn truncate(mut self, chance: f64) -> Self {
        self.truncate = chance;
        self
    }

    /// Appends 1 to 64 random bytes to a packet.
    #[must_use]
    pub fn extend(mut self, chance: f64) -> Self {
        self.extend = chance;
        self
    }

    /// Adds an outage. There may be several, and they may overlap. Each outage costs a comparison
    /// per packet until all outages have ended.
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

    /// Sets the same faults for both directions. Each direction still has its
    /// own decisions.
    #[must_use]
    pub fn both(self, faults: Faults) -> Self {
        self.receiving(faults.clone()).sending(faults)
    }

    /// The injector for received packets, if the plan takes effect at `start`.
    #[must_use]
    pub(crate) fn rx_injector(&self, start: Instant) -> Injector {
        Injector::new(Stream::new(self.seed, Use::Receiving).at(0), self.rx.clone(), start)
    }

    /// The injector for sent packets, if the plan takes effect at `start`.
    #[must_use]
    pub(crate) fn tx_injector(&self, start: Instant) -> Injector {
        Injector::new(Stream::new(self.seed, Use::Sending).at(0), self.tx.clone(), start)
    }
}
