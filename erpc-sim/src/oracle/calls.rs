//! Rules for calls, from beginning to end.

use erpc_core::protocol::{CallError, Cause};
use erpc_core::status::Code;
use erpc_core::time::Instant;

use super::{Incarnation, Oracle};
use crate::pattern;

/// The state of a call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum CallPhase {
    UnderWay,
    Ended,
    /// The call ended with an error that says that it was not executed. So no handler may get it
    /// later.
    EndedNotExecuted,
    /// The caller has died before the call ended.
    Abandoned,
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Call {
    pub(super) request_len: u32,
    pub(super) response_len: u32,
    pub(super) method: u32,
    pub(super) session: u32,
    pub(super) phase: CallPhase,
    /// Request bytes that the caller has sent, retransmissions included.
    pub(super) sent: u64,
    /// Request packets that the caller has sent, retransmissions included.
    pub(super) packets: u32,
    pub(super) executions: u8,
    /// When the handler got the request, and how long it took to answer, in ns.
    pub(super) executed_at: Option<Instant>,
    pub(super) took: Option<u64>,
    /// The call's handler panicked.
    pub(super) panicked: bool,
    /// Bytes of the request's extension, if it has one.
    pub(super) extension_len: Option<u32>,
    /// When the call was made.
    pub(super) begun_at: Instant,
    /// The deadline on the world's clock.
    pub(super) deadline: Option<Instant>,
    /// The caller has cancelled the call.
    pub(super) cancelled: bool,
    /// The call ended as `NotExecuted` or `MaybeExecuted` because it was cancelled or its deadline
    /// had passed. A call that ended as `ResponseLost` for one of these causes does not count.
    pub(super) ended_early: bool,
}

impl Call {
    /// Length of the request with its extension, in bytes, at least 1.
    pub(super) fn bytes_to_send(&self) -> u64 {
        u64::from((self.request_len + self.extension_len.unwrap_or(0)).max(1))
    }
}

/// The most packets for a request, with any losses: `MOST_SENDINGS` times the packets of the
/// request, plus `MOST_BESIDE`. A client that exceeds this limit retransmits packets forever.
const MOST_SENDINGS: u32 = 150;
const MOST_BESIDE: u32 = 1_000;
/// The shortest payload of a full packet, in bytes.
const LEAST_PAYLOAD: u64 = 1_024;

/// The longest time from a call's deadline to the call's end, in ns, without pauses of loops. It is
/// not 0, because timers are coarse and loops are busy.
pub(super) const LATEST: u64 = 1_000_000;

/// What the oracle tells a handler about the response that the handler shall give.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Asked {
    pub(crate) response_len: usize,
    pub(crate) response_key: u64,
    /// The response begins with the extension that is generated from `response_key`.
    pub(crate) extended: bool,
}

impl Oracle {
    /// Records a call that is about to be made. Returns the call's number, which the endpoint's
    /// user also uses as the call's token.
    pub(crate) fn begin(&mut self, session: u32, request_len: u32, response_len: u32) -> u32 {
        let phase = CallPhase::UnderWay;
        let (sent, executions, panicked) = (0, 0, false);
        self.calls.push(Call {
            request_len,
            response_len,
            method: u32::MAX,
            session,
            phase,
            sent,
            packets: 0,
            executions,
            executed_at: None,
            took: None,
            panicked,
            extension_len: None,
            begun_at: self.now,
            deadline: None,
            cancelled: false,
            ended_early: false,
        });
        self.under_way += 1;
        let id = self.calls.len() as u32 - 1;
        self.tell(|| format!("call {id} begins on session {}", self.session_ends(session)));
        id
    }

    /// The key from which a call's request is generated.
    pub(crate) fn request_key(&self, id: u32) -> u64 {
        pattern::key(self.seed, id)
    }

    /// The caller sends a packet with `bytes` bytes of the call's request.
    #[inline]
    pub(crate) fn sent(&mut self, id: u32, bytes: usize) {
        let Some(call) = self.calls.get_mut(id as usize) else { return };
        // An empty request still needs a packet.
        call.sent += bytes.max(1) as u64;
        call.packets += 1;
        let (packets, bytes) = (call.packets, call.bytes_to_send());
        if packets > MOST_SENDINGS * bytes.div_ceil(LEAST_PAYLOAD) as u32 + MOST_BESIDE {
            self.blame_call(
                id,
                format!("call {id} sends {packets} packets for a request of {bytes} bytes"),
            );
        }
    }

    /// The oracle has seen all packets that an endpoint has sent so far. So a request must have
    /// been sent completely by now if the call's error says that it may have been executed.
    #[inline]
    pub(crate) fn all_is_sent(&mut self) {
        while let Some(id) = self.unsent.pop() {
            let call = self.calls[id as usize];
            let (sent, request_len) = (call.sent, call.bytes_to_send());
            if sent < request_len {
                self.blame_call(id, format!(
                    "the error of call {id} says that it may have been executed, but only {sent} of {request_len} bytes were sent"
                ));
            }
        }
    }

    /// The call was not accepted, and its caller gets the request back.
    pub(crate) fn rejected(&mut self, id: u32, request: &[u8]) {
        self.end(id, CallPhase::EndedNotExecuted);
        self.outcomes.rejected += 1;
        self.check_request(id, request);
    }

    /// The caller has died.
    pub(crate) fn abandoned(&mut self, id: u32) {
        self.end(id, CallPhase::Abandoned);
        self.outcomes.abandoned += 1;
    }

