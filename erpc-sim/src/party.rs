//! What the user of an endpoint does: calls others, and answers.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use bytes::BufMut;
use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{
    Body, CallError, Cause, ClientId, ConnectError, NewCall, RejectReason, Reply, Request,
    RequestHandle, SessionEvent, SessionId,
};
use erpc_core::runtime::{App, Context};
use erpc_core::service::{Code, Status};
use erpc_core::time::Instant;
use erpc_core::wire::extension::MAX_EXTENSION;

use crate::oracle::{Asked, Incarnation, Oracle};
use crate::plan::{Handlers, Plan};
use crate::transport::SimTransport;
use crate::whim::Whim;
use crate::{Feature, Random, SimRoute, pattern};

type Cx<'a> = Context<'a, SimTransport>;

/// A session that a party has opened.
struct Session {
    id: SessionId,
    server: SimRoute,
    /// Its number at the oracle.
    number: u32,
    /// Its calls that have not ended.
    calls: Vec<u32>,
    closing: bool,
    /// Another one is opened when it has closed, and takes its place in the endpoint's table.
    replaced: bool,
    open: bool,
}

/// An answer that is given later.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Answer {
    /// The call's number at the oracle.
    id: u32,
    handle: RequestHandle,
    asked: Asked,
}

/// A request whose answer was put off.
struct PutOff {
    id: u32,
    handle: RequestHandle,
    /// Its handler was told that nobody waits.
    told: bool,
    /// And that its client is gone.
    gone: bool,
}

/// What a user draws from, one stream per purpose, so that a handler that panics or a session that closes
/// changes nothing of the messages' sizes.
struct Chances {
    sessions: Random,
    sizes: Random,
    panics: Random,
    delays: Random,
    memory: Random,
    churn: Random,
    whims: Random,
    /// Of handlers that are told that nobody waits.
    obedience: Random,
}

impl Chances {
    fn new(random: &Random) -> Self {
        Self {
            sessions: random.fork(1),
            sizes: random.fork(2),
            panics: random.fork(3),
            delays: random.fork(4),
            memory: random.fork(5),
            churn: random.fork(6),
            whims: random.fork(7),
            obedience: random.fork(8),
        }
    }
}

/// One endpoint's user, in one of its lives.
pub(crate) struct Party {
    me: Incarnation,
    chances: Chances,
    sessions: Vec<Session>,
    /// Calls to be made.
    owed: u32,
    under_way: u32,
    /// All the memory there was.
    hoard: Vec<MsgBuf>,
    /// Servers to try again with the next round.
    missed: Vec<SimRoute>,
    /// Requests that were not answered at once.
    put_off: Vec<PutOff>,
    /// Calls to be cancelled, and in how many nanoseconds.
    pub(crate) to_cancel: Vec<(u64, u32)>,
    /// Calls that it has cancelled while they were under way.
    pub(crate) cancelled: u64,
    /// Sessions are opened again when they close.
    persists: bool,
    /// A session has taken the place of another one in this turn.
    pub(crate) begins_anew: bool,
    /// Calls that were handed over in this turn.
    pub(crate) handed_over: u32,
    /// Responses that there was no memory for.
    pub(crate) responses_refused: u64,
}

impl Party {
    pub(crate) fn new(me: Incarnation, random: &Random) -> Self {
        Self {
            me,
            chances: Chances::new(random),
            sessions: Vec::new(),
            owed: 0,
            under_way: 0,
            hoard: Vec::new(),
            missed: Vec::new(),
            put_off: Vec::new(),
            to_cancel: Vec::new(),
            cancelled: 0,
            persists: true,
            begins_anew: false,
            handed_over: 0,
            responses_refused: 0,
        }
    }

    /// Its next life.
    pub(crate) fn reborn(&self, random: &Random) -> Self {
        let (index, life) = self.me;
        let Self { owed, responses_refused, cancelled, .. } = *self;
        Self { owed, responses_refused, cancelled, ..Self::new((index, life + 1), random) }
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.me
    }

    /// Opens a session.
    pub(crate) fn connect(&mut self, cx: &mut Cx<'_>, server: SimRoute, oracle: &mut Oracle) {
        let Ok(id) = cx.connect(server) else { return self.missed.push(server) };
        let number = oracle.session(self.me.0);
        self.sessions.push(Session {
            id,
            server,
            number,
            calls: Vec::new(),
            closing: false,
            replaced: false,
            open: false,
        });
    }

