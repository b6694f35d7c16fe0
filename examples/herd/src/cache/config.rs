//! Sizes of a partition.

use std::error::Error;
use std::fmt;

use erpc::memory::OutOfMemory;

/// The smallest log in bytes.
pub const MIN_LOG: usize = 4096;

/// The largest log in bytes.
pub const MAX_LOG: usize = 1 << 40;

/// More buckets than the hash can tell apart.
const MAX_BUCKETS: usize = 1 << 24;

/// Sizes of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Config {
    pub(super) log_bytes: usize,
    pub(super) buckets: usize,
}

impl Config {
    /// A log of `log_bytes`: a power of two from [`MIN_LOG`] to [`MAX_LOG`]. A value takes 24 bytes
    /// more than its length, rounded up to 8. The index has two slots for each 64 bytes of the log.
    #[must_use]
    pub const fn new(log_bytes: usize) -> Self {
        let buckets = log_bytes / 256;
        Self { log_bytes, buckets: if buckets < MAX_BUCKETS { buckets } else { MAX_BUCKETS } }
    }

    /// An index of so many buckets of 8 slots and 64 bytes: a power of two, at most 16,777,216.
    #[must_use]
    pub const fn buckets(mut self, buckets: usize) -> Self {
        self.buckets = buckets;
        self
    }

    /// Bytes of memory that the partition takes.
    #[must_use]
    pub const fn memory(self) -> u64 {
        self.log_bytes as u64 + self.buckets as u64 * 64
    }

    pub(super) fn check(self) -> Result<(), ConfigError> {
        let Self { log_bytes, buckets } = self;
        if !log_bytes.is_power_of_two() || !(MIN_LOG..=MAX_LOG).contains(&log_bytes) {
            return Err(ConfigError::Log(log_bytes));
        }
        if !buckets.is_power_of_two() || buckets > MAX_BUCKETS {
            return Err(ConfigError::Buckets(buckets));
        }
        Ok(())
    }
}

/// A partition cannot have these sizes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum ConfigError {
    /// The length of the log in bytes.
    Log(usize),
    /// The number of buckets.
    Buckets(usize),
    /// The system has no memory of these sizes.
    Memory(OutOfMemory),
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Log(bytes) => {
                write!(f, "a log of {bytes} bytes; use a power of two from {MIN_LOG} to {MAX_LOG}")
            }
            Self::Buckets(buckets) => {
                write!(f, "{buckets} buckets; use a power of two, at most {MAX_BUCKETS}")
            }
            Self::Memory(error) => error.fmt(f),
        }
    }
}

impl From<OutOfMemory> for ConfigError {
    fn from(error: OutOfMemory) -> Self {
        Self::Memory(error)
    }
}

impl Error for ConfigError {}
