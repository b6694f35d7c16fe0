//! What callers want besides a response.

use crate::Random;

/// What callers want besides a response: in a hundred calls, how many.
#[derive(Clone, Copy, Debug, Default)]
pub struct Whims {
    /// Have an extension.
    pub extended_percent: u32,
    /// Have a deadline.
    pub deadline_percent: u32,
    /// Are cancelled, if they have not ended by then.
    pub cancel_percent: u32,
}

/// The longest that a caller waits, in nanoseconds, as a power of two: about a second.
const LONGEST_WAIT: u64 = 30;

impl Whims {
    /// After how many nanoseconds the caller has waited long enough: of every order of magnitude alike, and now
    /// and then at once.
    pub(crate) fn wait(random: &mut Random) -> u64 {
        let order = random.below(LONGEST_WAIT - 9);
        if order == 0 { 0 } else { random.below(1 << (9 + order)) + 1 }
    }
}

/// What the caller of one call wants besides a response.
pub(crate) struct Whim {
    /// An extension.
    pub(crate) extended: bool,
    /// A deadline in so many nanoseconds.
    pub(crate) deadline: Option<u64>,
    /// To cancel it after so many nanoseconds.
    pub(crate) cancel: Option<u64>,
}

impl Whim {
    pub(crate) fn draw(random: &mut Random, whims: &Whims) -> Self {
        let deadline = random.percent(whims.deadline_percent).then(|| Whims::wait(random));
        let cancel = random.percent(whims.cancel_percent).then(|| Whims::wait(random));
        let extended = deadline.is_some() || random.percent(whims.extended_percent);
        Self { extended, deadline, cancel }
    }
}
