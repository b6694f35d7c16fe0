//! Sizes: what a block holds, and how many blocks a table has.

use std::fmt;

use super::Table;

/// Entries of a block. With 7, the head and the keys fill one cache line. Two under loom, where each
/// access to an entry multiplies the schedules.
pub(super) const SLOTS: usize = if cfg!(loom) { 2 } else { 7 };

/// The most overflow blocks of one bucket, so that the longest search is bounded.
pub(super) const MAX_CHAIN: usize = if cfg!(loom) { 3 } else { 32 };

/// The most bytes of a value that fit into a slot.
pub const MAX_INLINE: usize = 64;

/// The most words of a value that fit into a slot.
pub(super) const INLINE_WORDS: usize = MAX_INLINE / 8;

/// The most bytes that a value may be allowed to have: 64 MiB.
pub const MAX_VALUE: usize = 64 << 20;

/// How a table is built. All replicas of a partition need the same configuration: it decides which
/// keys share a bucket, and so a version.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Config {
    pub(super) capacity: usize,
    pub(super) inline: usize,
    pub(super) max_value: usize,
    pub(super) seed: u64,
    pub(super) spread: Spread,
}

/// How many blocks there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Spread {
    /// As many as the capacity needs.
    Computed,
    /// For tests of crowded buckets and of full tables.
    #[cfg(test)]
    Exactly { buckets: u32, overflow: u32 },
}

impl Config {
    /// A table for this many entries. It never grows: at 115 to 120 % of the capacity, locks for
    /// inserts fail with [`Full::Table`](super::Full::Table). The capacity costs memory at once, see
    /// [`Table::footprint`].
    pub fn new(capacity: usize) -> Self {
        Self { capacity, inline: 40, max_value: 8 << 20, seed: 0, spread: Spread::Computed }
    }

    /// Values of up to this many bytes are stored beside their key, at most [`MAX_INLINE`], by
    /// default 40. Longer ones get an allocation each. Each slot has room for an inline value, so
    /// choose the size of common values, and a small number if most values are long.
    pub fn inline(mut self, bytes: usize) -> Self {
        self.inline = bytes;
        self
    }

    /// The longest value, in bytes, at most [`MAX_VALUE`], by default 8 MiB. Commits refuse longer
    /// ones.
    pub fn max_value(mut self, bytes: usize) -> Self {
        self.max_value = bytes;
        self
    }

    /// The longest value that commits accept, in bytes: see [`max_value`](Config::max_value).
    pub fn longest(&self) -> usize {
        self.max_value
    }

    /// Seeds the hash of keys, by default with 0. Where users choose keys, use a secret number, the
    /// same at all replicas: somebody who knows it can choose keys that share a bucket.
    pub fn seed(mut self, seed: u64) -> Self {
        self.seed = seed;
        self
    }

    #[cfg(test)]
    pub(super) fn blocks(mut self, buckets: u32, overflow: u32) -> Self {
        self.spread = Spread::Exactly { buckets, overflow };
        self
    }

    /// Builds the table, empty and with version 0 everywhere.
    ///
    /// # Errors
    ///
    /// If a number is out of range, or the operating system refuses the memory.
    pub fn build(self) -> Result<Table, ConfigError> {
        if self.inline > MAX_INLINE {
            return Err(ConfigError::Inline(self.inline));
        }
        if self.max_value > MAX_VALUE {
            return Err(ConfigError::MaxValue(self.max_value));
        }
        let sizes = self.sizes().ok_or(ConfigError::Capacity(self.capacity))?;
        Table::with_sizes(self, sizes)
    }

    fn sizes(&self) -> Option<Sizes> {
        let (buckets, overflow) = match self.spread {
            #[cfg(test)]
            Spread::Exactly { buckets, overflow } => (buckets, overflow),
            Spread::Computed => {
                // Two thirds of the slots of all buckets hold the capacity. One bucket in ten then
                // has more entries than slots (Poisson's distribution with mean 4.67). There are
                // overflow blocks for twice as many, and some more for small tables.
                let buckets = self.capacity.checked_mul(3)?.div_ceil(2 * SLOTS).max(1);
                let overflow = buckets / 5 + 8;
                (u32::try_from(buckets).ok()?, u32::try_from(overflow).ok()?)
            }
        };
        buckets.checked_add(overflow)?;
        let words = self.inline.div_ceil(8).max(1);
        Some(Sizes { buckets, overflow, inline: self.inline, words })
    }
}

/// The sizes of a table's memory.
#[derive(Clone, Copy, Debug)]
pub(super) struct Sizes {
    /// Buckets, each with one block of its own.
    pub(super) buckets: u32,
    /// Blocks for the buckets that have more entries than slots.
    pub(super) overflow: u32,
    /// Bytes of the longest value that a slot holds.
    pub(super) inline: usize,
    /// Words of a slot's value. At least one, for the pointer to a longer value.
    pub(super) words: usize,
}

/// A table cannot be built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// Values inline may have at most [`MAX_INLINE`] bytes; got this number.
    Inline(usize),
    /// Values may have at most [`MAX_VALUE`] bytes; got this number.
    MaxValue(usize),
    /// Too many entries: the table would have more than 2^32 blocks.
    Capacity(usize),
    /// The operating system refused this many bytes.
    Memory(usize),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Inline(got) => {
                write!(f, "inline values of {got} bytes; a slot holds at most {MAX_INLINE}")
            }
            Self::MaxValue(got) => write!(f, "values of {got} bytes; at most {MAX_VALUE} work"),
            Self::Capacity(got) => {
                write!(f, "a capacity of {got} entries; use several partitions for so many")
            }
            Self::Memory(got) => {
                write!(f, "the operating system refuses {got} bytes; lower the capacity")
            }
        }
    }
}

impl std::error::Error for ConfigError {}
