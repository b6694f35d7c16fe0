//! Memory that the device accesses: rings of slots, and the arena of messages.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::collections::BTreeMap;
use std::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};

use super::config::{VerbsError, errno};
use super::device::{Device, Piece};
use crate::buf::Arena;

/// Alignment of slots and of blocks of the arena: a cache line.
const LINE: usize = 64;
/// Alignment of the memory: a page.
const PAGE: usize = 4_096;

/// Zeroed memory, registered with a device.
pub(super) struct Registered {
    start: NonNull<u8>,
    layout: Layout,
    lkey: u32,
}

// SAFETY: the memory is plain bytes, and its owner decides who accesses them.
unsafe impl Send for Registered {}
// SAFETY: as above; `&Registered` gives addresses only.
unsafe impl Sync for Registered {}

impl Registered {
    /// The memory must outlive the device: drop the device first.
    pub(super) fn new<D: Device>(device: &D, bytes: usize) -> Result<Self, VerbsError> {
        let refused = |errno| VerbsError::Memory { bytes, errno };
        let layout =
            Layout::from_size_align(bytes.max(1), PAGE).map_err(|_| refused(libc::EINVAL))?;
        // SAFETY: the layout's size is not 0.
        let start =
            NonNull::new(unsafe { alloc_zeroed(layout) }).ok_or_else(|| refused(libc::ENOMEM))?;
        let mut memory = Self { start, layout, lkey: 0 };
        // SAFETY: the memory is freed when this value is dropped, which is after the device.
        let registered = unsafe { device.register(start, layout.size()) };
        memory.lkey = registered.map_err(|error| refused(errno(&error)))?.lkey;
        Ok(memory)
    }

    fn len(&self) -> usize {
        self.layout.size()
    }

    /// The offset of `memory`, if it is this memory's.
    #[inline]
    fn offset(&self, memory: *const u8) -> Option<usize> {
        let offset = memory.addr().wrapping_sub(self.start.addr().get());
        (offset < self.len()).then_some(offset)
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        // SAFETY: it was allocated with this layout, and the device, which is closed, does not use
        // it any more.
        unsafe { dealloc(self.start.as_ptr(), self.layout) };
    }
}

/// Slots of one size in registered memory.
pub(super) struct Slots {
    memory: Registered,
    stride: usize,
    count: usize,
}

impl Slots {
    /// `count` slots of at least `bytes` bytes.
    pub(super) fn new<D: Device>(
        device: &D,
        count: usize,
        bytes: usize,
    ) -> Result<Self, VerbsError> {
        let stride = bytes.next_multiple_of(LINE);
        Ok(Self { memory: Registered::new(device, count * stride)?, stride, count })
    }

    pub(super) fn count(&self) -> usize {
        self.count
    }

    pub(super) fn stride(&self) -> usize {
        self.stride
    }

    /// The first byte of a slot. Valid for reads and writes of `stride` bytes while nothing else,
    /// such as the device, accesses the slot.
    #[inline]
    pub(super) fn at(&self, slot: usize) -> *mut u8 {
        assert!(slot < self.count, "slot {slot} of {}", self.count);
        // The product is below the memory's length.
        self.memory.start.as_ptr().wrapping_add(slot * self.stride)
    }

    /// The first `len` bytes of a slot, for a request.
    #[inline]
    pub(super) fn piece(&self, slot: usize, len: usize) -> Piece {
        debug_assert!(len <= self.stride);
        Piece { start: self.at(slot), len: len as u32, lkey: self.memory.lkey }
    }
}

/// Registered memory for messages, which the device reads in place. When it is exhausted, messages
/// are in the system's memory and are copied.
#[derive(Clone)]
pub(super) struct VerbsArena {
    memory: Arc<Registered>,
    free: Arc<Mutex<FreeList>>,
}

/// Free ranges by offset: their lengths. No two are neighbours.
struct FreeList(BTreeMap<usize, usize>);

impl FreeList {
    /// The first free range of `len` bytes.
    fn take(&mut self, len: usize) -> Option<usize> {
        let (&offset, &room) = self.0.iter().find(|(_, room)| **room >= len)?;
        self.0.remove(&offset);
        if room > len {
            self.0.insert(offset + len, room - len);
        }
        Some(offset)
    }

    fn give_back(&mut self, mut offset: usize, mut len: usize) {
        if let Some(next) = self.0.remove(&(offset + len)) {
            len += next;
        }
        if let Some((&before, &room)) = self.0.range(..offset).next_back()
            && before + room == offset
        {
            self.0.remove(&before);
            (offset, len) = (before, len + room);
        }
        self.0.insert(offset, len);
    }
}

impl VerbsArena {
    /// The memory must outlive the device: keep a clone that is dropped after it.
    pub(super) fn new<D: Device>(device: &D, bytes: usize) -> Result<Self, VerbsError> {
        let memory = Registered::new(device, bytes.next_multiple_of(LINE))?;
        let free = FreeList(BTreeMap::from([(0, memory.len())]));
        Ok(Self { memory: Arc::new(memory), free: Arc::new(Mutex::new(free)) })
    }

    /// The bytes as a piece of a request, if the device can read them.
    #[inline]
    pub(super) fn piece(&self, bytes: &[u8]) -> Option<Piece> {
        self.memory.offset(bytes.as_ptr())?;
        Some(Piece { start: bytes.as_ptr(), len: bytes.len() as u32, lkey: self.memory.lkey })
    }
}

// SAFETY: `allocate` returns zeroed memory of a range that was free, or of the system.
unsafe impl Arena for VerbsArena {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        let len = layout.size().next_multiple_of(LINE);
        let offset = (layout.align() <= LINE)
            .then(|| self.free.lock().unwrap_or_else(PoisonError::into_inner).take(len))
            .flatten();
        let Some(offset) = offset else {
            // SAFETY: the caller promises that the size is not 0.
            return NonNull::new(unsafe { alloc_zeroed(layout) });
        };
        let memory = NonNull::new(self.memory.start.as_ptr().wrapping_add(offset))?;
        // SAFETY: the range is this memory's, was free, and is the caller's from now on.
        unsafe { memory.write_bytes(0, len) };
        Some(memory)
    }

    unsafe fn release(&self, memory: NonNull<u8>, layout: Layout) {
        match self.memory.offset(memory.as_ptr()) {
            Some(offset) => {
                let len = layout.size().next_multiple_of(LINE);
                self.free.lock().unwrap_or_else(PoisonError::into_inner).give_back(offset, len);
            }
            // SAFETY: other memory comes from the system in `allocate`, with this layout.
            None => unsafe { dealloc(memory.as_ptr(), layout) },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_disjoint_and_merge_when_they_are_returned() {
        let mut free = FreeList(BTreeMap::from([(0, 1_024)]));
        let ranges: Vec<_> = (0..8).map(|_| free.take(128).expect("room")).collect();
        assert_eq!(ranges, [0, 128, 256, 384, 512, 640, 768, 896]);
        assert_eq!(free.take(1), None, "full");
        for at in [128, 384, 256, 896, 0, 640, 512, 768] {
            free.give_back(at, 128);
        }
        assert_eq!(free.0, BTreeMap::from([(0, 1_024)]));
    }
}
