//! Two packed words of a block's header.

use crate::table::layout::{MAX_CHAIN, SLOTS};

/// Links to other blocks; 0 is none, because block 0 is a bucket's own.
///
/// The low half is the next block of the chain. The high half, only of a bucket's own block, is the
/// first *spare* block: one that a transaction has reserved for its inserts. Spare blocks are linked
/// with each other by their low halves. Readers do not follow the high half.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Links(u64);

impl Links {
    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(super) fn to(next: u32) -> Self {
        Self(u64::from(next))
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn next(self) -> u32 {
        self.0 as u32
    }

    pub(super) fn spare(self) -> u32 {
        (self.0 >> 32) as u32
    }

    pub(super) fn with_next(self, next: u32) -> Self {
        Self(self.0 >> 32 << 32 | u64::from(next))
    }

    pub(super) fn with_spare(self, spare: u32) -> Self {
        Self(u64::from(spare) << 32 | u64::from(self.next()))
    }
}

/// A byte per slot, and a last byte for the number of inserts for which the lock's owner has
/// reserved slots. A slot's byte is the length of its value, or `SHARED`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Lens(u64);

/// Stands for a length: the slot's first word owns a reference to a cell.
pub(super) const SHARED: u8 = u8::MAX;

const RESERVED: usize = 7;
const _: () = assert!(SLOTS <= RESERVED);
const _: () = assert!(SLOTS * (1 + MAX_CHAIN) < u8::MAX as usize, "all slots can be reserved");

impl Lens {
    #[inline]
    pub(super) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    #[inline]
    pub(super) fn bits(self) -> u64 {
        self.0
    }

    #[inline]
    pub(super) fn get(self, slot: usize) -> u8 {
        debug_assert!(slot < SLOTS);
        (self.0 >> (8 * slot)) as u8
    }

    #[inline]
    pub(super) fn with(self, slot: usize, len: u8) -> Self {
        debug_assert!(slot <= RESERVED);
        Self(self.0 & !(0xff << (8 * slot)) | u64::from(len) << (8 * slot))
    }

    #[inline]
    pub(super) fn reserved(self) -> u8 {
        (self.0 >> (8 * RESERVED)) as u8
    }

    #[inline]
    pub(super) fn with_reserved(self, count: u8) -> Self {
        self.with(RESERVED, count)
    }
}
