//! Values that do not fit into a slot, and the words of a slot.
#![expect(unsafe_code, reason = "A slot's first word may own a reference to a cell.")]

use std::sync::Arc as PlainArc;
use std::sync::atomic::AtomicU64 as PlainAtomicU64;
use std::sync::atomic::Ordering::Relaxed as Plain;

use crate::sync::atomic::{AtomicPtr, Ordering};
use crate::sync::{Arc, Witness};

const _: () = assert!(size_of::<usize>() == 8, "a word of a slot holds 64 bits or a pointer");

/// Counts the cells of a table. Not part of any protocol, so loom need not see it.
#[derive(Debug, Default)]
pub(in crate::table) struct Account {
    cells: PlainAtomicU64,
    bytes: PlainAtomicU64,
}

impl Account {
    /// Cells, and bytes in them.
    pub(in crate::table) fn totals(&self) -> (u64, u64) {
        (self.cells.load(Plain), self.bytes.load(Plain))
    }
}

/// The bytes of one version of a value. They never change. Whoever holds a reference to the cell may
/// read them at leisure.
pub(super) struct Cell {
    bytes: Box<[u8]>,
    account: PlainArc<Account>,
    witness: Witness,
}

impl Drop for Cell {
    fn drop(&mut self) {
        self.witness.write();
        self.account.cells.fetch_sub(1, Plain);
        self.account.bytes.fetch_sub(self.bytes.len() as u64, Plain);
    }
}

/// A counted reference to a cell.
pub(in crate::table) struct Shared(Arc<Cell>);

impl Shared {
    pub(in crate::table) fn new(bytes: &[u8], account: &PlainArc<Account>) -> Self {
        account.cells.fetch_add(1, Plain);
        account.bytes.fetch_add(bytes.len() as u64, Plain);
        let (bytes, account) = (bytes.into(), PlainArc::clone(account));
        Self(Arc::new(Cell { bytes, account, witness: Witness::new() }))
    }

    #[inline]
    pub(in crate::table) fn bytes(&self) -> &[u8] {
        self.0.witness.read();
        &self.0.bytes
    }
}

impl Clone for Shared {
    fn clone(&self) -> Self {
        Self(Arc::clone(&self.0))
    }
}

/// One word of a slot: 8 bytes of a value, or a pointer that owns a reference to a cell. It is an
/// atomic pointer, so that a pointer keeps its provenance.
#[repr(transparent)]
pub(super) struct Word(AtomicPtr<Cell>);

impl Word {
    #[cfg(loom)]
    pub(super) fn new() -> Self {
        Self(AtomicPtr::new(std::ptr::null_mut()))
    }

    /// The bits of the word. Optimistic readers call this for words that change at the same time.
    #[inline]
    pub(super) fn bits(&self) -> u64 {
        self.0.load(Ordering::Relaxed).addr() as u64
    }

    #[inline]
    pub(super) fn set_bits(&self, bits: u64) {
        self.0.store(std::ptr::without_provenance_mut(bits as usize), Ordering::Relaxed);
    }

    /// Copies bits or a pointer. Of a pointer, only one of the two words owns the reference after.
    #[inline]
    pub(super) fn set_from(&self, other: &Word) {
        self.0.store(other.0.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Makes the word own the reference. What the word owned before is not released.
    pub(super) fn set_cell(&self, cell: Shared) {
        self.0.store(Arc::into_raw(cell.0).cast_mut(), Ordering::Relaxed);
    }

    /// The pointer, or bits that look like one. Does not access the cell.
    pub(super) fn pointer(&self) -> CellPointer {
        CellPointer(self.0.load(Ordering::Relaxed))
    }

    /// Takes over the reference that the word owns. The word keeps its bits.
    ///
    /// # Safety
    ///
    /// The word owns a reference to a cell, and the caller overwrites the word, or marks its slot
    /// as free or inline, before the next call of this function.
    pub(super) unsafe fn take_cell(&self) -> Shared {
        let pointer = self.0.load(Ordering::Relaxed).cast_const();
        // SAFETY: by the contract the pointer is from `set_cell`, whose count passes to the result.
        Shared(unsafe { Arc::from_raw(pointer) })
    }
}

/// A copy of a word that may have been a pointer to a cell.
#[derive(Clone, Copy)]
pub(super) struct CellPointer(*const Cell);

impl CellPointer {
    /// Takes a reference of its own to the cell.
    ///
    /// # Safety
    ///
    /// The pointer was read from a word that owned a reference to a cell, and that reference is not
    /// released during this call.
    pub(super) unsafe fn share(self) -> Shared {
        // SAFETY: by the contract the pointer is from `Arc::into_raw`, and its count is at least one.
        unsafe { Arc::increment_strong_count(self.0) };
        // SAFETY: the count has just been increased on behalf of the result.
        Shared(unsafe { Arc::from_raw(self.0) })
    }
}
