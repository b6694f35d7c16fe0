//! The rate at which a host may open sessions.

use std::hash::BuildHasher;

use crate::protocol::ids::KeyedHasher;
use crate::time::Instant;

/// A token bucket for each host that opens sessions. A bucket is stored as the time at which it
/// will be full again (the generic cell rate algorithm, ITU-T I.371).
///
/// There are [`PLACES`] buckets. Hosts whose hashes are equal modulo [`PLACES`] share one. The hash
/// depends on a secret key, so a client cannot choose the host with which it shares.
pub(super) struct OpenRate {
    hasher: KeyedHasher,
    full_at: Box<[Instant; PLACES]>,
}

/// Number of buckets. They take 8 KiB.
const PLACES: usize = 1_024;

/// Tokens of a full bucket.
const BURST: u64 = 4_096;

impl OpenRate {
    pub(super) fn new(hasher: KeyedHasher) -> Self {
        Self { hasher, full_at: Box::new([Instant::ZERO; PLACES]) }
    }

    /// Takes a token out of the host's bucket, which refills at `per_second` tokens per second.
    /// False if the bucket is empty.
    pub(super) fn admits(&mut self, now: Instant, host: u64, per_second: u32) -> bool {
        let interval = 1_000_000_000 / u64::from(per_second);
        let full_at = &mut self.full_at[self.hasher.hash_one(host) as usize % PLACES];
        let next = (*full_at).max(now).plus_nanos(interval);
        let admits = next.nanos_since(now) <= BURST * interval;
        if admits {
            *full_at = next;
        }
        admits
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::ids::IdSource;

    #[test]
    fn a_host_may_open_a_burst_and_then_its_rate_and_other_hosts_are_unaffected() {
        let mut rate = OpenRate::new(IdSource::new((1, 2)).table_hasher());
        let start = Instant::from_nanos(7_000_000_000);
        let mut admitted = |millis: u64, host, tries| {
            let now = start.plus_nanos(millis * 1_000_000);
            (0..tries).filter(|_| rate.admits(now, host, 20_000)).count()
        };
        assert_eq!(admitted(0, 1, 10_000), BURST as usize);
        assert_eq!(admitted(1, 1, 10_000), 20);
        assert_eq!(admitted(2, 1, 10_000), 20);
        assert_eq!(admitted(2, 2, 10), 10);
        assert_eq!(admitted(60_000, 1, 10_000), BURST as usize, "the bucket does not overflow");
    }
}
