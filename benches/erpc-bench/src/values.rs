//! The values of the store behind workload w4. The servers of erpc and of tonic answer with them,
//! and their clients compare each answer with them.

/// Bytes of a value.
pub(crate) const VALUE: usize = 64;

/// The store's value for `key`, which depends only on the key's lowest byte.
pub(crate) fn value(key: u64) -> [u8; VALUE] {
    std::array::from_fn(|at| (key as u8).wrapping_add(at as u8))
}

/// The flag of an answer: says that multiples of 16 are missing.
pub(crate) fn is_there(key: u64) -> bool {
    !key.is_multiple_of(16)
}

/// Whether the fields of an answer are those of the store's answer for `key`.
pub(crate) fn is_answer(answer: &[u8], found: bool, key: u64) -> bool {
    found == is_there(key) && answer == value(key)
}
