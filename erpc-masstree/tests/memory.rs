//! Memory that a tree no longer needs goes back to the allocator.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicUsize, Ordering};

use erpc_masstree::{Masstree, pin};

/// Counts the bytes that are allocated.
struct Counting;

static BYTES: AtomicUsize = AtomicUsize::new(0);

// SAFETY: passes all calls on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size(), Ordering::Relaxed);
        // SAFETY: the caller keeps the rules of `alloc`.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        BYTES.fetch_sub(layout.size(), Ordering::Relaxed);
        // SAFETY: `alloc` has allocated the block with this layout.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// Keys that end in the first layer, in deep layers, and in layers of two.
fn key(number: u64) -> Vec<u8> {
    match number % 3 {
        0 => number.wrapping_mul(0x9e37_79b9_7f4a_7c15).to_be_bytes().to_vec(),
        1 => format!("a prefix of many keys, number {number}").into_bytes(),
        _ => format!("{:08}, and then {number}", number / 6).into_bytes(),
    }
}

/// Bytes once all that has left the tree is freed.
fn settled() -> usize {
    let mut least = usize::MAX;
    // Each turn can move the epoch on by one. Memory is freed two epochs after it was retired, and
    // each turn frees some.
    for _ in 0..10_000 {
        pin().flush();
        least = least.min(BYTES.load(Ordering::Relaxed));
    }
    least
}

// One test, because all tests of a program share the count.
#[test]
fn memory_of_removed_keys_and_dropped_trees_is_freed() {
    const KEYS: u64 = 30_000;
    // Bytes that the epochs keep for themselves, and what the test's harness allocates.
    const SLACK: usize = 20_000;
    pin().flush();
    let before = settled();
    let tree = Masstree::<Box<[u64; 4]>>::new();
    let empty = settled();
    for round in 0..3 {
        for number in 0..KEYS {
            tree.put(&key(number), Box::new([number; 4]), &pin()).unwrap();
            if number % 5 == 0 {
                tree.put(&key(number), Box::new([round; 4]), &pin()).unwrap();
            }
        }
        let full = settled();
        assert!(full > empty + KEYS as usize * 40, "full: {full} bytes, empty: {empty}");
        for number in 0..KEYS {
            let number = if round == 1 { KEYS - 1 - number } else { number };
            assert!(tree.remove(&key(number), &pin()).is_some());
        }
        let removed = settled();
        assert!(removed < empty + SLACK, "round {round}: {removed} bytes, empty: {empty}");
    }
    for number in 0..KEYS {
        tree.put(&key(number), Box::new([number; 4]), &pin()).unwrap();
    }
    drop(tree);
    let dropped = settled();
    assert!(dropped < before + SLACK, "dropped: {dropped} bytes, before: {before}");
}
