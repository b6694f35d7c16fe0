//! What an endpoint does while it has no work.

use std::thread::yield_now;
use std::time::Duration;

use crate::time::Instant;

/// What a loop does after a turn without work.
///
/// The kernel takes 10 to 50 us to wake a sleeping thread, several times as long as a small call;
/// spinning occupies a core. By default a loop spins briefly before it sleeps. So it does not sleep
/// in the middle of an exchange, and an idle process uses no processor time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// Never sleeps: the lowest latency, and one core per endpoint.
    Spin,
    /// Spins, and sleeps after a period of `spin` without work.
    SpinThenSleep {
        /// How long to spin.
        spin: Duration,
    },
    /// Like [`IdlePolicy::SpinThenSleep`], but gives its core to other threads between turns, if
    /// any is ready to run. For loops that share their cores with busy threads, such as those of an
    /// async runtime. A turn then costs a system call more while the loop has no work.
    YieldThenSleep {
        /// How long to spin.
        spin: Duration,
    },
    /// Sleeps immediately. For many endpoints on few cores.
    Sleep,
}

impl IdlePolicy {
    /// How long the default policy spins.
    pub const DEFAULT_SPIN: Duration = Duration::from_micros(50);
}

impl Default for IdlePolicy {
    fn default() -> Self {
        Self::SpinThenSleep { spin: Self::DEFAULT_SPIN }
    }
}

/// Applies an [`IdlePolicy`] to the turns of one loop.
#[derive(Debug)]
pub(crate) struct Idler {
    policy: IdlePolicy,
    /// When the idle period began, as of the first clock reading in it.
    quiet_since: Option<Instant>,
    quiet_turns: u32,
}

/// The clock is read once per this many idle turns. An idle endpoint's turn takes 0.1 to 1 us.
const TURNS_PER_CLOCK: u32 = 8;

impl Idler {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        Self { policy, quiet_since: None, quiet_turns: 0 }
    }

    /// Called after a turn with work.
    #[inline]
    pub(crate) fn worked(&mut self) {
        self.quiet_turns = 0;
        self.quiet_since = None;
    }

    /// Passes the time between two turns without work.
    #[inline]
    pub(crate) fn pause(&self) {
        match self.policy {
            IdlePolicy::YieldThenSleep { .. } => yield_now(),
            _ => std::hint::spin_loop(),
        }
    }

    /// Called after a turn without work. Returns whether to sleep now.
    #[inline]
    pub(crate) fn should_sleep(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let spin = match self.policy {
            IdlePolicy::Spin => return false,
            IdlePolicy::Sleep => return true,
            IdlePolicy::SpinThenSleep { spin } | IdlePolicy::YieldThenSleep { spin } => spin,
        };
        self.quiet_turns += 1;
        if self.quiet_turns % TURNS_PER_CLOCK != 1 {
            return false;
        }
        let now = now();
        now - *self.quiet_since.get_or_insert(now) >= spin
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_loop_spins_for_the_configured_time() {
        let spin = Duration::from_micros(50);
        let mut idler = Idler::new(IdlePolicy::SpinThenSleep { spin });
        let mut nanos = 0;
        let turns = |idler: &mut Idler, nanos: &mut u64| {
            let begin = *nanos;
            while !idler.should_sleep(|| Instant::from_nanos(*nanos)) {
                *nanos += 100;
            }
            *nanos - begin
        };
        assert!((50_000..52_000).contains(&turns(&mut idler, &mut nanos)));
        idler.worked();
        assert!(
            (50_000..52_000).contains(&turns(&mut idler, &mut nanos)),
            "work ends an idle period"
        );
    }

    #[test]
    fn sleep_never_spins_and_spin_never_sleeps() {
        assert!(Idler::new(IdlePolicy::Sleep).should_sleep(|| Instant::ZERO));
        assert!(!Idler::new(IdlePolicy::Spin).should_sleep(|| Instant::NEVER));
    }
}
