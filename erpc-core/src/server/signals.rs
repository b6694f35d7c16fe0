//! The signals that ask a process to end.

use std::fmt;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::thread::Builder;

use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use slab::Slab;

/// A future that completes when the process receives SIGTERM or SIGINT; see [`shutdown_signal`].
#[must_use = "futures do nothing unless polled"]
pub struct ShutdownSignal {
    /// Index of this future in [`SignalState::waiters`].
    index: usize,
}

/// Handles SIGTERM and SIGINT from now on: the first of them completes the returned future, and
/// those of further calls of this function. The second one ends the process immediately, with exit
/// code 128 plus the signal's number, as Ctrl-C twice does in a terminal.
///
/// Without a handler, process 1 of a container ignores both signals. So call this function before
/// the server is told to end, for example first in `main`. The first call starts a thread that
/// waits for signals as long as the process runs.
///
/// # Errors
/// If the system refuses a signal handler or the thread.
pub fn shutdown_signal() -> io::Result<ShutdownSignal> {
    let mut state = state();
    if !state.is_installed {
        let mut signals = Signals::new([SIGTERM, SIGINT])?;
        let wait = move || signals.forever().for_each(received);
        #[expect(clippy::disallowed_methods, reason = "the iterator of signals blocks")]
        drop(Builder::new().name("erpc-signals".into()).spawn(wait)?);
        state.is_installed = true;
    }
    Ok(ShutdownSignal::new(&mut state))
}

impl ShutdownSignal {
    fn new(state: &mut SignalState) -> Self {
        Self { index: state.waiters.insert(None) }
    }
}

impl Future for ShutdownSignal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        // Cloning or dropping a waker may run any code, so the state must not be locked.
        let mut waker = Some(cx.waker().clone());
        let mut state = state();
        let is_received = state.is_received;
        if !is_received {
            std::mem::swap(&mut state.waiters[self.index], &mut waker);
        }
        drop(state);
        drop(waker);
        if is_received { Poll::Ready(()) } else { Poll::Pending }
    }
}

impl Drop for ShutdownSignal {
    fn drop(&mut self) {
        let waker = state().waiters.remove(self.index);
        // As in `poll`: the lock has ended with the statement above.
        drop(waker);
    }
}

impl fmt::Debug for ShutdownSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShutdownSignal")
    }
}

/// Signal handlers belong to the process, and so does their state.
static STATE: Mutex<SignalState> =
    Mutex::new(SignalState { is_installed: false, is_received: false, waiters: Slab::new() });

struct SignalState {
    is_installed: bool,
    is_received: bool,
    /// The wakers of the futures that exist, `None` for a future that does not wait.
    waiters: Slab<Option<Waker>>,
}

fn state() -> MutexGuard<'static, SignalState> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs on the signals' thread, outside of signal handlers.
fn received(signal: i32) {
    let mut state = state();
    if std::mem::replace(&mut state.is_received, true) {
        process::exit(128 + signal);
    }
    let waiters: Vec<Waker> =
        state.waiters.iter_mut().filter_map(|(_, waiter)| waiter.take()).collect();
    drop(state);
    waiters.into_iter().for_each(Waker::wake);
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::sync::Arc;
    use std::task::Wake;

    use erpc_test_tools::limit::{secs, within};
    use erpc_test_tools::wakers::on_clone;

    use super::*;

    struct Nothing;

    impl Wake for Nothing {
        fn wake(self: Arc<Self>) {}
    }

    /// Polls once with a new waker, and returns the object that the waker refers to.
    fn poll(signal: &mut ShutdownSignal) -> Arc<Nothing> {
        let nothing = Arc::new(Nothing);
        let waker = Waker::from(Arc::clone(&nothing));
        assert!(pin!(signal).poll(&mut Context::from_waker(&waker)).is_pending());
        nothing
    }

    #[test]
    fn a_signal_keeps_the_waker_of_its_last_poll_until_it_is_dropped() {
        let mut signal = ShutdownSignal::new(&mut state());
        let wakers = [poll(&mut signal), poll(&mut signal)];
        assert_eq!(wakers.each_ref().map(Arc::strong_count), [1, 2]);
        let mut other = ShutdownSignal::new(&mut state());
        let kept = poll(&mut other);
        drop(signal);
        assert_eq!(Arc::strong_count(&wakers[1]), 1);
        assert_eq!(Arc::strong_count(&kept), 2, "another signal still waits");
    }

    #[test]
    fn a_waker_may_use_signals_while_it_is_cloned() {
        within(secs(10), || {
            let mut signal = ShutdownSignal::new(&mut state());
            let waker = on_clone(|| {
                let other = ShutdownSignal::new(&mut state());
                drop(other);
            });
            assert!(pin!(&mut signal).poll(&mut Context::from_waker(&waker)).is_pending());
        });
    }
}
