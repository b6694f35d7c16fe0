//! What the user of an endpoint does: calls others and answers, also in streams.

mod calls;
mod handlers;
mod streams;
mod turn;

use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::Context;
use erpc_core::protocol::SessionId;

pub(crate) use self::calls::call_of;
pub(crate) use self::handlers::Answer;
use self::handlers::PutOff;
use self::streams::{Lane, Streams};
pub(crate) use self::streams::{Wake, stream_of};
pub(crate) use self::turn::Turn;
use crate::oracle::{Incarnation, Oracle};
use crate::plan::{EndpointPlan, Plan};
use crate::transport::SimTransport;
use crate::{Feature, Random, SimRoute};

pub(crate) type Cx<'a> = Context<'a, SimTransport>;

/// What a session is opened for.
#[derive(Clone, Copy)]
struct Target {
    server: SimRoute,
    /// It carries streams.
    streams: bool,
}

/// A session that a party has opened.
struct UserSession {
    id: SessionId,
    server: SimRoute,
    /// Its number at the oracle.
    number: u32,
    /// Its calls that have not ended.
    calls: Vec<u32>,
    closing: bool,
    /// What it is at, if it carries streams instead of calls.
    lane: Option<Lane>,
    /// Congestion control has limited it, when that was looked at.
    limited: bool,
    /// Another one is opened when it has closed, and takes its place in the endpoint's table.
    replaced: bool,
    open: bool,
}

impl UserSession {
    fn target(&self) -> Target {
        Target { server: self.server, streams: self.lane.is_some() }
    }
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
    behaviour: Random,
    methods: Random,
    /// Of handlers that are told that nobody waits.
    obedience: Random,
    streams: Random,
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
            behaviour: random.fork(7),
            obedience: random.fork(8),
            streams: random.fork(9),
            methods: random.fork(10),
        }
    }
}

/// One endpoint's user, in one of its lives.
pub(crate) struct Party {
    me: Incarnation,
    chances: Chances,
    sessions: Vec<UserSession>,
    /// Calls to be made.
    owed: u32,
    /// Calls that were made since the last round began.
    made: u32,
    under_way: u32,
    /// All the memory there was.
    hoard: Vec<MsgBuf>,
    /// Servers to try again with the next round.
    missed: Vec<Target>,
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
    handed_over: u32,
    /// Responses that there was no memory for.
    pub(crate) responses_refused: u64,
    streams: Streams,
}

impl Party {
    /// The user of an endpoint; the streams' messages take up to `memory` bytes.
    pub(crate) fn new(me: Incarnation, random: &Random, memory: usize) -> Self {
        Self {
            me,
            chances: Chances::new(random),
            sessions: Vec::new(),
            owed: 0,
            made: 0,
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
            streams: Streams::new(memory),
        }
    }

    /// Its next life.
    pub(crate) fn reborn(&self, random: &Random, memory: usize) -> Self {
        let (index, life) = self.me;
        let Self { owed, responses_refused, cancelled, .. } = *self;
        let streams = self.streams.reborn(memory);
        let new = Self::new((index, life + 1), random, memory);
        Self { owed, responses_refused, cancelled, streams, ..new }
    }

    pub(crate) fn incarnation(&self) -> Incarnation {
        self.me
    }

    /// A turn of its endpoint begins.
    pub(crate) fn begin_turn(&mut self) {
        self.handed_over = 0;
        self.streams.begin_turn();
    }

    /// What was handed over in this turn: calls, and what streams call and answer.
    pub(crate) fn handed_over(&self) -> u32 {
        self.handed_over + self.streams.handed_over()
    }

    /// Opens the sessions of an endpoint that is born.
    pub(crate) fn connect_all(
        &mut self,
        cx: &mut Cx<'_>,
        plan: &EndpointPlan,
        oracle: &mut Oracle,
    ) {
        for &server in &plan.servers {
            self.connect(cx, Target { server, streams: false }, oracle);
        }
        for &server in &plan.lanes {
            self.connect(cx, Target { server, streams: true }, oracle);
        }
    }

    /// Opens a session.
    fn connect(&mut self, cx: &mut Cx<'_>, target: Target, oracle: &mut Oracle) {
        let Target { server, streams } = target;
        let Ok(id) = cx.connect(server) else { return self.missed.push(target) };
        let number = oracle.session(self.me.0);
        self.sessions.push(UserSession {
            id,
            server,
            number,
            calls: Vec::new(),
            closing: false,
            limited: false,
            lane: streams.then(Lane::default),
            replaced: false,
            open: false,
        });
    }

    /// Closes one session and opens another.
    pub(crate) fn reconnect(&mut self, cx: &mut Cx<'_>, oracle: &mut Oracle) {
        let count = self.sessions.len() as u64;
        let at = self.chances.churn.below(count) as usize;
        let Some(session) = self.sessions.get_mut(at) else { return };
        if session.closing {
            return;
        }
        let target = session.target();
        let replaced = self.chances.churn.percent(70);
        // A stream that runs goes on.
        if session.lane.as_mut().is_none_or(|lane| lane.leave(replaced)) {
            (session.closing, session.replaced) = (true, replaced);
            cx.disconnect(session.id);
        }
        // Its successor waits for its place, or is there at once.
        if !replaced {
            self.connect(cx, target, oracle);
        }
    }

    /// Tries again to open the sessions that could not be.
    fn try_missed(&mut self, cx: &mut Cx<'_>, oracle: &mut Oracle) {
        for target in std::mem::take(&mut self.missed) {
            self.connect(cx, target, oracle);
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
        self.streams.retire();
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
        self.streams.take_hoard();
    }

    /// Gives it back.
    pub(crate) fn drop_hoard(&mut self) {
        self.hoard.clear();
        self.streams.drop_hoard();
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
            self.try_missed(cx, oracle);
            self.owed += calls;
            self.made = 0;
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
        self.streams.abandon(oracle);
    }
}

impl Party {
    /// Notes which of its sessions congestion control limits.
    pub(crate) fn note_limits(&mut self, cx: &Cx<'_>) {
        for session in self.sessions.iter_mut().filter(|session| !session.limited) {
            session.limited =
                cx.session_stats(session.id).is_some_and(|stats| stats.rate.is_some());
        }
    }

    /// The retransmissions of a session that nothing has limited, in packets.
    pub(crate) fn lost_without_limit(&self, cx: &Cx<'_>) -> Option<u64> {
        let mut sessions = self.sessions.iter().filter(|session| !session.limited);
        sessions.find_map(|session| Some(cx.session_stats(session.id)?.retransmissions.packets()))
    }

    /// What must be true of its sessions at any time.
    pub(crate) fn check(&self, cx: &Cx<'_>, plan: &Plan, oracle: &mut Oracle) {
        // What a server says of its own time counts into it; who was away says how long that may have been at most.
        let blurred = [Feature::ClockStall, Feature::ClockLeap, Feature::Absence];
        if !plan.is_trusted() || plan.features.has_any(&blurred) {
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
            |session: &UserSession| Some((session.server, cx.session_stats(session.id)?.window));
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
