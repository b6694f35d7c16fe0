//! What must be true of every call, whatever happens.
//!
//! The oracle is told everything that users see: each call that was made, each execution, each
//! outcome. It knows from the plan what may be expected and remembers the first thing that was not.

use std::fmt;
use std::ops::AddAssign;
use std::time::Duration;

use erpc_core::protocol::{CallError, Cause, ConnectError};
use erpc_core::service::Code;
use erpc_core::time::Instant;

use crate::plan::Plan;
use crate::{Feature, pattern};

mod early;
#[cfg(test)]
mod tests;

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

/// Where a call is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    UnderWay,
    Ended,
    /// It ended, and its error said that it was never executed. So it must stay.
    EndedNotExecuted,
    /// Its caller has died.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
struct Call {
    request_len: u32,
    response_len: u32,
    session: u32,
    stage: Stage,
    /// Bytes of its request that its caller put on the network, those of second copies included.
    sent: u64,
    executions: u8,
    /// Its handler panicked.
    panicked: bool,
    /// Bytes of its extension, if it has one.
    extension_len: Option<u32>,
    /// When it was made.
    begun_at: Instant,
    /// On the world's clock.
    deadline: Option<Instant>,
    /// Its caller has cancelled it.
    cancelled: bool,
    /// It has ended before there was a response.
    ended_early: bool,
}

impl Call {
    /// Bytes of its request, as they travel.
    fn bytes_to_send(&self) -> u64 {
        u64::from((self.request_len + self.extension_len.unwrap_or(0)).max(1))
    }
}

/// How long after its deadline a call may end, in nanoseconds: timers are coarse, and loops are busy.
const LATEST: u64 = 1_000_000;

/// What a request asks for, as the oracle tells its handler.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) response_len: usize,
    pub(crate) response_key: u64,
    /// The response is to have the extension of its key.
    pub(crate) extended: bool,
}

/// An endpoint in one of its lives.
pub(crate) type Incarnation = (usize, u32);

