//! Decides which packet suffers which fault.

use std::ops::AddAssign;
use std::time::Duration;

use super::chance::{Lot, Stream, Use};
use super::{Damage, Faults, Outage};
use crate::time::Instant;

/// Decides the fate of the packets of one direction.
///
/// An injector has no access to packets or clocks: a transport calls [`Injector::judge`] for each
/// packet, and applies the result. Random decisions depend only on the seed, and on the number of
/// packets judged before. Outages depend on the time and on the packet's length.
///
/// ```
/// use std::time::Duration;
/// use erpc_core::time::Instant;
/// use erpc_core::transport::fault::{Faults, Injector};
///
/// let faults = Faults::none().drop(0.5).corrupt(0.1);
/// let mut injector = Injector::new(7, faults, Instant::ZERO);
/// let mut arrived = 0;
/// for number in 0..100_u8 {
///     for copy in injector.judge(Instant::ZERO, 64).copies() {
///         let mut bytes = vec![number; 64];
///         if let Some(damage) = copy.damage {
///             damage.inflict(&mut bytes);
///         }
///         assert_eq!(copy.delay, Duration::ZERO, "the plan has no delays");
///         arrived += 1;
///     }
/// }
/// assert_eq!(arrived + injector.counts().dropped, 100);
/// ```
#[derive(Clone, Debug)]
pub struct Injector {
    start: Instant,
    /// Whether all chances are 0 and there are no outages.
    is_idle: bool,
    /// Number of packets judged.
    packets: u64,
    drop: Lot,
    bursts: Bursts,
    duplicate: Lot,
    copies: Copies,
    reorder: Delay,
    spike: Delay,
    corrupt: Lot,
    truncate: Lot,
    extend: Lot,
    damage: Stream,
    outages: Vec<Outage>,
    /// The end of the last outage.
    outages_end: Instant,
    counts: FaultCounts,
}

#[derive(Clone, Copy, Debug)]
struct Bursts {
    begins: Lot,
    ends: Lot,
    drop: Lot,
    is_inside: bool,
}

/// The duplicates of a packet, without the packet itself.
#[derive(Clone, Copy, Debug)]
struct Copies {
    max: u8,
    count: Stream,
    /// Longest delay of a duplicate.
    max_delay: Duration,
    delay: Stream,
}

#[derive(Clone, Copy, Debug)]
struct Delay {
    lot: Lot,
    max: Duration,
    stream: Stream,
}

/// Number of indices that a packet has in a stream from which each of its copies draws a number.
/// Each copy has an index of its own.
const PLACES: u64 = 8;
const _: () = assert!(Fate::MAX_COPIES as u64 <= PLACES);

impl Injector {
    /// Decisions follow from `seed`. Outages are relative to `start`.
    #[must_use]
    pub fn new(seed: u64, faults: Faults, start: Instant) -> Self {
        let lot = |of, chance| Lot::new(seed, of, chance);
        let stream = |of| Stream::new(seed, of);
        let Faults { drop, bursts, duplicate, reorder, spike, corrupt, truncate, extend, outages } =
            faults;
        let mut injector = Self {
            start,
            is_idle: false,
            packets: 0,
            drop: lot(Use::Drop, drop),
            bursts: Bursts {
                begins: lot(Use::BurstBegins, bursts.enter),
                // The number of packets in a burst is geometrically distributed. `max` also turns
                // NaN into 1.
                ends: lot(Use::BurstEnds, 1.0 / bursts.mean_packets.max(1.0)),
                drop: lot(Use::BurstDrop, bursts.drop_inside),
                is_inside: false,
            },
            duplicate: lot(Use::Duplicate, duplicate.chance),
            copies: Copies {
                max: duplicate.copies,
                count: stream(Use::Copies),
                max_delay: duplicate.late,
                delay: stream(Use::CopyDelay),
            },
            reorder: Delay {
                lot: lot(Use::Reorder, reorder.chance),
                max: reorder.max,
                stream: stream(Use::ReorderDelay),
            },
            spike: Delay {
                lot: lot(Use::Spike, spike.chance),
                max: spike.max,
                stream: stream(Use::SpikeDelay),
            },
            corrupt: lot(Use::Corrupt, corrupt),
            truncate: lot(Use::Truncate, truncate),
            extend: lot(Use::Extend, extend),
            damage: stream(Use::Damage),
            outages_end: start
                + outages.iter().map(|outage| outage.until).max().unwrap_or_default(),
            outages,
            counts: FaultCounts::default(),
        };
        injector.is_idle = injector.outages.is_empty() && injector.lots().iter().all(|l| l.never());
        injector
    }

