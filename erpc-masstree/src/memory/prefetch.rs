//! Prefetches.

const LINE: usize = 64;

/// Brings the first `bytes` bytes at this address into the first-level cache.
#[inline]
pub(crate) fn prefetch_lines<T>(address: *const T, bytes: usize) {
    let address = address.cast::<u8>();
    for line in 0..bytes.div_ceil(LINE) {
        prefetch(address.wrapping_add(line * LINE));
    }
}

#[cfg(all(target_arch = "x86_64", not(miri), not(loom)))]
#[inline]
fn prefetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: a prefetch accesses nothing that a program can observe, at any address.
    unsafe { _mm_prefetch(address.cast(), _MM_HINT_T0) };
}

#[cfg(not(all(target_arch = "x86_64", not(miri), not(loom))))]
fn prefetch(_address: *const u8) {}
