//! What is counted of calls.

use crate::counters::counters;

counters! {
    /// How calls ended.
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
