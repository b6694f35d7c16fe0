//! Memory for messages that devices read in place.

use std::alloc::{Layout, alloc_zeroed, dealloc};
use std::ptr::NonNull;

use dpdk_sys::erpc_range;

use crate::buf::Arena;

/// DPDK's memory, which is mapped for its devices. When it is exhausted, messages are in the
/// system's memory and are copied.
#[derive(Clone)]
pub(super) struct DpdkArena {
    ranges: Vec<erpc_range>,
}

impl DpdkArena {
    /// `None` if devices use other addresses than this process. DPDK runs.
    pub(super) fn new(device: &str) -> Option<Self> {
        let mut ranges = vec![erpc_range::default(); 64];
        // SAFETY: room for so many ranges; DPDK runs.
        let count = unsafe { dpdk_sys::erpc_memory(ranges.as_mut_ptr(), ranges.len() as i32) };
        ranges.truncate(count.max(0) as usize);
        if device.starts_with("net_memif") {
            // Its zero copy sends offsets into the first region, and wild ones for other memory.
            ranges.truncate(1);
        }
        (!ranges.is_empty()).then_some(Self { ranges })
    }

    /// Whether devices can read at `memory`.
    #[inline]
    pub(super) fn contains(&self, memory: *const u8) -> bool {
        let at = memory.addr() as u64;
        self.ranges.iter().any(|range| (range.start..range.end).contains(&at))
    }
}

// SAFETY: `allocate` returns new zeroed memory of DPDK or of the system.
unsafe impl Arena for DpdkArena {
    fn allocate(&self, layout: Layout) -> Option<NonNull<u8>> {
        // SAFETY: DPDK runs, and is thread-safe here. It refuses what it cannot satisfy.
        let memory = unsafe { dpdk_sys::erpc_allocate(layout.size(), layout.align()) };
        NonNull::new(memory.cast::<u8>()).or_else(|| {
            // SAFETY: the caller promises that the size is not 0.
            NonNull::new(unsafe { alloc_zeroed(layout) })
        })
    }

    unsafe fn release(&self, memory: NonNull<u8>, layout: Layout) {
        if dpdk_owns(memory) {
            // SAFETY: memory of DPDK comes from `allocate`, and nobody uses it any more.
            unsafe { dpdk_sys::erpc_free(memory.as_ptr().cast()) };
        } else {
            // SAFETY: other memory comes from the system in `allocate`, with this layout.
            unsafe { dealloc(memory.as_ptr(), layout) };
        }
    }
}

/// Whether the memory is DPDK's, wherever it lies.
fn dpdk_owns(memory: NonNull<u8>) -> bool {
    let mut ranges = [erpc_range::default(); 64];
    // SAFETY: room for so many ranges; DPDK runs.
    let count = unsafe { dpdk_sys::erpc_memory(ranges.as_mut_ptr(), ranges.len() as i32) };
    let at = memory.addr().get() as u64;
    ranges[..count.max(0) as usize].iter().any(|range| (range.start..range.end).contains(&at))
}
