//! Counters of calls.

use crate::counters::counters;

counters! {
    /// How calls ended.
    pub struct Outcomes {
        /// Calls that ended with a response.
        pub responses: u64,
        /// Calls that ended with a status from the server.
        pub statuses: u64,
        /// Calls that were certainly not executed.
        pub not_executed: u64,
        /// Calls that were perhaps executed.
        pub maybe_executed: u64,
        /// Calls that were executed, but whose response is lost.
        pub responses_lost: u64,
        /// Calls that were rejected when they were made.
        pub rejected: u64,
        /// Calls whose caller died before they ended.
        pub abandoned: u64,
    }
}

/// Events at handlers and callers that are no violations.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct HandlerEvents {
    /// Handlers that panicked.
    pub panics: u64,
    /// Requests for which there was no memory.
    pub allocations_refused: u64,
    /// Calls that had an extension.
    pub extended: u64,
    /// Calls and streams that ended because their deadline had passed.
    pub late: u64,
}
