//! An allocator that counts per thread and account, so that tests in one process do not disturb
//! each other.
//!
//! ```
//! use erpc_test_tools::counting::{Account, Counting};
//!
//! #[global_allocator]
//! static ALLOCATOR: Counting = Counting;
//!
//! let account = Account::new(0);
//! let boxed = account.charge(|| Box::new([0u8; 100]));
//! assert_eq!((account.allocations(), account.live_bytes()), (1, 100));
//! account.charge(|| drop(boxed));
//! assert_eq!((account.allocations(), account.live_bytes()), (1, 0));
//! ```

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::marker::PhantomData;

/// Accounts per thread.
pub const ACCOUNTS: usize = 4;

#[derive(Clone, Copy)]
struct Totals {
    allocations: u64,
    allocated_bytes: u64,
    freed_bytes: u64,
}

impl Totals {
    const NONE: Self = Self { allocations: 0, allocated_bytes: 0, freed_bytes: 0 };
}

thread_local! {
    /// The account that is charged now; [`ACCOUNTS`] for none. It has neither a destructor nor an
    /// initialiser, so that the allocator may use it at any time.
    static CHARGED: Cell<usize> = const { Cell::new(ACCOUNTS) };
    static TOTALS: [Cell<Totals>; ACCOUNTS] = const { [const { Cell::new(Totals::NONE) }; ACCOUNTS] };
}

#[inline]
fn note(change: impl FnOnce(&mut Totals)) {
    let at = CHARGED.get();
    TOTALS.with(|accounts| {
        if let Some(account) = accounts.get(at) {
            let mut totals = account.get();
            change(&mut totals);
            account.set(totals);
        }
    });
}

fn note_allocation(size: usize) {
    note(|totals| {
        totals.allocations += 1;
        totals.allocated_bytes += size as u64;
    });
}

fn note_free(size: usize) {
    note(|totals| totals.freed_bytes += size as u64);
}

/// The system allocator with counters.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every method forwards its arguments to the same method of `System`, which is an
// allocator. Counting only changes thread-local cells without destructors, and neither allocates
// nor panics.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note_allocation(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc`, which `System` shares.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note_allocation(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc::alloc_zeroed`, which `System`
        // shares.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note_free(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc::dealloc`. `memory` is from
        // `System`, because all methods here forward to it.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note_allocation(new_size);
        note_free(layout.size());
        // SAFETY: the caller upholds the contract of `GlobalAlloc::realloc`. `memory` is from
        // `System`, because all methods here forward to it.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// One of this thread's accounts. [`Account::new`] empties it.
#[derive(Debug)]
pub struct Account {
    at: usize,
    /// Makes the type `!Send`, because accounts belong to their thread.
    thread: PhantomData<*const ()>,
}

impl Account {
    /// Account `at` of this thread, with all counters at 0.
    ///
    /// # Panics
    /// If `at` is not below [`ACCOUNTS`].
    #[must_use]
    pub fn new(at: usize) -> Self {
        TOTALS.with(|accounts| accounts[at].set(Totals::NONE));
        Self { at, thread: PhantomData }
    }

    fn totals(&self) -> Totals {
        TOTALS.with(|accounts| accounts[self.at].get())
    }

    /// Runs `body` and counts its allocations and frees on this thread in this account.
    pub fn charge<R>(&self, body: impl FnOnce() -> R) -> R {
        let before = CHARGED.replace(self.at);
        let result = body();
        CHARGED.set(before);
        result
    }

    /// Number of allocations so far, including reallocations.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        self.totals().allocations
    }

    /// Bytes allocated so far.
    #[must_use]
    pub fn allocated_bytes(&self) -> u64 {
        self.totals().allocated_bytes
    }

    /// Bytes allocated minus bytes freed in this account. Bytes freed here count even if their
    /// allocation was charged to another account.
    #[must_use]
    pub fn live_bytes(&self) -> i64 {
        let Totals { allocated_bytes, freed_bytes, .. } = self.totals();
        allocated_bytes as i64 - freed_bytes as i64
    }
}
