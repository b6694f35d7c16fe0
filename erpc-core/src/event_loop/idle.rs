//! What an endpoint does when there is nothing to do.

use std::time::Duration;

use crate::time::Instant;

/// What a loop that found nothing to do does next.
///
/// Waking a sleeping thread takes the kernel 10 to 50 us, several times a small call; spinning takes a
/// core. The default spins briefly, so that an exchange in progress never sleeps and an idle process
/// costs nothing.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum IdlePolicy {
    /// Looks again at once, for ever: the lowest latency, and one core per endpoint.
    Spin,
    /// Spins, and sleeps when there was nothing to do for that long.
    SpinThenSleep {
        /// How long to spin.
        spin: Duration,
    },
    /// Sleeps at once. For many endpoints on few cores.
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

/// Applies an [`IdlePolicy`] along the turns of one loop.
#[derive(Debug)]
pub(crate) struct Idler {
    policy: IdlePolicy,
    /// When the quiet began, as far as it was looked at.
    quiet_since: Option<Instant>,
    quiet_turns: u32,
}

/// The clock is read every that many quiet turns; a turn of a quiet endpoint takes 0.1 to 1 us.
const TURNS_PER_CLOCK: u32 = 8;

impl Idler {
    pub(crate) fn new(policy: IdlePolicy) -> Self {
        Self { policy, quiet_since: None, quiet_turns: 0 }
    }

    /// The turn had something to do.
    #[inline]
    pub(crate) fn worked(&mut self) {
        self.quiet_turns = 0;
        self.quiet_since = None;
    }

    /// The turn had nothing to do; whether to sleep now.
    #[inline]
    pub(crate) fn should_sleep(&mut self, now: impl FnOnce() -> Instant) -> bool {
        let spin = match self.policy {
            IdlePolicy::Spin => return false,
            IdlePolicy::Sleep => return true,
            IdlePolicy::SpinThenSleep { spin } => spin,
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
    fn spins_for_as_long_as_it_says() {
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
            "work begins a new quiet"
        );
    }

    #[test]
    fn the_extremes() {
        assert!(Idler::new(IdlePolicy::Sleep).should_sleep(|| Instant::ZERO));
        assert!(!Idler::new(IdlePolicy::Spin).should_sleep(|| Instant::NEVER));
    }
}
