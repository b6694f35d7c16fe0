//! Bytes that are known by a number, and chance that repeats.

use bytes::Bytes;

/// A generator of numbers that look random and are the same for the same seed (SplitMix64).
#[derive(Clone, Debug)]
pub struct Dice {
    state: u64,
}

impl Dice {
    /// A generator.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        Self { state: seed }
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.state)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        // The bias of the remainder is far below what a test could notice.
        self.draw() % bound
    }
}

fn mixed(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The bytes of that length that belong to `id`; no two ids share an aligned word by accident.
#[must_use]
pub fn bytes_of(id: u64, len: usize) -> Bytes {
    let mut bytes = vec![0; len];
    fill(id, &mut bytes);
    bytes.into()
}

/// Writes the bytes that belong to `id`.
pub fn fill(id: u64, out: &mut [u8]) {
    let mut dice = Dice::new(mixed(id));
    let mut words = out.chunks_exact_mut(8);
    for word in &mut words {
        word.copy_from_slice(&dice.draw().to_le_bytes());
    }
    let rest = words.into_remainder();
    rest.copy_from_slice(&dice.draw().to_le_bytes()[..rest.len()]);
}

/// A digest of the bytes, their order and their number. Every bit of the input changes it; it is no
/// protection against somebody who wants a collision.
#[must_use]
pub fn digest(bytes: &[u8]) -> u64 {
    let mut hash = mixed(bytes.len() as u64 ^ 0x5bd1_e995);
    let mut words = bytes.chunks_exact(8);
    for word in &mut words {
        let word = u64::from_le_bytes(word.try_into().expect("chunks of 8"));
        hash = (hash ^ word).wrapping_mul(0x9fb2_1c65_1e98_df25).rotate_left(29);
    }
    let mut last = [0; 8];
    last[..words.remainder().len()].copy_from_slice(words.remainder());
    mixed(hash ^ u64::from_le_bytes(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_have_bytes_of_their_own() {
        assert_eq!(bytes_of(1, 100), bytes_of(1, 100));
        assert_eq!(bytes_of(1, 100)[..88], bytes_of(1, 90)[..88]);
        assert_ne!(bytes_of(1, 100)[92..], bytes_of(2, 100)[92..]);
    }

    #[test]
    fn a_digest_sees_every_bit_and_the_length() {
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