    /// The random events that can hit a packet. For bursts, the list has only the event that begins
    /// a burst. If no burst can begin, no burst loses packets.
    fn lots(&self) -> [Lot; 8] {
        [
            self.drop,
            self.bursts.begins,
            self.duplicate,
            self.reorder.lot,
            self.spike.lot,
            self.corrupt,
            self.truncate,
            self.extend,
        ]
    }

    /// Decides the fate of the next packet, of `len` bytes, at `now`.
    ///
    /// Costs almost nothing without faults, and a few nanoseconds for each enabled fault.
    #[inline]
    pub fn judge(&mut self, now: Instant, len: usize) -> Fate {
        if self.is_idle { Fate::INTACT } else { self.judge_by_lot(now, len) }
    }

    /// Whether no packet can ever suffer a fault.
    #[must_use]
    #[inline]
    pub fn is_idle(&self) -> bool {
        self.is_idle
    }

    /// How often each fault has acted so far.
    #[must_use]
    pub fn counts(&self) -> FaultCounts {
        self.counts
    }

    fn judge_by_lot(&mut self, now: Instant, len: usize) -> Fate {
        let packet = self.packets;
        self.packets += 1;
        // The burst continues even while other faults drop the packets.
        let in_burst = self.bursts.step(packet);
        if self.is_cut_off(now, len) {
            self.counts.outage_dropped += 1;
            return Fate::LOST;
        }
        if self.drop.happens(packet) {
            self.counts.dropped += 1;
            return Fate::LOST;
        }
        if in_burst && self.bursts.drop.happens(packet) {
            self.counts.burst_dropped += 1;
            return Fate::LOST;
        }
        let original =
            PacketCopy { delay: self.delay(packet), damage: self.damage(packet * PLACES, len) };
        if self.duplicate.happens(packet) {
            return self.duplicated(packet, original, len);
        }
        if original.is_intact() { Fate::INTACT } else { Fate(Kind::Harmed(original)) }
    }

    fn is_cut_off(&self, now: Instant, len: usize) -> bool {
        if now >= self.outages_end {
            return false;
        }
        let elapsed = now - self.start;
        self.outages.iter().any(|outage| outage.takes(elapsed, len))
    }

    fn delay(&mut self, packet: u64) -> Duration {
        let mut delay = Duration::ZERO;
        if self.reorder.lot.happens(packet) {
            self.counts.reordered += 1;
            delay += self.reorder.stream.up_to(packet, self.reorder.max);
        }
        if self.spike.lot.happens(packet) {
            self.counts.spiked += 1;
            delay += self.spike.stream.up_to(packet, self.spike.max);
        }
        delay
    }

    fn damage(&mut self, place: u64, len: usize) -> Option<Damage> {
        // An empty packet cannot be cut or flipped.
        let corrupt = self.corrupt.happens(place) && len > 0;
        let truncate = self.truncate.happens(place) && len > 0;
        let extend = self.extend.happens(place);
        self.counts.corrupted += u64::from(corrupt);
        self.counts.truncated += u64::from(truncate);
        self.counts.extended += u64::from(extend);
        Damage::new(self.damage.at(place), corrupt, truncate, extend)
    }

    fn duplicated(&mut self, packet: u64, original: PacketCopy, len: usize) -> Fate {
        let Copies { max, count, max_delay, delay } = self.copies;
        let more = 1 + count.below(packet, max.into());
        self.counts.duplicated += more;
        let mut copies = [original; Fate::MAX_COPIES];
        for (place, copy) in (packet * PLACES + 1..).zip(&mut copies[1..=more as usize]) {
            *copy = PacketCopy {
                delay: delay.up_to(place, max_delay),
                damage: self.damage(place, len),
            };
        }
        Fate(Kind::Several(1 + more as u8, copies))
    }
}

