//! Numbers that strangers cannot guess: generations of connection ids, and keys of hash tables.

use std::hash::{BuildHasher, Hasher};

use crate::mutants::mutant;

use siphasher::sip::{SipHasher13, SipHasher24};

/// Draws unpredictable 32-bit numbers: SipHash-2-4 of a counter under a secret key.
pub(super) struct IdSource {
    key: (u64, u64),
    drawn: u64,
}

impl IdSource {
    pub(super) fn new(key: (u64, u64)) -> Self {
        Self { key, drawn: 0 }
    }

    /// Draws a number. It is never 0, which is the generation in the ids of endpoints.
    pub(super) fn draw(&mut self) -> u32 {
        if mutant!(GenerationReused) {
            return 7;
        }
        self.drawn += 1;
        let mut hasher = SipHasher24::new_with_keys(self.key.0, self.key.1);
        hasher.write_u64(self.drawn);
        (hasher.finish() as u32).max(1)
    }

    /// A hasher for tables whose keys come from peers. Each call returns a different one.
    pub(super) fn table_hasher(&mut self) -> KeyedHasher {
        KeyedHasher(self.key.0 ^ u64::from(self.draw()), self.key.1)
    }
}

/// Builds hashers with a key of this endpoint, not of the process: the same seed gives the same
/// tables.
#[derive(Clone)]
pub(super) struct KeyedHasher(u64, u64);

impl BuildHasher for KeyedHasher {
    type Hasher = SipHasher13;
    fn build_hasher(&self) -> SipHasher13 {
        SipHasher13::new_with_keys(self.0, self.1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_key_gives_other_numbers_and_other_hashes() {
        let [mut one, mut same, mut other] = [(1, 2), (1, 2), (1, 3)].map(IdSource::new);
        let draw = |ids: &mut IdSource| [(); 4].map(|()| ids.draw());
        let drawn = draw(&mut one);
        assert!(drawn[1..].iter().all(|number| *number != drawn[0]));
        assert_eq!(draw(&mut same), drawn);
        assert_ne!(draw(&mut other), drawn);
        let hash = |ids: &mut IdSource| ids.table_hasher().hash_one(7u32);
        let hashed = hash(&mut one);
        assert_eq!(hash(&mut same), hashed);
        assert_ne!(hash(&mut other), hashed);
    }
}
