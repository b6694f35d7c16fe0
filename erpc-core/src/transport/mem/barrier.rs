//! A store-load barrier whose cost is paid by the side that goes to sleep.
//!
//! A receiver announces that it goes to sleep, and then checks for packets once more. A sender
//! publishes a packet and then checks for a sleeper. At least one of them must see the other, so
//! both need a full barrier between their store and their load. That costs 20 to 30 cycles on every
//! doorbell, while sleeping is rare. With `membarrier(2)` the sleeper runs the barrier on every
//! core that runs this process, and senders need only a compiler fence.

use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{Ordering, fence};

/// The two halves of the barrier. Both sides must use [`Barrier::of_process`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    asymmetric: bool,
}

impl Barrier {
    /// The barrier of this process; equal for all callers.
    pub(super) fn of_process() -> Self {
        static ASYMMETRIC: OnceLock<bool> = OnceLock::new();
        Self { asymmetric: *ASYMMETRIC.get_or_init(os::register) }
    }

    /// The senders' half, between their store and their load. It runs often, so it must be cheap.
    #[inline]
    pub(super) fn light(self) {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The sleeper's half, between its store and its load. It runs rarely. It costs a system call
    /// of a few microseconds.
    pub(super) fn heavy(self) {
        fence(Ordering::SeqCst);
        if self.asymmetric {
            os::run_on_all_cores();
        }
    }
}

#[cfg(all(target_os = "linux", not(any(miri, loom))))]
mod os {
    fn membarrier(command: libc::c_int) -> bool {
        const NO_FLAGS: libc::c_uint = 0;
        const NO_CPU: libc::c_int = 0;
        // SAFETY: membarrier takes no pointers.
        unsafe { libc::syscall(libc::SYS_membarrier, command, NO_FLAGS, NO_CPU) == 0 }
    }

    /// Registers for the expedited barrier. `false` if the kernel or a sandbox refuses it.
    pub(super) fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    pub(super) fn run_on_all_cores() {
        // The call succeeded in `register`. Continuing after a failure would lose wake-ups.
        assert!(
            membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED),
            "membarrier(2) stopped working"
        );
    }
}

// Without membarrier(2), or without a kernel (Miri, loom), both halves are full fences.
#[cfg(not(all(target_os = "linux", not(any(miri, loom)))))]
mod os {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run_on_all_cores() {}
}
