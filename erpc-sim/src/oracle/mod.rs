//! Rules that must hold for every call and every stream, whatever faults act.
//!
//! The oracle learns everything that users see: each call, each execution, each outcome. It knows
//! from the plan what may happen, and keeps the first violation.

mod calls;
mod causes;
mod early;
mod methods;
mod outcomes;
mod reports;
mod streams;
#[cfg(test)]
mod tests;

use std::fmt;
use std::time::Duration;

use erpc_core::protocol::SessionAddress;
use erpc_core::time::Instant;

pub(crate) use self::calls::Asked;
use self::calls::{Call, CallPhase};
use self::methods::MethodTimes;
pub use self::outcomes::{HandlerEvents, Outcomes};
use self::reports::Deaths;
use self::streams::Stream;
pub use self::streams::Streams;
use crate::plan::Plan;
use crate::{Feature, SimRoute, trace};

/// A rule that was violated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Violation {
    /// Time on the world's clock.
    pub at: Instant,
    /// The session or endpoint, as `--packets` prints it. `None` if the rule is about the whole
    /// run.
    pub place: Option<String>,
    /// The violation in words.
    pub what: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = self.at.as_nanos();
        write!(f, "at {}.{:09} s", nanos / 1_000_000_000, nanos % 1_000_000_000)?;
        if let Some(place) = &self.place {
            write!(f, ", {place}")?;
        }
        write!(f, ": {}", self.what)
    }
}

/// An endpoint in one of its lives: its number, and the number of the life.
pub(crate) type Incarnation = (usize, u32);

/// The server and the ids of a session.
pub(crate) type Address = SessionAddress<SimRoute>;

/// What the oracle knows of a session.
#[derive(Clone, Copy, Debug)]
struct SessionRecord {
    /// The endpoint that opened the session.
    of: usize,
    address: Address,
    /// The endpoint that executes the session's calls, and the life in which it does.
    home: Option<Incarnation>,
    /// When the user asked for the session.
    asked_at: Instant,
    /// When the session was established.
    opened_at: Option<Instant>,
    /// The time of the latest of these events: the user asked for the session, the session was
    /// established, a call of the session was answered.
    heard_at: Instant,
}

/// Tracks all calls, sessions and streams of a run.
pub struct Oracle {
    seed: u64,
    /// Packets arrive undamaged, or checksums detect the damage, so the oracle may compare
    /// contents.
    is_trusted: bool,
    /// No feature of the plan ends sessions early.
    spares_sessions: bool,
    /// Packets that found a full receive queue.
    overflows: u64,
    /// Endpoints may run out of memory.
    memory_is_short: bool,
    /// Servers may turn sessions away.
    sessions_are_few: bool,
    /// No endpoint's clock stalls or leaps.
    clocks_are_true: bool,
    /// For each endpoint: the connect timeout and the liveness timeout.
    timeouts: Vec<(Duration, Duration)>,
    /// The longest pause of a loop, in ns. A loop's actions may be late by as much.
    longest_pause: u64,
    /// Length of the largest message, in bytes.
    largest_message: usize,
    /// The addresses of endpoints.
    routes: Vec<SimRoute>,
    /// The endpoint that acts now.
    acting: Option<usize>,
    /// Print the events of sessions, calls and streams.
    prints: bool,
    now: Instant,
    calls: Vec<Call>,
    sessions: Vec<SessionRecord>,
    streams: Vec<Stream>,
    streams_under_way: u64,
    stream_counts: Streams,
    under_way: u64,
    opened: u64,
    /// Calls whose error says that they may have been executed, although the oracle has not seen
    /// all packets of the request. The missing packets may be in the transmit queue of this turn.
    unsent: Vec<u32>,
    method_times: MethodTimes,
    deaths: Deaths,
    handler_events: HandlerEvents,
    outcomes: Outcomes,
    violation: Option<Violation>,
}

/// Overflows of receive queues from which on a run counts as overloaded: servers read so few of
/// their packets that a call may make no progress for the liveness timeout.
const OVERLOAD: u64 = 10_000;

impl Oracle {
    /// A packet found a full receive queue.
    pub(crate) fn overflowed(&mut self) {
        self.overflows += 1;
    }

    /// Whether nothing in this run ends sessions early: neither the plan nor an overload.
    fn keeps_sessions(&self) -> bool {
        self.spares_sessions && self.overflows < OVERLOAD
    }

    /// An oracle before the first event.
    #[must_use]
    pub fn new(plan: &Plan) -> Self {
        Self {
            seed: plan.seed,
            is_trusted: plan.is_trusted(),
            spares_sessions: plan.spares_sessions(),
            overflows: 0,
            memory_is_short: plan.features.has(Feature::Memory),
            sessions_are_few: plan.features.has_any(&[Feature::Memory, Feature::Limits]),
            clocks_are_true: !plan.features.has_any(&[Feature::ClockStall, Feature::ClockLeap]),
            timeouts: plan.endpoints.iter().map(|endpoint| endpoint.config.timeouts()).collect(),
            longest_pause: {
                let pauses = plan.endpoints.iter().filter_map(|endpoint| endpoint.loop_pauses);
                pauses.map(|loop_pauses| loop_pauses.longest_nanos).max().unwrap_or(0)
            },
            largest_message: plan.sizes.longest as usize,
            routes: plan.endpoints.iter().map(|endpoint| endpoint.route).collect(),
            acting: None,
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
            deaths: Deaths::new(plan),
            handler_events: HandlerEvents::default(),
            outcomes: Outcomes::default(),
            violation: None,
        }
    }

