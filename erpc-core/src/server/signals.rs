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

/// A future that completes when the process receives SIGTERM or SIGINT; see [`shutdown_signal`].
#[must_use = "futures do nothing unless polled"]
pub struct ShutdownSignal(());

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
    Ok(ShutdownSignal(()))
}

impl Future for ShutdownSignal {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut state = state();
        if state.is_received {
            return Poll::Ready(());
        }
        if !state.waiters.iter().any(|waiter| waiter.will_wake(cx.waker())) {
            state.waiters.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl fmt::Debug for ShutdownSignal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ShutdownSignal")
    }
}

/// Signal handlers belong to the process, and so does their state.
static STATE: Mutex<SignalState> =
    Mutex::new(SignalState { is_installed: false, is_received: false, waiters: Vec::new() });

struct SignalState {
    is_installed: bool,
    is_received: bool,
    /// Tasks that wait for the first signal.
    waiters: Vec<Waker>,
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
    let waiters = std::mem::take(&mut state.waiters);
    drop(state);
    waiters.into_iter().for_each(Waker::wake);
}
