//! Names for owners of locks, versions and buckets.

use std::fmt;
use std::num::NonZeroU64;

/// The transaction that holds a lock. The store must never give two transactions the same owner,
/// not even one after the other: a late unlock of the first would free the second one's lock.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Owner(NonZeroU64);

impl Owner {
    /// An owner with this id; none if it is 0.
    #[inline]
    pub const fn new(id: u64) -> Option<Self> {
        match NonZeroU64::new(id) {
            Some(id) => Some(Self(id)),
            None => None,
        }
    }

    /// The id, never 0.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

/// How many commits have changed a bucket. The version of a key, present or absent, is that of its
/// bucket. It grows by one with each commit and never shrinks, so a bucket has no version twice.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default)]
pub struct Version(u64);

impl Version {
    /// The version of a bucket that no commit has changed.
    pub const ZERO: Self = Self(0);

    /// The last version. A bucket that has a million commits per second, one after the other, reaches
    /// it after 17 years; then locks fail with [`Full::Versions`](super::Full::Versions).
    pub const MAX: Self = Self((1 << 49) - 1);

    /// This version; none if it is above [`Version::MAX`].
    #[inline]
    pub const fn new(version: u64) -> Option<Self> {
        if version <= Self::MAX.0 { Some(Self(version)) } else { None }
    }

    /// The number.
    #[inline]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The version after the next commit; none after [`Version::MAX`].
    #[inline]
    pub const fn next(self) -> Option<Self> {
        Self::new(self.0 + 1)
    }

    #[inline]
    pub(super) const fn from_head(version: u64) -> Self {
        Self(version)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A bucket of a table: the unit of locks and versions. Replicas that were built with the same
/// [`Config`](super::Config) have the same buckets.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug)]
pub struct Bucket(u32);

impl Bucket {
    /// The bucket with this index. Methods of a table refuse a bucket that it does not have.
    #[inline]
    pub const fn new(index: u32) -> Self {
        Self(index)
    }

    /// The index, counted from 0.
    #[inline]
    pub const fn index(self) -> u32 {
        self.0
    }
}

impl fmt::Display for Bucket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