    /// Closes one session and opens another.
    pub(crate) fn reconnect(&mut self, cx: &mut Cx<'_>, oracle: &mut Oracle) {
        let count = self.sessions.len() as u64;
        let at = self.chances.churn.below(count) as usize;
        let Some(session) = self.sessions.get_mut(at) else { return };
        if std::mem::replace(&mut session.closing, true) {
            return;
        }
        let server = session.server;
        let replaced = self.chances.churn.percent(70);
        session.replaced = replaced;
        cx.disconnect(session.id);
        // Its successor waits for its place, or is there at once.
        if !replaced {
            self.connect(cx, server, oracle);
        }
    }

    /// Closes all sessions for good.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>) {
        self.persists = false;
        for session in &mut self.sessions {
            session.closing = true;
            cx.disconnect(session.id);
        }
    }

    /// No new calls and sessions.
    pub(crate) fn retire(&mut self) {
        (self.persists, self.owed) = (false, 0);
    }

    /// Takes all memory.
    pub(crate) fn take_hoard(&mut self, cx: &mut Cx<'_>) {
        let mut size = 1 << 20;
        while size >= 64 {
            match cx.alloc(size) {
                Ok(msgbuf) => self.hoard.push(msgbuf),
                Err(_) => size /= 2,
            }
        }
    }

    /// Gives it back.
    pub(crate) fn drop_hoard(&mut self) {
        self.hoard.clear();
    }

    /// A round begins: more calls are to be made.
    pub(crate) fn begin_round(
        &mut self,
        cx: &mut Cx<'_>,
        calls: u32,
        oracle: &mut Oracle,
        plan: &Plan,
    ) {
        if self.persists {
            for server in std::mem::take(&mut self.missed) {
                self.connect(cx, server, oracle);
            }
            self.owed += calls;
            self.make_calls(cx, oracle, plan);
        }
    }

    /// The endpoint has died. Its next life makes the calls that it has not made.
    pub(crate) fn abandon(&mut self, oracle: &mut Oracle) {
        for session in self.sessions.drain(..) {
            for call in session.calls {
                oracle.abandoned(call);
            }
        }
    }

    /// Makes the calls that are owed, as many at a time as the plan says.
    pub(crate) fn make_calls(&mut self, cx: &mut Cx<'_>, oracle: &mut Oracle, plan: &Plan) {
        while self.owed > 0 && self.under_way < plan.outstanding {
            // Mostly on sessions that are open; now and then on one that is about to be.
            let eager = self.chances.sessions.percent(2);
            let ready = |session: &Session| !session.closing && (session.open || eager);
            let count = self.sessions.iter().filter(|session| ready(session)).count();
            let at = self.chances.sessions.below(count as u64) as usize;
            let mut ready = self.sessions.iter_mut().filter(|session| ready(session));
            let Some(session) = ready.nth(at) else { return };
            let random = &mut self.chances.sizes;
            let (len, response_len) = (plan.sizes.draw(random), plan.sizes.draw(random));
            let whim = Whim::draw(&mut self.chances.whims, &plan.whims);
            // There is to be room for extensions.
            let most = plan.sizes.longest.saturating_sub(MAX_EXTENSION as u32);
            let (len, response_len) = match whim.extended {
                true => (len.min(most), response_len.min(most)),
                false => (len, response_len),
            };
            let Ok(mut request) =
                cx.alloc(MAX_EXTENSION * usize::from(whim.extended) + len as usize)
            else {
                oracle.no_memory();
                self.owed -= 1;
                continue;
            };
            let id = oracle.begin(session.number, len, response_len);
            if whim.extended {
                request.put_slice(&oracle.extend(id, whim.deadline));
            }
            pattern::fill(&mut request, oracle.request_key(id), len as usize);
            self.handed_over += 1;
            let call = NewCall {
                extended: whim.extended,
                deadline: whim.deadline.map_or(Instant::NEVER, |left| cx.now().plus_nanos(left)),
                ..NewCall::new(id, request, u64::from(id))
            };
            match cx.call(session.id, call) {
                Ok(()) => {
                    session.calls.push(id);
                    self.under_way += 1;
                    self.owed -= 1;
                    match whim.cancel {
                        Some(0) => self.cancel(cx, id, oracle),
                        Some(later) => self.to_cancel.push((later, id)),
                        None => {}
                    }
                }
                Err(rejected) => {
                    let request = oracle.bare_request(id, rejected.request.as_slice(), None);
                    oracle.rejected(id, request);
                    cx.recycle(rejected.request);
                    match rejected.reason {
                        // When something comes back, or the session opens, there is room again.
                        RejectReason::QueueFull => return,
                        RejectReason::NoSession | RejectReason::Disconnecting => self.owed -= 1,
                        RejectReason::DeadlineExceeded if whim.deadline == Some(0) => {
                            self.owed -= 1
                        }
                        other => oracle.blame(format!("call {id} is rejected: {other}")),
                    }
                }
            }
        }
    }

    /// Cancels a call, if it is under way.
    pub(crate) fn cancel(&mut self, cx: &mut Cx<'_>, id: u32, oracle: &mut Oracle) {
        let mut sessions = self.sessions.iter();
        let Some(session) = sessions.find(|session| session.calls.contains(&id)) else { return };
        let found = cx.cancel(session.id, u64::from(id), Cause::Cancelled);
        self.cancelled += u64::from(found);
        oracle.cancelled(id, found);
    }

    /// Gives an answer that was put off, unless that was made unnecessary.
    pub(crate) fn answer_late(&mut self, cx: &mut Cx<'_>, answer: Answer) {
        let place = self.put_off.iter().position(|put_off| put_off.handle == answer.handle);
        if let Some(place) = place {
            self.put_off.swap_remove(place);
            self.answer(cx, answer);
        }
    }

    /// Gives an answer.
    fn answer(&mut self, cx: &mut Cx<'_>, answer: Answer) {
        let Answer { handle, asked, .. } = answer;
        let extension =
            if asked.extended { pattern::extension(asked.response_key) } else { Vec::new() };
        let len = extension.len() + asked.response_len;
        // As a worker thread would: in memory of its own.
        if self.chances.memory.percent(5)
            && let Some(mut response) = MsgBuf::detached(len)
        {
            response.put_slice(&extension);
            pattern::fill(&mut response, asked.response_key, asked.response_len);
            return cx.respond(handle, response, asked.extended);
        }
        match cx.response_buffer(&handle, len) {
            Ok(mut response) => {
                response.put_slice(&extension);
                pattern::fill(&mut response, asked.response_key, asked.response_len);
                cx.respond(handle, response, asked.extended);
            }
            Err(error) => {
                self.responses_refused += 1;
                let status = Status::new(Code::ResourceExhausted, error.to_string());
                cx.respond_status(handle, &status);
            }
        }
    }

    /// A handler: what it does with a request, now or in so many nanoseconds.
    fn handle(
        &mut self,
        cx: &mut Cx<'_>,
        answer: Answer,
        handlers: &Handlers,
        oracle: &mut Oracle,
    ) -> Option<u64> {
        if self.chances.panics.percent(handlers.panic_percent) {
            // As the typed layer does it; not by `panic!`, which would print a message every time.
            let outcome = catch_unwind(AssertUnwindSafe(|| resume_unwind(Box::new("a handler"))));
            if outcome.is_err() {
                oracle.panicked(answer.id);
                cx.respond_status(
                    answer.handle,
                    &Status::new(Code::Internal, "the handler panicked"),
                );
            }
            return None;
        }
        let random = &mut self.chances.delays;
        if random.percent(handlers.slow_percent) {
            let Answer { id, handle, .. } = answer;
            self.put_off.push(PutOff { id, handle, told: false, gone: false });
            return Some(random.below(handlers.slowest_nanos + 1));
        }
        self.answer(cx, answer);
        None
    }
}

