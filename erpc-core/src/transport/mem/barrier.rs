//! A store-load barrier whose cost falls on the side that goes to sleep.
//!
//! A receiver that sleeps announces it and then looks for packets once more; a sender publishes a
//! packet and then looks for sleepers. One of them must see the other, for which both need a full
//! barrier between their store and their load: 20 to 30 cycles on every doorbell, while sleeping is
//! rare. `membarrier(2)` lets the sleeper run the barrier on every core that runs this process, so
//! that senders need to keep only the compiler in order.

use std::sync::OnceLock;
use std::sync::atomic::compiler_fence;

use crate::sync::atomic::{Ordering, fence};

/// The two halves of the barrier. Every pair must come from [`Barrier::of_process`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Barrier {
    asymmetric: bool,
}

impl Barrier {
    /// The barrier of this process; the same for all callers.
    pub(super) fn of_process() -> Self {
        static ASYMMETRIC: OnceLock<bool> = OnceLock::new();
        Self { asymmetric: *ASYMMETRIC.get_or_init(os::register) }
    }

    /// The frequent side's half: between its store and its load.
    #[inline]
    pub(super) fn light(self) {
        if self.asymmetric {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    /// The rare side's half; a system call, a few microseconds.
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

    /// Asks for the expedited barrier; `false` where the kernel or a sandbox refuses it.
    pub(super) fn register() -> bool {
        membarrier(libc::MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED)
            && membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED)
    }

    pub(super) fn run_on_all_cores() {
        // It worked in `register`; going on without it would lose wake-ups.
        assert!(
            membarrier(libc::MEMBARRIER_CMD_PRIVATE_EXPEDITED),
            "membarrier(2) stopped working"
        );
    }
}

// Where there is no such call, or no kernel: Miri, and loom, to which both halves are full fences.
#[cfg(not(all(target_os = "linux", not(any(miri, loom)))))]
mod os {
    pub(super) fn register() -> bool {
        false
    }

    pub(super) fn run_on_all_cores() {}
}
