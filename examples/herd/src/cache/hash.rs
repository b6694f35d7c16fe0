//! The hash of a key, which server and client compute alike.

use super::Key;

/// Random odd numbers.
const FACTORS: [u64; 3] = [0x9E6C_63D0_876A_3F35, 0xB492_B66F_BE98_F273, 0xD6E8_FEB8_6659_FD93];

/// The hash of a key. Not keyed: whoever knows it can make keys that share a bucket, and such keys
/// make the cache forget each other.
///
/// ```text
/// bit 63 .. 48   the partition
///     46 .. 24   the tag in the bucket
///     23 ..  0   the bucket
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hash(u64);

/// Bits of a tag.
pub(super) const TAG_BITS: u32 = 23;

impl Hash {
    /// The hash of a key.
    #[inline]
    #[must_use]
    pub fn of(key: &Key) -> Self {
        let [low, high] = words(key);
        let product = u128::from(low ^ FACTORS[0]) * u128::from(high ^ FACTORS[1]);
        let mixed = ((product >> 64) as u64 ^ product as u64).wrapping_mul(FACTORS[2]);
        Self(mixed ^ mixed >> 32)
    }

    /// The partition of the key, if there are so many. `partitions` is not 0.
    #[inline]
    #[must_use]
    pub fn partition(self, partitions: u16) -> u16 {
        (((self.0 >> 48) * u64::from(partitions)) >> 16) as u16
    }

    #[inline]
    pub(super) fn tag(self) -> u64 {
        self.0 >> 24 & ((1 << TAG_BITS) - 1)
    }

    /// The bucket, of a power of two.
    #[inline]
    pub(super) fn bucket(self, buckets: usize) -> usize {
        self.0 as usize & (buckets - 1)
    }
}

/// The key as two numbers.
#[inline]
pub(super) fn words(key: &Key) -> [u64; 2] {
    let whole = u128::from_le_bytes(*key);
    [whole as u64, (whole >> 64) as u64]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_that_count_spread_over_partitions_buckets_and_tags() {
        const KEYS: u64 = 1 << 16;
        // Numbers in the low half, in the high half, and as text.
        let keys: [fn(u64) -> Key; 3] = [
            |number| u128::from(number).to_le_bytes(),
            |number| (u128::from(number) << 64).to_le_bytes(),
            |number| format!("key {number:012}").into_bytes().try_into().expect("16 bytes"),
        ];
        for key in keys {
            let (mut partitions, mut buckets, mut tags) = ([0; 3], [0; 256], [0; 256]);
            for number in 0..KEYS {
                let hash = Hash::of(&key(number));
                partitions[usize::from(hash.partition(3))] += 1;
                buckets[hash.bucket(256)] += 1;
                tags[hash.tag() as usize & 255] += 1;
            }
            let is_even = |counts: &[u64]| {
                let mean = KEYS / counts.len() as u64;
                // Five standard deviations.
                let slack = 5 * mean.isqrt();
                counts.iter().all(|count| count.abs_diff(mean) < slack)
            };
            assert!(is_even(&partitions), "{partitions:?}");
            assert!(is_even(&buckets), "{buckets:?}");
            assert!(is_even(&tags), "{tags:?}");
        }
    }
}
