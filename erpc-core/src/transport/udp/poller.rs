//! Lets an endpoint's thread sleep, and wakes it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use rustix::io::Errno;

use crate::transport::Waker;

/// The owner is awake, and no waker was used since its last sleep.
const IDLE: u8 = 0;
/// The owner sleeps, or is about to: a waker must write the eventfd.
const ASLEEP: u8 = 1;
/// A waker was used since the last sleep; the next sleep ends immediately.
const CALLED: u8 = 2;

/// Lets an endpoint's thread sleep until its socket is readable or a waker is used.
pub(in crate::transport) struct Poller {
    bell: Arc<Bell>,
}

struct Bell {
    state: AtomicU8,
    event: OwnedFd,
}

impl Poller {
    pub(in crate::transport) fn new() -> Result<Self, Errno> {
        let event = eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        Ok(Self { bell: Arc::new(Bell { state: AtomicU8::new(IDLE), event }) })
    }

    /// A waker. Costs one atomic exchange while the owner is awake, a system call while it sleeps.
    pub(in crate::transport) fn waker(&self) -> Waker {
        let bell = Arc::clone(&self.bell);
        Waker::new(move || bell.ring())
    }

    /// Sleeps until `socket` is readable or has an error, a waker is used, or `timeout` has passed.
    /// Returns whether the socket has an error.
    pub(super) fn sleep(&self, socket: BorrowedFd<'_>, timeout: Option<Duration>) -> bool {
        if !self.begin_sleep() {
            return false;
        }
        let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
        let mut fds = [
            PollFd::from_borrowed_fd(socket, PollFlags::IN),
            PollFd::from_borrowed_fd(self.event(), PollFlags::IN),
        ];
        // A signal may end the poll early; callers expect that.
        let _ = poll(&mut fds, timeout.as_ref());
        let (has_error, rung) =
            (fds[0].revents().contains(PollFlags::ERR), !fds[1].revents().is_empty());
        self.end_sleep(rung);
        has_error
    }

    /// The eventfd, which wakers make readable while the owner sleeps.
    pub(in crate::transport) fn event(&self) -> BorrowedFd<'_> {
        self.bell.event.as_fd()
    }

    /// Begins a sleep: from here on, wakers write the eventfd. Returns false and begins no sleep if
    /// a waker was used since the last sleep.
    pub(in crate::transport) fn begin_sleep(&self) -> bool {
        let state = &self.bell.state;
        let slept =
            state.compare_exchange(IDLE, ASLEEP, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if !slept {
            // An exchange, not a store: it makes the last waker's earlier writes visible here.
            state.swap(IDLE, Ordering::AcqRel);
        }
        slept
    }

    /// Ends a sleep. `rung`: the eventfd was readable.
    pub(in crate::transport) fn end_sleep(&self, rung: bool) {
        self.bell.state.swap(IDLE, Ordering::AcqRel);
        if rung {
            // Reset the eventfd, so that one wake ends one sleep. A waker that writes late ends one
            // more sleep, which is allowed.
            let _ = rustix::io::read(&self.bell.event, &mut [0_u8; 8]);
        }
    }
}

impl Bell {
    fn ring(&self) {
        if self.state.swap(CALLED, Ordering::AcqRel) == ASLEEP {
            // Fails only if 2^64 - 2 wakes are pending, and then the sleeper wakes anyway.
            let _ = rustix::io::write(&self.event, &1_u64.to_ne_bytes());
        }
    }
}
