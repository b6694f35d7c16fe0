//! Bytes derived from a number, and a digest of bytes.

use bytes::Bytes;

use crate::random::{Random, mix};

/// `len` bytes derived from `id`. Two ids almost never have equal words of 8 bytes at the same
/// aligned offset.
#[must_use]
pub fn bytes_of(id: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    fill(id, &mut bytes);
    bytes.into()
}

/// Fills `out` with the bytes derived from `id`.
pub fn fill(id: u64, out: &mut [u8]) {
    let mut random = Random::new(mix(id));
    let mut words = out.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&random.word().to_le_bytes());
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&random.word().to_le_bytes()[..rest.len()]);
}

/// A digest of the bytes, their order and their number. Every bit of the input changes it. It does
/// not protect against deliberate collisions.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = mix(bytes.len() as u64 ^ 0x5bd1_e995);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        hash = (hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mix(hash ^ u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_id_has_its_own_bytes() {
        assert_eq!(bytes_of(1, 100), bytes_of(1, 100));
        assert_eq!(bytes_of(1, 100)[..88], bytes_of(1, 90)[..88]);
        assert_ne!(bytes_of(1, 100)[92..], bytes_of(2, 100)[92..]);
    }

    #[test]
    fn a_digest_depends_on_every_bit_and_on_the_length() {
        let mut bytes = bytes_of(3, 77).to_vec();
        let whole = digest(&bytes);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert_ne!(digest(&bytes), whole, "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        bytes.push(0);
        assert_ne!(digest(&bytes), whole);
        assert_ne!(digest(&[]), digest(&[0]));
    }
}