/// What the oracle knows of a session.
#[derive(Clone, Copy, Debug)]
struct Session {
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

/// What is hard or special for users, and no fault of anybody's.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Hardships {
    /// Handlers that panicked.
    pub panics: u64,
    /// Requests that there was no memory for.
    pub allocations_refused: u64,
    /// Calls that had an extension.
    pub extended: u64,
    /// Calls whose deadline has passed.
    pub late: u64,
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
    /// Clocks are as fast as the world's.
    clocks_are_true: bool,
    /// By endpoint: how long a session may take to open, and for how long a peer must be silent before it
    /// counts as dead.
    timeouts: Vec<(Duration, Duration)>,
    now: Instant,
    calls: Vec<Call>,
    sessions: Vec<Session>,
    under_way: u64,
    opened: u64,
    /// Calls that may have been executed, as their errors say, and not all of whose packets were seen to go
    /// out; perhaps they are in the queue of this turn.
    unsent: Vec<u32>,
    hardships: Hardships,
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
            clocks_are_true: !plan.features.has_any(&[Feature::ClockStall, Feature::ClockLeap]),
            timeouts: plan.endpoints.iter().map(|endpoint| endpoint.config.timeouts()).collect(),
            now: Instant::ZERO,
            calls: Vec::new(),
            sessions: Vec::new(),
            under_way: 0,
            opened: 0,
            unsent: Vec::new(),
            hardships: Hardships::default(),
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
        let open = self.calls.iter().filter(|call| call.stage == Stage::UnderWay);
        open.map(|call| u64::from(call.request_len) + u64::from(call.response_len)).sum()
    }

    /// A name for a session that the user of endpoint `of` has asked for.
    pub(crate) fn session(&mut self, of: usize) -> u32 {
        let (home, opened_at) = (None, None);
        let (asked_at, heard_at) = (self.now, self.now);
        self.sessions.push(Session { of, home, asked_at, opened_at, heard_at });
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

    /// A call is about to be made. Its number goes with it as method and token.
    pub(crate) fn begin(&mut self, session: u32, request_len: u32, response_len: u32) -> u32 {
        let stage = Stage::UnderWay;
        let (sent, executions, panicked) = (0, 0, false);
        self.calls.push(Call {
            request_len,
            response_len,
            session,
            stage,
            sent,
            executions,
            panicked,
            extension_len: None,
            begun_at: self.now,
            deadline: None,
            cancelled: false,
            ended_early: false,
        });
        self.under_way += 1;
        self.calls.len() as u32 - 1
    }

    /// What the request of a call is made from.
    pub(crate) fn request_key(&self, id: u32) -> u64 {
        pattern::key(self.seed, id)
    }

    /// Its caller puts a packet with so many bytes of a call's request on the network.
    #[inline]
    pub(crate) fn sent(&mut self, id: u32, bytes: usize) {
        if let Some(call) = self.calls.get_mut(id as usize) {
            // A request may be empty; its packet is not.
            call.sent += bytes.max(1) as u64;
        }
    }

    /// All that an endpoint has sent so far has been told.
    #[inline]
    pub(crate) fn all_is_sent(&mut self) {
        while let Some(id) = self.unsent.pop() {
            let call = self.calls[id as usize];
            let (sent, request_len) = (call.sent, call.bytes_to_send());
            if sent < request_len {
                self.blame(format!(
                    "call {id} may have been executed, says its error, and {sent} of {request_len} bytes were sent"
                ));
            }
        }
    }

    /// The call was not accepted, its request handed back.
    pub(crate) fn rejected(&mut self, id: u32, request: &[u8]) {
        self.end(id, Stage::EndedNotExecuted);
        self.outcomes.rejected += 1;
        self.check_request(id, request);
    }

    /// The caller has died.
    pub(crate) fn abandoned(&mut self, id: u32) {
        self.end(id, Stage::Abandoned);
        self.outcomes.abandoned += 1;
    }

    /// A handler is given a request.
    pub(crate) fn executed(&mut self, at: Incarnation, method: u32, body: &[u8]) -> Asked {
        let Some(call) = self.calls.get_mut(method as usize) else {
            if self.is_trusted {
                self.blame(format!("a handler is given call {method}, which was never made"));
            }
            let response_key = u64::from(method);
            return Asked { response_len: body.len(), response_key, extended: false };
        };
        let response_len = call.response_len as usize;
        call.executions = call.executions.saturating_add(1);
        let Call { executions, stage, request_len, session, extension_len, .. } = *call;
        let request_key = pattern::key(self.seed, method);
        let response_key = pattern::answer(request_key, body.len());
        let extended = extension_len.is_some() && pattern::answers_extended(response_key);
        let asked = Asked { response_len, response_key, extended };
        if !self.is_trusted {
            return asked;
        }
        if executions > 1 {
            self.blame(format!("call {method} is executed {executions} times"));
        }
        if stage == Stage::EndedNotExecuted {
            self.blame(format!("call {method} is executed, and was said not to be"));
        }
        if body.len() != request_len as usize || !pattern::matches(body, request_key) {
            let len = body.len();
            self.blame(format!(
                "the request of call {method} is not what was sent: {len} of {request_len} bytes"
            ));
        }
        match self.sessions[session as usize].home {
            None => self.sessions[session as usize].home = Some(at),
            Some(home) if home == at => {}
            Some(home) => self.blame(format!(
                "session {session} of endpoint {home:?} (number, life) has call {method} executed by {at:?}"
            )),
        }
        asked
    }

    /// The handler of a call has panicked.
    pub(crate) fn panicked(&mut self, method: u32) {
        if let Some(call) = self.calls.get_mut(method as usize) {
            call.panicked = true;
        }
        self.hardships.panics += 1;
    }

    /// There was no memory for a request.
    pub(crate) fn no_memory(&mut self) {
        self.hardships.allocations_refused += 1;
        if !self.memory_is_short {
            self.blame("there is no memory for a request, and nothing happened to the memory");
        }
    }

    /// What was hard for users so far.
    #[must_use]
    pub fn hardships(&self) -> Hardships {
        self.hardships
    }

    /// A call has ended.
    pub(crate) fn ended(&mut self, id: u32, result: Result<&[u8], &CallError>, request: &[u8]) {
        if self.calls.get(id as usize).is_none_or(|call| call.stage != Stage::UnderWay) {
            return self.blame(format!("call {id} ends, and is not under way: {result:?}"));
        }
        self.check_request(id, request);
        let call = self.calls[id as usize];
        let Call { session, sent, executions, panicked, .. } = call;
        if call.deadline.is_some_and(|deadline| self.now > deadline.plus_nanos(LATEST))
            && self.clocks_are_true
        {
            self.blame(format!("call {id} ends long after its deadline: {result:?}"));
        }
        let mut stage = Stage::Ended;
        if matches!(result, Ok(_) | Err(CallError::Status(_))) {
            self.sessions[session as usize].heard_at = self.now;
        }
        match result {
            Ok(body) => {
                self.outcomes.responses += 1;
                if self.is_trusted && panicked {
                    self.blame(format!("call {id} has a response, and its handler panicked"));
                }
                self.check_response(id, body, request.len());
            }
            Err(CallError::Status(status)) => {
                self.outcomes.statuses += 1;
                let is_due = match status.code() {
                    Code::Internal => panicked,
                    Code::ResourceExhausted => self.memory_is_short,
                    _ => false,
                };
                if self.is_trusted && !is_due {
                    self.blame(format!("call {id} ends with a status for no reason: {status}"));
                }
            }
            Err(CallError::NotExecuted(cause)) => {
                self.outcomes.not_executed += 1;
                stage = Stage::EndedNotExecuted;
                if self.is_trusted && executions > 0 {
                    self.blame(format!(
                        "call {id} was executed, and its error says that it was not"
                    ));
                }
                self.check_call_cause(id, *cause);
            }
            Err(CallError::MaybeExecuted(cause)) => {
                self.outcomes.maybe_executed += 1;
                if sent < call.bytes_to_send() {
                    self.unsent.push(id);
                }
                self.check_call_cause(id, *cause);
            }
            Err(CallError::ResponseLost(cause)) => {
                self.outcomes.responses_lost += 1;
                if self.is_trusted && executions == 0 {
                    self.blame(format!("call {id} has lost its response, and was never executed"));
                }
                self.check_call_cause(id, *cause);
            }
            Err(other) => self.blame(format!("call {id} ends with {other}")),
        }
        let early = [Cause::Cancelled, Cause::DeadlineExceeded];
        self.calls[id as usize].ended_early = matches!(
            result,
            Err(CallError::NotExecuted(cause) | CallError::MaybeExecuted(cause)) if early.contains(cause)
        );
        self.end(id, stage);
    }

    fn end(&mut self, id: u32, stage: Stage) {
        self.calls[id as usize].stage = stage;
        self.under_way -= 1;
    }

    /// The request that comes back to its caller is the one that was made.
    fn check_request(&mut self, id: u32, request: &[u8]) {
        let len = self.calls[id as usize].request_len as usize;
        if request.len() != len || !pattern::matches(request, pattern::key(self.seed, id)) {
            self.blame(format!("the request that comes back from call {id} has changed"));
        }
    }

    fn check_response(&mut self, id: u32, body: &[u8], request_len: usize) {
        if !self.is_trusted {
            return;
        }
        let Call { executions, response_len, .. } = self.calls[id as usize];
        let key = pattern::answer(pattern::key(self.seed, id), request_len);
        if body.len() != response_len as usize || !pattern::matches(body, key) {
            let len = body.len();
            self.blame(format!(
                "the response of call {id} is not its own: {len} of {response_len} bytes"
            ));
        }
        if executions == 0 {
            self.blame(format!("call {id} has a response, and was never executed"));
        }
    }

    /// A session has closed.
    pub(crate) fn session_ended(&mut self, session: u32, cause: Cause) {
        if cause != Cause::Disconnected {
            self.check_cause(session, cause, &format!("session {session} ends"));
        }
    }

    fn check_call_cause(&mut self, id: u32, cause: Cause) {
        let what = format!("call {id} fails");
        let call = self.calls[id as usize];
        match cause {
            Cause::Cancelled if call.cancelled => return,
            Cause::DeadlineExceeded => {
                let has_passed = call.deadline.is_some_and(|deadline| deadline <= self.now);
                if !has_passed && (call.deadline.is_none() || self.clocks_are_true) {
                    self.blame(format!("{what}, and it is not too late"));
                }
                self.hardships.late += 1;
                return;
            }
            _ => {}
        }
        if cause == Cause::Disconnected {
            self.blame(format!("{what} because its user ended the session: that waits for it"));
        }
        self.check_cause(self.calls[id as usize].session, cause, &what);
    }

    /// What is said of the end of a session, or of a call of it, can be true. Whether its server died, or had
    /// given it up, the oracle does not know.
    fn check_cause(&mut self, session: u32, cause: Cause, what: &str) {
        let is_late = cause == Cause::Connect(ConnectError::Timeout);
        if self.spares_sessions && !is_late {
            self.blame(format!("{what}, and nothing happened to its session: {cause}"));
        }
        let Session { of, asked_at, opened_at, heard_at, .. } = self.sessions[session as usize];
        let (connect, liveness) = self.timeouts[of];
        let was_open = opened_at.is_some();
        // How long it has been so, and how long it must be.
        let (lasted, least) = match cause {
            Cause::Connect(_) if was_open => {
                return self
                    .blame(format!("{what}, because it does not open, and was open: {cause}"));
            }
            Cause::Connect(ConnectError::Timeout) => (self.now.nanos_since(asked_at), connect),
            Cause::PeerDead | Cause::NoProgress if !was_open => {
                return self.blame(format!("{what}, and has never opened: {cause}"));
            }
            Cause::PeerDead => (self.now.nanos_since(heard_at), liveness),
            // Other calls may have been answered since.
            Cause::NoProgress => (self.now.nanos_since(opened_at.unwrap_or(asked_at)), liveness),
            // Tables are short where memory is.
            Cause::NoMemory | Cause::Connect(ConnectError::Full) => {
                if self.is_trusted && !self.memory_is_short {
                    self.blame(format!("{what}, and nothing happened to the memory: {cause}"));
                }
                return;
            }
            Cause::PeerReset | Cause::Disconnected => return,
            // All speak one version and keep to the sizes, servers listen, and nobody shuts down.
            _ => {
                if self.is_trusted {
                    self.blame(format!("{what} for a reason that nobody gave: {cause}"));
                }
                return;
            }
        };
        if self.clocks_are_true && u128::from(lasted) < least.as_nanos() {
            self.blame(format!("{what} after {lasted} ns, {least:?} are allowed: {cause}"));
        }
    }
}
