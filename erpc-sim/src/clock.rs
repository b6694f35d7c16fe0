//! A host's clock: monotonic, and otherwise not to be relied upon.

use erpc_core::time::Instant;

/// The clock of one host, told from the world's time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    /// What it is ahead of the world's time, in nanoseconds; may be negative.
    skew: i64,
    /// What it shows while it stands still.
    stands_at: Option<Instant>,
}

impl Clock {
    pub(crate) fn new(skew: i64) -> Self {
        Self { skew, stands_at: None }
    }

    /// What it shows.
    pub(crate) fn at(&self, world: Instant) -> Instant {
        self.stands_at
            .unwrap_or(Instant::from_nanos(world.as_nanos().saturating_add_signed(self.skew)))
    }

    /// When it will show `shown`; `None` while it stands still.
    pub(crate) fn when(&self, shown: Instant) -> Option<Instant> {
        let back = self.skew.checked_neg()?;
        self.stands_at
            .is_none()
            .then(|| Instant::from_nanos(shown.as_nanos().saturating_add_signed(back)))
    }

    /// It leaps ahead.
    pub(crate) fn leap(&mut self, nanos: u64) {
        self.skew = self.skew.saturating_add_unsigned(nanos);
    }

    /// It stands still from now on.
    pub(crate) fn stop(&mut self, world: Instant) {
        self.stands_at = Some(self.at(world));
    }

    /// It goes on from where it stood, or, with `catch_up`, shows the time it would have shown.
    pub(crate) fn go_on(&mut self, world: Instant, catch_up: bool) {
        let Some(shown) = self.stands_at.take() else { return };
        if !catch_up {
            let lost = self.at(world).nanos_since(shown);
            self.skew = self.skew.saturating_sub_unsigned(lost);
        }
    }
}