/// A party in a turn of its endpoint's loop.
pub(crate) struct Turn<'w> {
    pub(crate) party: &'w mut Party,
    pub(crate) oracle: &'w mut Oracle,
    pub(crate) plan: &'w Plan,
    /// Answers for later, and in how many nanoseconds.
    pub(crate) later: &'w mut Vec<(u64, Answer)>,
}

impl App<SimTransport> for Turn<'_> {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request<'_, SimRoute>) {
        let Request { handle, method, body, extended, deadline, .. } = request;
        let bare = self.oracle.bare_request(method, body.as_slice(), Some(extended));
        let asked = self.oracle.executed(self.party.me, method, bare);
        let now = cx.now().as_nanos();
        let left =
            (deadline != Instant::NEVER).then(|| deadline.as_nanos().wrapping_sub(now) as i64);
        self.oracle.told_deadline(method, left);
        if let Body::Message(message) = body {
            cx.recycle(message);
        }
        let answer = Answer { id: method, handle, asked };
        let handlers = &self.plan.handlers;
        if let Some(nanos) = self.party.handle(cx, answer, handlers, self.oracle) {
            self.later.push((nanos, answer));
        }
    }

    fn on_reply(
        &mut self,
        cx: &mut Cx<'_>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        mut request: MsgBuf,
    ) {
        let id = token as u32;
        let result = reply
            .as_ref()
            .map(|reply| self.oracle.bare_response(id, reply.as_slice(), reply.extended));
        let bare = self.oracle.bare_request(id, request.as_slice(), None);
        self.oracle.ended(id, result, bare);
        // The request is the user's again, who writes into it; this panics if a queue still reads it.
        let len = request.len().min(64);
        request.as_mut_slice()[..len].fill(0xEE);
        cx.recycle(request);
        if let Ok(Reply { body: Body::Message(message), .. }) = reply {
            cx.recycle(message);
        }
        let mut sessions = self.party.sessions.iter_mut();
        let place = sessions.find_map(|session| {
            let at = session.calls.iter().position(|&call| call == id)?;
            Some(session.calls.swap_remove(at))
        });
        if place.is_none() {
            self.oracle.blame(format!("call {id} ends after its session"));
        }
        self.party.under_way -= 1;
        self.party.make_calls(cx, self.oracle, self.plan);
    }

    fn on_cancel(&mut self, cx: &mut Cx<'_>, request: RequestHandle) {
        let mut known = self.party.put_off.iter_mut();
        let Some(put_off) = known.find(|put_off| put_off.handle == request) else {
            return self.oracle.blame("nobody waits for a request, which was answered");
        };
        if std::mem::replace(&mut put_off.told, true) {
            let id = put_off.id;
            return self
                .oracle
                .blame(format!("twice a handler is told that nobody waits for call {id}"));
        }
        self.oracle.told_of_cancel(put_off.id);
        // Some stop, others go on.
        if self.party.chances.obedience.percent(50) {
            self.party.put_off.retain(|put_off| put_off.handle != request);
            cx.respond_status(request, &Status::new(Code::Cancelled, "stopped"));
        }
    }

    fn on_client_gone(&mut self, _: &mut Cx<'_>, client: ClientId) {
        for put_off in &mut self.party.put_off {
            if put_off.handle.client() != client {
                continue;
            }
            if !put_off.told {
                let id = put_off.id;
                self.oracle
                    .blame(format!("the client of call {id} is gone, its handler was not told"));
            }
            if std::mem::replace(&mut put_off.gone, true) {
                self.oracle.blame("a client goes twice");
            }
        }
    }

    fn on_session(&mut self, cx: &mut Cx<'_>, session: SessionId, event: SessionEvent) {
        let Some(at) = self.party.sessions.iter().position(|known| known.id == session) else {
            return self.oracle.blame(format!("an event of no session: {event:?}"));
        };
        let SessionEvent::Closed(cause) = event else {
            let session = &mut self.party.sessions[at];
            session.open = true;
            self.oracle.opened(session.number);
            return self.party.make_calls(cx, self.oracle, self.plan);
        };
        let closed = self.party.sessions.swap_remove(at);
        if !closed.calls.is_empty() {
            let calls = closed.calls;
            self.oracle
                .blame(format!("a session closes before its calls {calls:?} have ended: {cause}"));
        }
        if !closed.closing && matches!(cause, Cause::Disconnected) {
            self.oracle.blame("a session closes as if its user had asked for it");
        }
        self.oracle.session_ended(closed.number, cause);
        if self.party.persists && (!closed.closing || closed.replaced) {
            self.party.begins_anew = true;
            match cause {
                // To be turned away takes no time: not again at once.
                Cause::Connect(error) if error != ConnectError::Timeout => {
                    self.party.missed.push(closed.server);
                }
                _ => self.party.connect(cx, closed.server, self.oracle),
            }
        }
        self.party.make_calls(cx, self.oracle, self.plan);
    }
}

