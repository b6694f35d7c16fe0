//! When a replaced cell may be released.
//!
//! A reader finds a pointer to a cell in a slot and then increases the cell's reference count. A
//! commit must not release the cell in between. The bucket counts the readers that are in between:
//! they are in the bucket's *window*. A commit first publishes the new state and then looks at the
//! count.
//!
//! * If it is 0, each reader that has seen the pointer has its reference already, and each reader
//!   that enters later sees the new state. So the commit releases the cell.
//! * Otherwise the commit puts the cell into the bucket's *limbo*. Who finds the window empty after
//!   that, the commit itself or a leaving reader, releases what is in limbo.
//!
//! All accesses to the count are read-modify-writes. So they have one order, and the later of two
//! sees all that happened before the earlier one.
//!
//! A window is open for about ten instructions and for one bucket. The copy of a large value happens
//! after it, on the reader's own reference. Epochs, the usual alternative, keep what is replaced
//! until all threads have moved on. With them, memory returns to its start only some time later, and
//! each reader needs state for its thread.
#![expect(unsafe_code, reason = "A list of boxes behind an atomic pointer.")]

use std::ptr;

use super::arena::Back;
use super::cell::Shared;
use crate::sync::atomic::Ordering::{AcqRel, Acquire, Relaxed, Release};

/// The cells that one commit has replaced.
pub(super) struct Batch {
    /// Only read by its drop.
    _cells: Vec<Shared>,
    next: *mut Batch,
}

/// A stay in the window of a bucket.
pub(super) struct Window<'t>(&'t Back);

impl<'t> Window<'t> {
    pub(super) fn enter(back: &'t Back) -> Self {
        back.window.fetch_add(1, AcqRel);
        Self(back)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        if self.0.window.fetch_sub(1, AcqRel) == 1 && !self.0.limbo.load(Acquire).is_null() {
            sweep(self.0);
        }
    }
}

fn is_empty(back: &Back) -> bool {
    back.window.fetch_add(0, AcqRel) == 0
}

/// Releases cells, at once or when the window is empty. No slot of the bucket's published state has
/// a pointer to them.
pub(super) fn retire(back: &Back, cells: Vec<Shared>) {
    if cells.is_empty() || is_empty(back) {
        return;
    }
    let batch = Box::into_raw(Box::new(Batch { _cells: cells, next: ptr::null_mut() }));
    push(back, batch, batch);
    sweep(back);
}

/// Releases what is in limbo if the window is empty. If it is not, a thread in the window will call
/// this again when it leaves.
fn sweep(back: &Back) {
    // Each round either ends, or somebody entered and left the window during it.
    while !back.limbo.load(Relaxed).is_null() && is_empty(back) {
        let first = back.limbo.swap(ptr::null_mut(), AcqRel);
        if first.is_null() {
            return;
        }
        // The batches are in no list now. Batches that came between the first look at the window and
        // the swap are among them, so look again.
        if is_empty(back) {
            release(first);
        } else {
            push(back, first, last(first));
        }
    }
}

/// Adds the batches from `first` to `last` to the limbo. The caller alone has them.
fn push(back: &Back, first: *mut Batch, last: *mut Batch) {
    let mut top = back.limbo.load(Relaxed);
    loop {
        // SAFETY: the batches are live boxes, and in no list that others can see.
        unsafe { (*last).next = top };
        match back.limbo.compare_exchange(top, first, Release, Relaxed) {
            Ok(_) => return,
            Err(now) => top = now,
        }
    }
}

fn last(first: *mut Batch) -> *mut Batch {
    let mut batch = first;
    loop {
        // SAFETY: batches of a list are live until `release`, and the caller alone has this list.
        let next = unsafe { (*batch).next };
        if next.is_null() {
            return batch;
        }
        batch = next;
    }
}

/// Frees the batches of a list that the caller alone has.
fn release(first: *mut Batch) {
    let mut batch = first;
    while !batch.is_null() {
        // SAFETY: each batch is from `Box::into_raw` in `retire` and is taken from a list once.
        let owned = unsafe { Box::from_raw(batch) };
        batch = owned.next;
    }
}

#[cfg(all(test, loom))]
mod schedules {
    use std::sync::Arc as PlainArc;

    use loom::sync::Arc;
    use loom::thread;

    use super::*;
    use crate::sync::atomic::fence;
    use crate::sync::atomic::{AtomicPtr, AtomicU64};
    use crate::table::memory::cell::{Account, Word};

    /// While one thread sweeps, cells come into the limbo that a reader is about to use. The thread
    /// must look at the window again.
    #[test]
    fn a_sweep_spares_what_came_during_it() {
        loom::model(|| {
            let account = PlainArc::<Account>::default();
            let cell = |n: u8| Shared::new(&[n; 20], &account);
            let back = Back { window: AtomicU64::new(0), limbo: AtomicPtr::new(ptr::null_mut()) };
            let old = Batch { _cells: vec![cell(0)], next: ptr::null_mut() };
            let old = Box::into_raw(Box::new(old));
            push(&back, old, old);
            let slot = Word::new();
            slot.set_cell(cell(1));
            let version = AtomicU64::new(1);
            let bucket = Arc::new((back, slot, version));

            let sweeper = {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || sweep(&bucket.0))
            };
            let reader = {
                let bucket = Arc::clone(&bucket);
                thread::spawn(move || {
                    let (back, slot, version) = &*bucket;
                    let _window = Window::enter(back);
                    let before = version.load(Acquire);
                    let pointer = slot.pointer();
                    fence(Acquire);
                    if before == version.load(Relaxed) && before != 0 {
                        // SAFETY: the version says that the slot had this cell while the window was
                        // open.
                        let cell = unsafe { pointer.share() };
                        assert_eq!(u64::from(cell.bytes()[0]), before);
                    }
                })
            };
            let (back, slot, version) = &*bucket;
            version.store(0, Relaxed);
            fence(Release);
            // SAFETY: the slot owns a cell, and is overwritten.
            let retired = unsafe { slot.take_cell() };
            slot.set_cell(cell(2));
            version.store(2, Release);
            retire(back, vec![retired]);
            sweeper.join().unwrap();
            reader.join().unwrap();
            assert!(back.limbo.load(Relaxed).is_null(), "somebody has swept");
            // SAFETY: the slot owns a cell, and nobody uses it any more.
            drop(unsafe { slot.take_cell() });
            assert_eq!(account.totals(), (0, 0));
        });
    }
}