impl Bursts {
    /// Whether the packet is in a burst.
    fn step(&mut self, packet: u64) -> bool {
        if self.begins.never() {
            return false;
        }
        let inside = self.is_inside || self.begins.happens(packet);
        self.is_inside = inside && !self.ends.happens(packet);
        inside
    }
}

impl Outage {
    fn takes(&self, elapsed: Duration, len: usize) -> bool {
        (self.from..self.until).contains(&elapsed) && len > self.over
    }
}

/// The fate of a packet: at most [`Fate::MAX_COPIES`] copies of it arrive.
#[derive(Clone, Debug)]
pub struct Fate(Kind);

#[derive(Clone, Debug)]
enum Kind {
    Lost,
    Intact,
    Harmed(PacketCopy),
    Several(u8, [PacketCopy; Fate::MAX_COPIES]),
}

/// One of the arriving copies of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PacketCopy {
    /// The delay added by faults.
    pub delay: Duration,
    /// The damage to its bytes, `None` if it is intact.
    pub damage: Option<Damage>,
}

impl Fate {
    /// Maximum number of copies that arrive: the packet itself and its duplicates.
    pub const MAX_COPIES: usize = 1 + Faults::MAX_COPIES as usize;

    const LOST: Self = Self(Kind::Lost);
    const INTACT: Self = Self(Kind::Intact);

    /// The packet arrives as if there were no faults.
    #[must_use]
    #[inline]
    pub fn is_intact(&self) -> bool {
        matches!(self.0, Kind::Intact)
    }

    /// The arriving copies, the packet itself first. Empty if the packet is lost.
    #[inline]
    pub fn copies(&self) -> impl ExactSizeIterator<Item = PacketCopy> + '_ {
        const INTACT: &[PacketCopy] = &[PacketCopy::INTACT];
        let copies = match &self.0 {
            Kind::Lost => &[],
            Kind::Intact => INTACT,
            Kind::Harmed(copy) => std::slice::from_ref(copy),
            Kind::Several(count, copies) => &copies[..usize::from(*count)],
        };
        copies.iter().copied()
    }
}

impl PacketCopy {
    const INTACT: Self = Self { delay: Duration::ZERO, damage: None };

    /// Whether the copy is neither late nor damaged.
    #[must_use]
    #[inline]
    pub fn is_intact(&self) -> bool {
        *self == Self::INTACT
    }
}

/// How often each fault acted in one direction. A lost packet counts once, for the first
/// fault that hits it in the order outage, single loss, burst.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct FaultCounts {
    /// Packets lost individually.
    pub dropped: u64,
    /// Packets lost in bursts.
    pub burst_dropped: u64,
    /// Packets lost to outages.
    pub outage_dropped: u64,
    /// Duplicates made, without the packets themselves.
    pub duplicated: u64,
    /// Packets delayed by [`Faults::reorder`].
    pub reordered: u64,
    /// Packets delayed by [`Faults::spike`].
    pub spiked: u64,
    /// Copies with bits flipped.
    pub corrupted: u64,
    /// Copies cut short.
    pub truncated: u64,
    /// Copies with bytes appended.
    pub extended: u64,
}

impl FaultCounts {
    /// Packets lost individually, in bursts or to outages.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.dropped + self.burst_dropped + self.outage_dropped
    }
}

impl AddAssign for FaultCounts {
    fn add_assign(&mut self, more: Self) {
        self.dropped += more.dropped;
        self.burst_dropped += more.burst_dropped;
        self.outage_dropped += more.outage_dropped;
        self.duplicated += more.duplicated;
        self.reordered += more.reordered;
        self.spiked += more.spiked;
        self.corrupted += more.corrupted;
        self.truncated += more.truncated;
        self.extended += more.extended;
    }
}
