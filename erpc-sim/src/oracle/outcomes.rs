//! What is counted of calls.

use std::ops::AddAssign;

/// How calls ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Outcomes {
    /// With a response.
    pub responses: u64,
    /// With a status of the server's.
    pub statuses: u64,
    /// Not executed.
    pub not_executed: u64,
    /// Perhaps executed.
    pub maybe_executed: u64,
    /// Executed, the response lost.
    pub responses_lost: u64,
    /// Not even accepted.
    pub rejected: u64,
    /// The caller died first.
    pub abandoned: u64,
}

impl AddAssign for Outcomes {
    fn add_assign(&mut self, more: Self) {
        self.responses += more.responses;
        self.statuses += more.statuses;
        self.not_executed += more.not_executed;
        self.maybe_executed += more.maybe_executed;
        self.responses_lost += more.responses_lost;
        self.rejected += more.rejected;
        self.abandoned += more.abandoned;
    }
}

/// What handlers and callers met that is no violation.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandlerEvents {
    /// Handlers that panicked.
    pub panics: u64,
    /// Requests that there was no memory for.
    pub allocations_refused: u64,
    /// Calls that had an extension.
    pub extended: u64,
    /// Calls whose deadline has passed.
    pub late: u64,
}