    pub(crate) fn set_now(&mut self, now: Instant) {
        self.now = now;
    }

    /// Endpoint `index` acts now. `None` between steps of the world.
    pub(crate) fn set_acting(&mut self, index: Option<usize>) {
        self.acting = index;
    }

    /// The endpoint that acts now, in the words of a [`Violation::place`].
    pub(crate) fn acting_place(&self) -> Option<String> {
        self.acting.map(|index| format!("endpoint {}", self.routes[index]))
    }

    /// Reports a violation by the endpoint that acts now. The oracle keeps the first one.
    pub(crate) fn blame(&mut self, what: impl Into<String>) {
        self.blame_at(self.acting_place(), what);
    }

    /// Reports a violation by endpoint `index`.
    pub(crate) fn blame_endpoint(&mut self, index: usize, what: impl Into<String>) {
        self.set_acting(Some(index));
        self.blame(what);
    }

    /// Reports a violation by a session.
    pub(crate) fn blame_session(&mut self, session: u32, what: impl Into<String>) {
        self.blame_at(Some(self.session_place(session)), what);
    }

    /// Reports a violation by a call. Its session is the place, if the call exists.
    pub(crate) fn blame_call(&mut self, id: u32, what: impl Into<String>) {
        match self.calls.get(id as usize) {
            Some(call) => self.blame_session(call.session, what),
            None => self.blame(what),
        }
    }

    /// Reports that calls or streams have not ended in time. The first of them is the place.
    pub(crate) fn blame_late(&mut self, what: String) {
        let call = self.calls.iter().find(|call| call.phase == CallPhase::UnderWay);
        let session = call.map(|call| call.session).or_else(|| self.late_stream_session());
        self.blame_at(session.map(|session| self.session_place(session)), what);
    }

    /// Reports a violation at `place`.
    pub(crate) fn blame_at(&mut self, place: Option<String>, what: impl Into<String>) {
        if self.violation.is_none() {
            self.violation = Some(Violation { at: self.now, place, what: what.into() });
        }
    }

    /// A session with the ids of its packets in both directions, as `--packets` prints them.
    fn session_place(&self, session: u32) -> String {
        let SessionRecord { of, address, .. } = self.sessions[session as usize];
        let back = trace::ends(address.server, self.routes[of], address.to_client);
        format!("session {}, {back}", self.session_ends(session))
    }

    /// The ends of a session, as they begin the printed lines of the packets that its client sends.
    /// Before the session is open, these packets are the messages that open it, with the id 0.
    fn session_ends(&self, session: u32) -> trace::Ends {
        let SessionRecord { of, address, .. } = self.sessions[session as usize];
        trace::ends(self.routes[of], address.server, address.to_server.unwrap_or(0))
    }

    /// Prints an event, if the plan prints packets.
    #[inline]
    fn tell(&self, what: impl FnOnce() -> String) {
        if self.prints {
            trace::event(self.now, what());
        }
    }

    /// The first rule that was violated.
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

    /// The length of requests and responses of all calls that have not ended, in bytes.
    #[must_use]
    pub fn backlog_bytes(&self) -> u64 {
        let open = self.calls.iter().filter(|call| call.phase == CallPhase::UnderWay);
        open.map(|call| u64::from(call.request_len) + u64::from(call.response_len)).sum()
    }

    /// Registers a session that the user of endpoint `of` opens. Returns its number.
    pub(crate) fn session(&mut self, of: usize, address: Address) -> u32 {
        let (home, opened_at) = (None, None);
        let (asked_at, heard_at) = (self.now, self.now);
        self.sessions.push(SessionRecord { of, address, home, asked_at, opened_at, heard_at });
        let session = self.sessions.len() as u32 - 1;
        self.tell(|| format!("{} begins to open", self.session_place(session)));
        session
    }

    /// A session is established.
    pub(crate) fn opened(&mut self, session: u32, address: Option<Address>) {
        self.opened += 1;
        let of = &mut self.sessions[session as usize];
        of.heard_at = self.now;
        of.address = address.unwrap_or(of.address);
        if of.opened_at.replace(self.now).is_some() {
            self.blame_session(session, "opens twice");
        }
        self.begin_pings(session);
        self.tell(|| format!("{} is open", self.session_place(session)));
    }

    /// Sessions that were established.
    #[must_use]
    pub fn sessions_opened(&self) -> u64 {
        self.opened
    }

    /// A request could not be allocated.
    pub(crate) fn no_memory(&mut self) {
        self.handler_events.allocations_refused += 1;
        if !self.memory_is_short {
            self.blame("there is no memory for a request, and nothing happened to the memory");
        }
    }

    /// Events that are no violations.
    #[must_use]
    pub fn handler_events(&self) -> HandlerEvents {
        self.handler_events
    }
}
