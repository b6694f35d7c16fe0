//! The report of a run.

use erpc_core::time::Instant;
use erpc_core::transport::fault::FaultCounts;

use crate::counters::counters;
use crate::oracle::{Outcomes, Streams, Violation};

/// The progress of a run that a panic ended.
#[derive(Default)]
pub(crate) struct Progress {
    pub(crate) at: Instant,
    /// The endpoint that acted.
    pub(crate) place: Option<String>,
    pub(crate) packets: u64,
    pub(crate) calls: u64,
}

/// The outcome of a run.
#[derive(Clone, Debug)]
pub struct RunReport {
    /// The first rule that was violated.
    pub violation: Option<Violation>,
    /// Packets put on the network.
    pub packets: u64,
    /// Calls that were made.
    pub calls: u64,
    /// How the calls ended.
    pub outcomes: Outcomes,
    /// How the streams ended.
    pub streams: Streams,
    /// Sessions that were opened.
    pub sessions_opened: u64,
    /// How often packet faults acted.
    pub faults: FaultCounts,
    /// How often each single event acted.
    pub happened: Happened,
    /// A hash of every packet's header, length and time, in order, and of the outcomes.
    pub trace_hash: u64,
    /// Duration of the run on the world's clock, in ns.
    pub nanos: u64,
    /// The part of the time bound that the last calls needed after the faults ended, in
    /// thousandths.
    pub bound_used: u64,
}

counters! {
    /// How often single events acted.
    #[expect(missing_docs, reason = "the names of plan::PlannedEvent, and of what a user does")]
    pub struct Happened {
        pub crashes: u64,
        pub stops: u64,
        pub replayed: u64,
        pub forged: u64,
        pub stalls: u64,
        pub leaps: u64,
        pub hoards: u64,
        pub reconnects: u64,
        pub late_answers: u64,
        pub extended: u64,
        pub late: u64,
        pub cancels: u64,
        pub cancelled: u64,
        pub late_responses: u64,
        pub overflows: u64,
        pub panics: u64,
        pub allocations_refused: u64,
        pub responses_refused: u64,
        pub turned_down: u64,
        pub given_up: u64,
        pub nic_drops: u64,
        pub switch_drops: u64,
        pub marks: u64,
        pub streams: u64,
        pub departures: u64,
        pub absences: u64,
        pub refused: u64,
        pub reports: u64,
        pub forged_reports: u64,
    }
}
