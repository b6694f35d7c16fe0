//! A host's clock. It is monotonic, but may stand still, jump and differ from other clocks.

use erpc_core::time::Instant;

/// The clock of one host, as a function of the world's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// How far the clock is ahead of the world's time, in ns. May be negative.
    skew: i64,
    /// The time that the clock shows while it stands still; `None` while it runs.
    stands_at: Option<Instant>,
}

impl Clock {
    pub(crate) fn new(skew: i64) -> Self {
        Self { skew, stands_at: None }
    }

    /// The time that the clock shows.
    pub(crate) fn at(&self, world: Instant) -> Instant {
        self.stands_at
            .unwrap_or(Instant::from_nanos(world.as_nanos().saturating_add_signed(self.skew)))
    }

    /// The world's time at which the clock will show `shown`. `None` while it stands still.
    pub(crate) fn when(&self, shown: Instant) -> Option<Instant> {
        let back = self.skew.checked_neg()?;
        self.stands_at
            .is_none()
            .then(|| Instant::from_nanos(shown.as_nanos().saturating_add_signed(back)))
    }

    /// The clock jumps ahead.
    pub(crate) fn leap(&mut self, nanos: u64) {
        self.skew = self.skew.saturating_add_unsigned(nanos);
    }

    /// The clock stands still from now on.
    pub(crate) fn stop(&mut self, world: Instant) {
        self.stands_at = Some(self.at(world));
    }

    /// The clock runs again. It goes on from the time at which it stood, or, with `catch_up`, from
    /// the time that it would show if it had never stopped.
    pub(crate) fn go_on(&mut self, world: Instant, catch_up: bool) {
        let Some(shown) = self.stands_at.take() else { return };
        if !catch_up {
            let lost = self.at(world).nanos_since(shown);
            self.skew = self.skew.saturating_sub_unsigned(lost);
        }
    }
}
