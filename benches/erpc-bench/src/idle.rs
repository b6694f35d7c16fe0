//! What a loop of the raw layer does between two turns without work.

use std::thread;
use std::time::{Duration, Instant};

use clap::ValueEnum;
use erpc::raw::Rpc;
use erpc::{IdlePolicy, Transport};

/// What a loop does while it has no work.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Idle {
    /// Never sleeps
    Spin,
    /// Spins for 50 us, then sleeps
    SpinThenPark,
    /// Gives its core to other threads, and never sleeps. With `--tokio` sleeps after 50 us
    Yield,
    /// Sleeps immediately
    Park,
}

impl Idle {
    /// The same policy for a loop of the library.
    pub(crate) fn policy(self) -> IdlePolicy {
        match self {
            Self::Spin => IdlePolicy::Spin,
            Self::SpinThenPark => IdlePolicy::default(),
            Self::Yield => IdlePolicy::YieldThenSleep { spin: IdlePolicy::DEFAULT_SPIN },
            Self::Park => IdlePolicy::Sleep,
        }
    }
}

/// Most time of a sleep: the loop also has to look at its clock.
const MOST_PARKED: Duration = Duration::from_millis(100);

/// The pauses of a loop.
pub(crate) struct Pauses {
    idle: Idle,
    quiet_since: Option<Instant>,
}

impl Pauses {
    pub(crate) fn new(idle: Idle) -> Self {
        Self { idle, quiet_since: None }
    }

    /// Called after each turn with the amount of its work.
    #[inline]
    pub(crate) fn after_turn<T: Transport>(&mut self, rpc: &mut Rpc<T>, work: usize) {
        if work > 0 {
            self.quiet_since = None;
        } else if self.idle != Idle::Spin {
            self.pause(rpc);
        }
    }

    fn pause<T: Transport>(&mut self, rpc: &mut Rpc<T>) {
        match self.idle {
            Idle::Spin => {}
            Idle::Yield => thread::yield_now(),
            Idle::Park => rpc.wait(Some(MOST_PARKED)),
            Idle::SpinThenPark => {
                let now = Instant::now();
                if now - *self.quiet_since.get_or_insert(now) >= IdlePolicy::DEFAULT_SPIN {
                    rpc.wait(Some(MOST_PARKED));
                    self.quiet_since = None;
                }
            }
        }
    }
}
