//! What must be true of every call and every stream, whatever happens.
//!
//! The oracle is told everything that users see: each call that was made, each execution, each
//! outcome. It knows from the plan what may be expected and remembers the first thing that was not.

mod calls;
mod causes;
mod early;
mod methods;
mod outcomes;
mod streams;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use erpc_core::time::Instant;

pub(crate) use self::calls::Asked;
use self::calls::{Call, CallPhase};
use self::methods::MethodTimes;
pub use self::outcomes::{HandlerEvents, Outcomes};
use self::streams::Stream;
pub use self::streams::Streams;
use crate::Feature;
use crate::plan::Plan;

/// A rule that did not hold.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// When, on the world's clock.
    pub at: Instant,
    /// What was found.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.at.as_nanos();
        write!(f, "at {}.{:09} s: {}", nanos / 1_000_000_000, nanos % 1_000_000_000, self.what)
    }
}

/// An endpoint in one of its lives.
pub(crate) type Incarnation = (usize, u32);

/// What the oracle knows of a session.
#[derive(Clone, Copy, Debug)]
struct SessionRecord {
    /// Which endpoint has opened it.
    of: usize,
    /// Which endpoint, in which of its lives, executes its calls.
    home: Option<Incarnation>,
    /// When its user asked for it.
    asked_at: Instant,
    /// When it opened.
    opened_at: Option<Instant>,
    /// When it opened, or the last of its calls was answered.
    heard_at: Instant,
}

/// Knows all calls of a run.
pub struct Oracle {
    seed: u64,
    /// What arrives is what was sent.
    is_trusted: bool,
    /// Nothing happens that could end a session early.
    spares_sessions: bool,
    /// Endpoints may run out of memory.
    memory_is_short: bool,
    /// Servers may turn sessions away.
    sessions_are_few: bool,
    /// Clocks are as fast as the world's.
    clocks_are_true: bool,
    /// By endpoint: how long a session may take to open, and for how long a peer must be silent before it
    /// counts as dead.
    timeouts: Vec<(Duration, Duration)>,
    /// For how long a loop may be away, in nanoseconds: so much later may be what it is to do.
    longest_pause: u64,
    /// Bytes of the largest message.
    largest_message: usize,
    /// What happens to streams is printed.
    prints: bool,
    now: Instant,
    calls: Vec<Call>,
    sessions: Vec<SessionRecord>,
    streams: Vec<Stream>,
    streams_under_way: u64,
    stream_counts: Streams,
    under_way: u64,
    opened: u64,
    /// Calls that may have been executed, as their errors say, and not all of whose packets were seen to go
    /// out; perhaps they are in the queue of this turn.
    unsent: Vec<u32>,
    method_times: MethodTimes,
    handler_events: HandlerEvents,
    outcomes: Outcomes,
    violation: Option<Violation>,
}

impl Oracle {
    /// An oracle that has seen nothing.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            is_trusted: plan.is_trusted(),
            spares_sessions: plan.spares_sessions(),
            memory_is_short: plan.features.has(Feature::Memory),
            sessions_are_few: plan.features.has_any(&[Feature::Memory, Feature::Limits]),
            clocks_are_true: !plan.features.has_any(&[Feature::ClockStall, Feature::ClockLeap]),
            timeouts: plan.endpoints.iter().map(|endpoint| endpoint.config.timeouts()).collect(),
            longest_pause: {
                let pauses = plan.endpoints.iter().filter_map(|endpoint| endpoint.loop_pauses);
                pauses.map(|loop_pauses| loop_pauses.longest_nanos).max().unwrap_or(0)
            },
            largest_message: plan.sizes.longest as usize,
            prints: plan.prints,
            now: Instant::ZERO,
            calls: Vec::new(),
            sessions: Vec::new(),
            streams: Vec::new(),
            streams_under_way: 0,
            stream_counts: Streams::default(),
            under_way: 0,
            opened: 0,
            unsent: Vec::new(),
            method_times: MethodTimes::default(),
            handler_events: HandlerEvents::default(),
            outcomes: Outcomes::default(),
            violation: None,
        }
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Something is not as it must be. The first such thing is remembered.
    pub(crate) fn blame(&mut self, what: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { at: self.now, what: what.into() });
        }
    }

    /// The first rule that did not hold.
    #[must_use]
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// Calls that have not ended.
    #[must_use]
    pub fn under_way(&self) -> u64 {
        self.under_way
    }

    /// Calls that were made and accepted.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.calls.len() as u64 - self.outcomes.rejected
    }

    /// How calls have ended so far.
    #[must_use]
    pub fn outcomes(&self) -> Outcomes {
        self.outcomes
    }

    /// Bytes of the messages of calls that have not ended.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        let open = self.calls.iter().filter(|call| call.phase == CallPhase::UnderWay);
        open.map(|call| u64::from(call.request_len) + u64::from(call.response_len)).sum()
    }

    /// A name for a session that the user of endpoint `of` has asked for.
    pub(crate) fn session(&mut self, of: usize) -> u32 {
        let (home, opened_at) = (None, None);
        let (asked_at, heard_at) = (self.now, self.now);
        self.sessions.push(SessionRecord { of, home, asked_at, opened_at, heard_at });
        self.sessions.len() as u32 - 1
    }

    /// A session has opened.
    pub(crate) fn opened(&mut self, session: u32) {
        self.opened += 1;
        let of = &mut self.sessions[session as usize];
        of.heard_at = self.now;
        if of.opened_at.replace(self.now).is_some() {
            self.blame(format!("session {session} opens twice"));
        }
    }

    /// Sessions that have opened.
    #[must_use]
    pub fn sessions_opened(&self) -> u64 {
        self.opened
    }

    /// There was no memory for a request.
    pub(crate) fn no_memory(&mut self) {
        self.handler_events.allocations_refused += 1;
        if !self.memory_is_short {
            self.blame("there is no memory for a request, and nothing happened to the memory");
        }
    }

    /// What was hard for users so far.
    #[must_use]
    pub fn handler_events(&self) -> HandlerEvents {
        self.handler_events
    }
}
