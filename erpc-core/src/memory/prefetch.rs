//! Loads memory into the processor's cache before it is read.

/// Size of a cache line, in bytes. Where lines are longer, some are requested twice, which is
/// cheap.
const LINE: usize = 64;

/// Tells the processor that `value` will be read soon. The processor then loads its cache lines in
/// the background, so that several loads overlap. Does not wait, reads nothing and never faults.
///
/// Costs one instruction per 64 bytes, and helps only if there is other work for about 100 ns
/// before the read, such as the prefetches of other values. A [burst hook](crate::service::Burst)
/// is the place for it. Does nothing on processors other than `x86_64` and `aarch64`.
///
/// ```
/// let table = vec![[0_u8; 64]; 1_000];
/// for index in [7, 901, 44] {
///     erpc_core::memory::prefetch(&table[index]);
/// }
/// ```
#[inline]
pub fn prefetch<T: ?Sized>(value: &T) {
    let first = std::ptr::from_ref(value).cast::<u8>();
    // A value need not begin at the start of a line, so it may have a part of one more line.
    let into_line = first.addr() % LINE;
    let mut at = 0;
    while at < into_line + size_of_val(value) {
        prefetch_line(first.wrapping_sub(into_line).wrapping_add(at));
        at += LINE;
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
#[inline(always)]
pub(crate) fn prefetch_line(line: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is a hint. It has no effect but on caches, for any address.
    unsafe { _mm_prefetch::<_MM_HINT_T0>(line.cast()) }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
#[inline(always)]
pub(crate) fn prefetch_line(line: *const u8) {
    // SAFETY: the instruction is a hint. It has no effect but on caches, for any address.
    unsafe {
        std::arch::asm!(
            "prfm pldl1keep, [{line}]",
            line = in(reg) line,
            options(nostack, preserves_flags, readonly)
        );
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
#[inline(always)]
pub(crate) fn prefetch_line(_: *const u8) {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_of_any_size_and_place_are_accepted() {
        let bytes = [1_u8; 300];
        prefetch(&());
        for (start, len) in [(0, 0), (1, 1), (63, 2), (0, 300), (299, 1)] {
            prefetch(&bytes[start..start + len]);
        }
        prefetch("text");
        assert_eq!(bytes, [1; 300], "a prefetch changes nothing");
    }
}
