//! An allocator that counts, per thread and account, so that tests in one process do not disturb each
//! other.
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
struct Book {
    allocations: u64,
    live_bytes: i64,
}

thread_local! {
    /// What is charged now. Without a destructor and without an initialiser, so that the allocator may
    /// use it at any time.
    static CHARGED: Cell<usize> = const { Cell::new(ACCOUNTS) };
    static BOOKS: Cell<[Book; ACCOUNTS]> = const { Cell::new([Book { allocations: 0, live_bytes: 0 }; ACCOUNTS]) };
}

fn note(allocations: u64, bytes: i64) {
    let at = CHARGED.get();
    if at < ACCOUNTS {
        let mut books = BOOKS.get();
        books[at].allocations += allocations;
        books[at].live_bytes += bytes;
        BOOKS.set(books);
    }
}

/// The system's allocator, counting.
#[derive(Debug)]
pub struct Counting;

// SAFETY: every method is the system allocator's, and counting touches thread-local cells only.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc(layout) }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        note(1, layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.alloc_zeroed(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        note(0, -(layout.size() as i64));
        // SAFETY: as the caller promises.
        unsafe { System.dealloc(memory, layout) }
    }

    unsafe fn realloc(&self, memory: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        note(1, new_size as i64 - layout.size() as i64);
        // SAFETY: as the caller promises.
        unsafe { System.realloc(memory, layout, new_size) }
    }
}

/// One of this thread's accounts, empty when made.
#[derive(Debug)]
pub struct Account {
    at: usize,
    /// Accounts belong to their thread.
    thread: PhantomData<*const ()>,
}

impl Account {
    /// Account `at` of this thread.
    ///
    /// # Panics
    /// If there is no such account.
    #[must_use]
    pub fn new(at: usize) -> Self {
        let mut books = BOOKS.get();
        books[at] = Book { allocations: 0, live_bytes: 0 };
        BOOKS.set(books);
        Self { at, thread: PhantomData }
    }

    /// Runs `body`; what it allocates and frees on this thread goes to this account.
    pub fn charge<R>(&self, body: impl FnOnce() -> R) -> R {
        let before = CHARGED.replace(self.at);
        let result = body();
        CHARGED.set(before);
        result
    }

    /// Allocations so far, changes of size included.
    #[must_use]
    pub fn allocations(&self) -> u64 {
        BOOKS.get()[self.at].allocations
    }

    /// Bytes allocated and not freed, less those freed that others had allocated.
    #[must_use]
    pub fn live_bytes(&self) -> i64 {
        BOOKS.get()[self.at].live_bytes
    }
}