    /// A handler gets a request whose method or first bytes name call `id`. Returns the response
    /// that the handler shall give.
    pub(crate) fn executed(&mut self, at: Incarnation, id: u32, body: &[u8]) -> Asked {
        self.tell(|| format!("call {id} is executed by {}", self.routes[at.0]));
        let Some(call) = self.calls.get_mut(id as usize) else {
            if self.is_trusted {
                self.blame(format!("a handler is given call {id}, which was never made"));
            }
            let response_key = u64::from(id);
            return Asked { response_len: body.len(), response_key, extended: false };
        };
        let response_len = call.response_len as usize;
        call.executions = call.executions.saturating_add(1);
        let before = call.executed_at.replace(self.now);
        let Call { executions, phase, request_len, session, extension_len, .. } = *call;
        let request_key = pattern::key(self.seed, id);
        let response_key = pattern::answer(request_key, body.len());
        let extended = extension_len.is_some() && pattern::answers_extended(response_key);
        let asked = Asked { response_len, response_key, extended };
        if !self.is_trusted {
            return asked;
        }
        if let Some(before) = before {
            let before = before.as_nanos();
            self.blame_call(
                id,
                format!("call {id} is executed {executions} times, before this at {before} ns"),
            );
        }
        if phase == CallPhase::EndedNotExecuted {
            self.blame_call(id, format!("call {id} is executed after it ended as not executed"));
        }
        if body.len() != request_len as usize || !pattern::matches(body, request_key) {
            let len = body.len();
            self.blame_call(
                id,
                format!(
                    "the request of call {id} is not what was sent: {len} of {request_len} bytes"
                ),
            );
        }
        match self.sessions[session as usize].home {
            None => self.sessions[session as usize].home = Some(at),
            Some(home) if home == at => {}
            Some(home) => {
                let [here, home] = [at, home].map(|(index, life)| (self.routes[index], life));
                self.blame_call(
                    id,
                    format!(
                        "call {id} is executed by {} in its life {}, the calls before by {} in its life {}",
                        here.0, here.1, home.0, home.1
                    ),
                );
            }
        }
        asked
    }

    /// The handler of a call has panicked.
    pub(crate) fn panicked(&mut self, id: u32) {
        if let Some(call) = self.calls.get_mut(id as usize) {
            call.panicked = true;
        }
        self.handler_events.panics += 1;
    }

    /// A call has ended.
    pub(crate) fn ended(&mut self, id: u32, result: Result<&[u8], &CallError>, request: &[u8]) {
        if self.calls.get(id as usize).is_none_or(|call| call.phase != CallPhase::UnderWay) {
            return self
                .blame_call(id, format!("call {id} ends, and is not under way: {result:?}"));
        }
        self.tell(|| match result {
            Ok(response) => format!("call {id} ends with a response of {} bytes", response.len()),
            Err(error) => format!("call {id} ends: {error}"),
        });
        self.check_request(id, request);
        let call = self.calls[id as usize];
        let Call { session, sent, executions, panicked, .. } = call;
        let latest = LATEST + self.longest_pause;
        if call.deadline.is_some_and(|deadline| self.now > deadline.plus_nanos(latest))
            && self.clocks_are_true
        {
            self.blame_call(id, format!("call {id} ends long after its deadline: {result:?}"));
        }
        let mut phase = CallPhase::Ended;
        if matches!(result, Ok(_) | Err(CallError::Status(_))) {
            self.sessions[session as usize].heard_at = self.now;
            self.told_time(id);
        }
        match result {
            Ok(body) => {
                self.outcomes.responses += 1;
                if self.is_trusted && panicked {
                    self.blame_call(
                        id,
                        format!("call {id} has a response, and its handler panicked"),
                    );
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
                    self.blame_call(
                        id,
                        format!("call {id} ends with a status for no reason: {status}"),
                    );
                }
            }
            Err(CallError::NotExecuted(cause)) => {
                self.outcomes.not_executed += 1;
                phase = CallPhase::EndedNotExecuted;
                if self.is_trusted && executions > 0 {
                    self.blame_call(
                        id,
                        format!("call {id} was executed, and its error says that it was not"),
                    );
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
                    self.blame_call(
                        id,
                        format!("call {id} has lost its response, and was never executed"),
                    );
                }
                self.check_call_cause(id, *cause);
            }
            Err(other) => self.blame_call(id, format!("call {id} ends with {other}")),
        }
        let early = [Cause::Cancelled, Cause::DeadlineExceeded];
        self.calls[id as usize].ended_early = matches!(
            result,
            Err(CallError::NotExecuted(cause) | CallError::MaybeExecuted(cause)) if early.contains(cause)
        );
        self.end(id, phase);
    }

    pub(super) fn end(&mut self, id: u32, phase: CallPhase) {
        self.calls[id as usize].phase = phase;
        self.under_way -= 1;
    }

    /// Checks that the caller gets back the request that it made.
    fn check_request(&mut self, id: u32, request: &[u8]) {
        let len = self.calls[id as usize].request_len as usize;
        if request.len() != len || !pattern::matches(request, pattern::key(self.seed, id)) {
            self.blame_call(id, format!("the request that comes back from call {id} has changed"));
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
            self.blame_call(
                id,
                format!("the response of call {id} is not its own: {len} of {response_len} bytes"),
            );
        }
        if executions == 0 {
            self.blame_call(id, format!("call {id} has a response, and was never executed"));
        }
    }
}
