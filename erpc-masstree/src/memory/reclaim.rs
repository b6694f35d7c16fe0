//! When memory that has left the tree is freed.
//!
//! In ordinary builds `crossbeam-epoch` decides. Under loom, a list decides: memory counts as freed
//! when the last of the guards of its retirement is dropped, which is the earliest moment that any
//! scheme allows. It is only marked then, and each access checks the mark. The list itself takes no
//! step that loom could schedule, which keeps the number of schedules small.

#[cfg(loom)]
pub(crate) use model::bury;
#[cfg(loom)]
pub use model::{Guard, pin};
#[cfg(not(loom))]
pub use ordinary::{Guard, pin};

#[cfg(not(loom))]
mod ordinary {
    /// Keeps memory that the thread may look at. See [`pin`].
    #[derive(Debug)]
    pub struct Guard(crossbeam_epoch::Guard);

    /// Begins to read or write trees on this thread.
    ///
    /// Memory that leaves any tree is not freed before all guards of that time are dropped. So hold
    /// a guard for a batch of operations, not for seconds. Costs about 10 ns; nothing if the thread
    /// has a guard already.
    ///
    /// ```
    /// let guard = erpc_masstree::pin();
    /// let tree = erpc_masstree::Masstree::<u64>::new();
    /// tree.put(b"key", 7, &guard)?;
    /// assert_eq!(tree.get(b"key", &guard), Some(7));
    /// # Ok::<(), erpc_masstree::KeyTooLong>(())
    /// ```
    #[inline]
    #[must_use]
    pub fn pin() -> Guard {
        Guard(crossbeam_epoch::pin())
    }

    impl Guard {
        /// Hands the memory that this thread has retired to all threads, so that the next ones to
        /// pin free it. Otherwise a thread keeps up to 64 pieces until it retires more or ends.
        pub fn flush(&self) {
            self.0.flush();
        }

        /// Like dropping the guard and pinning again. Does nothing if the thread has another guard.
        pub fn repin(&mut self) {
            self.0.repin();
        }

        /// Calls `free` when all guards of this moment are gone, on any thread.
        ///
        /// # Safety
        ///
        /// The memory that `free` frees keeps the rules of [`crate::memory`], and any thread may
        /// free it.
        pub(in crate::memory) unsafe fn defer(&self, free: impl FnOnce() + 'static) {
            // SAFETY: rule 1 and rule 2 hold, says the caller. What `free` captures is `'static`.
            unsafe { self.0.defer_unchecked(free) };
        }
    }
}

#[cfg(loom)]
mod model {
    use std::cell::RefCell;
    use std::marker::PhantomData;
    use std::mem;
    use std::sync::atomic::{AtomicBool, Ordering};

    loom::lazy_static! {
        /// Passes on what threads have seen, as the epochs do: a thread that pins after a
        /// retirement sees that the memory has left the tree.
        static ref SEEN: loom::sync::atomic::AtomicU64 = loom::sync::atomic::AtomicU64::new(0);
    }

    /// The checking version of the ordinary `Guard`.
    #[derive(Debug)]
    pub struct Guard {
        number: u64,
        not_send: PhantomData<*mut ()>,
    }

    /// Memory that has been retired.
    struct Retired {
        /// The guards that may still look at it.
        guards: Vec<u64>,
        freed: *const AtomicBool,
        free: Box<dyn FnOnce()>,
    }

    #[derive(Default)]
    struct State {
        pins: u64,
        guards: Vec<u64>,
        limbo: Vec<Retired>,
        grave: Vec<Box<dyn FnOnce()>>,
    }

    thread_local! {
        // Loom runs all threads of a model on one thread of the system.
        static STATE: RefCell<State> = RefCell::default();
    }

    /// Begins to read or write trees.
    #[must_use]
    pub fn pin() -> Guard {
        let number = STATE.with_borrow_mut(|state| {
            state.pins += 1;
            state.guards.push(state.pins);
            state.pins
        });
        // After the line above, and before it in `defer`. So each retirement either waits for this
        // guard, or is seen by it.
        SEEN.fetch_add(1, Ordering::AcqRel);
        Guard { number, not_send: PhantomData }
    }

    /// Frees what counts as freed. Called when the tree is dropped.
    pub(crate) fn bury() {
        let grave = STATE.with_borrow_mut(|state| mem::take(&mut state.grave));
        grave.into_iter().for_each(|free| free());
    }

    impl Guard {
        /// Does nothing.
        pub fn flush(&self) {}

        /// Like dropping the guard and pinning again.
        pub fn repin(&mut self) {
            *self = pin();
        }

        pub(in crate::memory) unsafe fn defer(
            &self,
            freed: *const AtomicBool,
            free: impl FnOnce() + 'static,
        ) {
            SEEN.fetch_add(1, Ordering::AcqRel);
            STATE.with_borrow_mut(|state| {
                let guards = state.guards.clone();
                state.limbo.push(Retired { guards, freed, free: Box::new(free) });
            });
        }
    }

    impl Drop for Guard {
        fn drop(&mut self) {
            STATE.with_borrow_mut(|state| {
                state.guards.retain(|&guard| guard != self.number);
                let mut kept = Vec::new();
                for mut retired in mem::take(&mut state.limbo) {
                    retired.guards.retain(|&guard| guard != self.number);
                    if !retired.guards.is_empty() {
                        kept.push(retired);
                        continue;
                    }
                    // SAFETY: the memory is kept until `bury` has called `free`.
                    unsafe { &*retired.freed }.store(true, Ordering::Relaxed);
                    state.grave.push(retired.free);
                }
                state.limbo = kept;
            });
        }
    }
}
