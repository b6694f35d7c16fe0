//! The behaviour of calls: extensions, deadlines, cancellation.

use crate::Random;

/// Percentages of calls with each behaviour.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallMix {
    /// Percentage of calls with an extension.
    pub extended_percent: u32,
    /// Percentage of calls with a deadline.
    pub deadline_percent: u32,
    /// Percentage of calls that are cancelled, unless they end earlier.
    pub cancel_percent: u32,
}

/// The longest deadline or time to a cancellation is 2^(`LONGEST_WAIT` - 1) ns, about half a
/// second.
const LONGEST_WAIT: u64 = 30;

impl CallMix {
    /// Draws the time after which a caller stops waiting, in ns: 0, or a random time up to a bound.
    /// The bound is a power of two from 1 us to half a second. The time 0 and all bounds are
    /// equally likely.
    pub(crate) fn wait(random: &mut Random) -> u64 {
        let order = random.below(LONGEST_WAIT - 9);
        if order == 0 { 0 } else { random.below(1 << (9 + order)) + 1 }
    }
}

/// The behaviour of one call.
pub(crate) struct CallBehaviour {
    /// The request has an extension.
    pub(crate) extended: bool,
    /// Time until the deadline, in ns.
    pub(crate) deadline: Option<u64>,
    /// Time until the client cancels the call, in ns.
    pub(crate) cancel: Option<u64>,
}

impl CallBehaviour {
    pub(crate) fn draw(random: &mut Random, mix: &CallMix) -> Self {
        let deadline = random.percent(mix.deadline_percent).then(|| CallMix::wait(random));
        let cancel = random.percent(mix.cancel_percent).then(|| CallMix::wait(random));
        let extended = deadline.is_some() || random.percent(mix.extended_percent);
        Self { extended, deadline, cancel }
    }
}