impl Party {
    /// What must be true of its sessions at any time.
    pub(crate) fn check(&self, cx: &Cx<'_>, plan: &Plan, oracle: &mut Oracle) {
        // What a server says of its own time counts into it.
        if !plan.is_trusted() || plan.features.has_any(&[Feature::ClockStall, Feature::ClockLeap]) {
            return;
        }
        let here = plan.endpoints[self.me.0].route.host;
        for session in &self.sessions {
            let rtt = cx.session_stats(session.id).and_then(|stats| stats.rtt);
            let least = 2 * plan.topology.least_delay(here, session.server.host);
            if let Some(rtt) = rtt
                && rtt.as_nanos() < u128::from(least)
            {
                let number = session.number;
                oracle.blame(format!(
                    "session {number} has an RTT of {rtt:?}, light needs {least} ns"
                ));
            }
        }
    }

    /// The windows that its sessions know, and whose they are.
    pub(crate) fn windows(&self, cx: &Cx<'_>) -> Vec<(SimRoute, u32)> {
        let window =
            |session: &Session| Some((session.server, cx.session_stats(session.id)?.window));
        self.sessions.iter().filter(|session| session.open).filter_map(window).collect()
    }

    /// Calls that have ended and whose slots are not free yet.
    pub(crate) fn quarantined(&self, cx: &Cx<'_>) -> usize {
        let stats = self.sessions.iter().filter_map(|session| cx.session_stats(session.id));
        stats.map(|stats| stats.quarantined).sum()
    }

    /// Whether all its sessions are gone.
    pub(crate) fn is_alone(&self) -> bool {
        self.sessions.is_empty()
    }
}
