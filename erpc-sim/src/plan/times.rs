//! The time scale of a run.

use super::{MS, SECOND};
use crate::{Features, Random, Scenario};

/// The time scale of a run, in nanoseconds.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) liveness: u64,
    pub(super) ping: u64,
    pub(super) connect: u64,
    pub(super) rto: u64,
    /// For how long faults act and calls are made.
    pub(super) length: u64,
}

impl Times {
    /// `features` are the features that the seed drew, before any were cut: shrinking must not
    /// change times.
    pub(super) fn draw(random: &mut Random, scenario: Scenario, features: Features) -> Self {
        let liveness = *random.pick(&[200 * MS, 500 * MS, 2 * SECOND, 10 * SECOND]);
        let connect = *random.pick(&[200 * MS, SECOND, 2 * SECOND]);
        let rto = *random.pick(&[100_000, MS, 5 * MS, 20 * MS]);
        let length = *random.pick(&[20 * MS, 200 * MS, 2 * SECOND, 15 * SECOND]);
        let (liveness, connect, rto, length) = match scenario {
            Scenario::Calm => (10 * SECOND, 2 * SECOND, 5 * MS, 50 * MS),
            Scenario::Path => (10 * SECOND, 2 * SECOND, 5 * MS, 4_500 * MS),
            // The long runs last longer than the liveness timeout, so that idle sessions need their
            // pings to stay alive.
            _ if features.spare_sessions() => {
                let length = *random.pick(&[2 * SECOND, 20 * SECOND, 40 * SECOND]);
                (10 * SECOND, connect, rto, length)
            }
            _ => (liveness, connect, rto, length),
        };
        Self { liveness, ping: liveness * 3 / 10, connect, rto, length }
    }
}
