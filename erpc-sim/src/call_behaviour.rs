//! What clients do with calls: extensions, deadlines, cancellation.

use crate::Random;

/// How many of a hundred calls have which behaviour.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallMix {
    /// Have an extension.
    pub extended_percent: u32,
    /// Have a deadline.
    pub deadline_percent: u32,
    /// Are cancelled, if they have not ended by then.
    pub cancel_percent: u32,
}

/// The longest deadline or time to a cancellation, in nanoseconds, as a power of two: about a second.
const LONGEST_WAIT: u64 = 30;

impl CallMix {
    /// Nanoseconds after which the caller stops waiting: every order of magnitude is as likely, and zero occurs.
    pub(crate) fn wait(random: &mut Random) -> u64 {
        let order = random.below(LONGEST_WAIT - 9);
        if order == 0 { 0 } else { random.below(1 << (9 + order)) + 1 }
    }
}

/// What the client does with one call.
pub(crate) struct CallBehaviour {
    /// The request has an extension.
    pub(crate) extended: bool,
    /// The deadline, in nanoseconds from now.
    pub(crate) deadline: Option<u64>,
    /// The client cancels the call after so many nanoseconds.
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
