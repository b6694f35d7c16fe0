//! The first word of a bucket.

use super::ids::Version;
use super::layout::SLOTS;

/// A bucket's version, what its first block holds, and its lock bit, in one word:
///
/// ```text
///  63                  15 14        8 7         1     0
/// +----------------------+-----------+-----------+--------+
/// | version              | full      | occupancy | locked |
/// +----------------------+-----------+-----------+--------+
/// ```
///
/// One load tells a reader all four, and one store publishes a commit. In overflow blocks only the
/// slots are used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Head(u64);

const LOCKED: u64 = 1;
const OCCUPANCY_SHIFT: u32 = 1;
const FULL_SHIFT: u32 = 8;
const VERSION_SHIFT: u32 = 15;
const _: () = assert!(Version::MAX.get() == u64::MAX >> VERSION_SHIFT);

/// One bit per slot.
pub(super) const ALL_SLOTS: u8 = (1 << SLOTS) - 1;

/// The slots of a block, bit `i` for slot `i`.
#[derive(Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Slots {
    /// The slots in use.
    pub(super) occupied: u8,
    /// The slots whose values are inline and have exactly the table's inline length. So readers of
    /// such values, which are the most common, need no second cache line for the length.
    pub(super) full: u8,
}

impl Slots {
    #[inline]
    pub(super) fn is_full(self, slot: usize) -> bool {
        self.full >> slot & 1 != 0
    }

    /// With this slot in use, or with another length.
    #[inline]
    pub(super) fn with(self, slot: usize, full: bool) -> Self {
        let full = u8::from(full) << slot;
        Self { occupied: self.occupied | 1 << slot, full: self.full & !(1 << slot) | full }
    }

    pub(super) fn without(self, slot: usize) -> Self {
        Self { occupied: self.occupied & !(1 << slot), full: self.full & !(1 << slot) }
    }
}

impl Head {
    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The head of an unlocked bucket.
    #[inline]
    pub(super) fn unlocked(version: Version, slots: Slots) -> Self {
        debug_assert!((slots.occupied | slots.full) & !ALL_SLOTS == 0);
        Self(
            version.get() << VERSION_SHIFT
                | u64::from(slots.full) << FULL_SHIFT
                | u64::from(slots.occupied) << OCCUPANCY_SHIFT,
        )
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn is_locked(self) -> bool {
        self.0 & LOCKED != 0
    }

    #[inline]
    pub(super) fn locked(self) -> Self {
        Self(self.0 | LOCKED)
    }

    #[inline]
    pub(super) fn without_lock(self) -> Self {
        Self(self.0 & !LOCKED)
    }

    #[inline]
    pub(super) fn slots(self) -> Slots {
        Slots {
            occupied: (self.0 >> OCCUPANCY_SHIFT) as u8 & ALL_SLOTS,
            full: (self.0 >> FULL_SHIFT) as u8 & ALL_SLOTS,
        }
    }

    #[inline]
    pub(super) fn occupancy(self) -> u8 {
        self.slots().occupied
    }

    #[inline]
    pub(super) fn version(self) -> Version {
        Version::from_head(self.0 >> VERSION_SHIFT)
    }
}
