//! The user of an endpoint: makes calls, answers calls, and uses streams.

mod calls;
mod handlers;
mod streams;
mod turn;

use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::Context;
use erpc_core::protocol::{Request, SessionId};

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

/// A server, and the purpose of a session with it.
#[derive(Clone, Copy)]
struct Target {
    server: SimRoute,
    /// The session carries streams.
    streams: bool,
}

/// A session that a party has opened.
struct UserSession {
    id: SessionId,
    server: SimRoute,
    /// The session's number at the oracle.
    number: u32,
    /// Calls that have not ended.
    calls: Vec<u32>,
    closing: bool,
    /// The state of a session that carries streams. `None` if it carries calls.
    lane: Option<Lane>,
    /// Congestion control has limited the session at least once, as far as `note_limits` saw.
    limited: bool,
    /// The session is closing, and another session replaces it afterwards, at the same index of the
    /// endpoint's table.
    replaced: bool,
    open: bool,
}

impl UserSession {
    fn target(&self) -> Target {
        Target { server: self.server, streams: self.lane.is_some() }
    }
}

/// The random sources of a user, one per purpose, so that for example a panic of a handler or the
/// end of a session does not change the sizes of messages.
struct Chances {
    sessions: Random,
    sizes: Random,
    panics: Random,
    delays: Random,
    memory: Random,
    churn: Random,
    behaviour: Random,
    methods: Random,
    /// Whether handlers stop when they learn that their caller no longer waits.
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
    /// Calls still to be made.
    owed: u32,
    /// Calls made since the last round began.
    made: u32,
    under_way: u32,
    /// While the plan lets memory run out: buffers that hold all free memory.
    hoard: Vec<MsgBuf>,
    /// Sessions that could not be opened. The next round tries again.
    missed: Vec<Target>,
    /// Requests whose answers were put off.
    put_off: Vec<PutOff>,
    /// Calls to be cancelled, with the delay in ns.
    pub(crate) to_cancel: Vec<(u64, u32)>,
    /// Calls that the user has cancelled while they were under way.
    pub(crate) cancelled: u64,
    /// Closed sessions are opened again.
    persists: bool,
    /// A session has closed in this turn, and another one replaces it, now or in the next round.
    pub(crate) begins_anew: bool,
    /// Calls made in this turn.
    handed_over: u32,
    /// Responses for which there was no memory.
    pub(crate) responses_refused: u64,
    streams: Streams,
}

impl Party {
    /// The user of an endpoint. Messages of streams use at most `memory` bytes.
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

    /// The user in the endpoint's next life.
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

    /// A turn of the endpoint begins.
    pub(crate) fn begin_turn(&mut self) {
        self.handed_over = 0;
        self.streams.begin_turn();
    }

    /// Calls made in this turn, and the calls and answers of streams.
    pub(crate) fn handed_over(&self) -> u32 {
        self.handed_over + self.streams.handed_over()
    }

    /// Opens the sessions of an endpoint that has just started.
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
        let address = cx.session_address(id).expect("the session has just begun to open");
        let number = oracle.session(self.me.0, address);
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
        // A running stream continues until it ends.
        if session.lane.as_mut().is_none_or(|lane| lane.leave(replaced)) {
            (session.closing, session.replaced) = (true, replaced);
            cx.disconnect(session.id);
        }
        // The new session either opens after the old session has closed (`replaced`), or
        // immediately.
        if !replaced {
            self.connect(cx, target, oracle);
        }
    }

    /// Tries again to open sessions that could not be opened.
    fn try_missed(&mut self, cx: &mut Cx<'_>, oracle: &mut Oracle) {
        for target in std::mem::take(&mut self.missed) {
            self.connect(cx, target, oracle);
        }
    }

    /// Closes all sessions permanently.
    pub(crate) fn leave(&mut self, cx: &mut Cx<'_>) {
        self.persists = false;
        for session in &mut self.sessions {
            session.closing = true;
            cx.disconnect(session.id);
        }
    }

    /// Stops the user: from now on, the user makes no calls, and begins no streams and sessions.
    pub(crate) fn retire(&mut self) {
        (self.persists, self.owed) = (false, 0);
        self.streams.retire();
    }

    /// Allocates all free memory of the endpoint's pool and of the streams' pool, except for pieces
    /// of less than 64 bytes.
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

    /// Frees the memory of [`take_hoard`](Self::take_hoard).
    pub(crate) fn drop_hoard(&mut self) {
        self.hoard.clear();
        self.streams.drop_hoard();
    }

    /// Begins a round of `calls` more calls.
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

    /// The endpoint has died. In its next life, the user makes the remaining calls.
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
    /// Notes which of the user's sessions congestion control limits.
    pub(crate) fn note_limits(&mut self, cx: &Cx<'_>) {
        for session in self.sessions.iter_mut().filter(|session| !session.limited) {
            session.limited =
                cx.session_stats(session.id).is_some_and(|stats| stats.rate.is_some());
        }
    }

    /// Packets retransmitted by the first session that congestion control has not limited. `None`
    /// if there is no such session.
    pub(crate) fn lost_without_limit(&self, cx: &Cx<'_>) -> Option<u64> {
        let mut sessions = self.sessions.iter().filter(|session| !session.limited);
        sessions.find_map(|session| Some(cx.session_stats(session.id)?.retransmissions.packets()))
    }

    /// Checks the rules for sessions that hold at any time.
    pub(crate) fn check(&self, cx: &Cx<'_>, plan: &Plan, oracle: &mut Oracle) {
        self.check_slots(cx, plan, oracle);
        // An RTT excludes the processing time that a server reports. A server whose loop paused or
        // whose clock jumped reports too long a time, so that the RTT is too short.
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
                oracle.blame_session(
                    session.number,
                    format!("the RTT is {rtt:?}, but the links alone take {least} ns"),
                );
            }
        }
    }

    /// Checks the number of slots of each session: the smaller one of both ends. A server's host may
    /// have several endpoints, any of which may have accepted the session.
    fn check_slots(&self, cx: &Cx<'_>, plan: &Plan, oracle: &mut Oracle) {
        let own = plan.endpoints[self.me.0].slots;
        for session in self.sessions.iter().filter(|session| session.open) {
            let Some(stats) = cx.session_stats(session.id) else { continue };
            let servers =
                plan.endpoints.iter().filter(|plan| plan.route.host == session.server.host);
            let is_agreed = |server: &EndpointPlan| server.slots.min(own) == stats.slots;
            if stats.in_flight + stats.quarantined > usize::from(stats.slots)
                || !servers.into_iter().any(is_agreed)
            {
                let what =
                    format!("has {own} slots, and these slots and calls in flight: {stats:?}");
                oracle.blame_session(session.number, what);
            }
        }
    }

    /// Checks the number of slots of the session of a request, and the number of its requests that
    /// this server's handlers have.
    fn check_client(
        &self,
        cx: &Cx<'_>,
        request: &Request<'_, SimRoute>,
        plan: &Plan,
        oracle: &mut Oracle,
    ) {
        let client = request.handle.client();
        let peer = plan.endpoints.iter().find(|plan| plan.route == request.peer);
        let (Some(peer), Some(stats)) = (peer, cx.client_stats(client)) else { return };
        let slots = plan.endpoints[self.me.0].slots.min(peer.slots);
        let put_off = self.put_off.iter().filter(|put_off| put_off.handle.client() == client);
        let executing = put_off.count() + 1;
        if stats.slots != slots || executing > usize::from(slots) {
            oracle.blame(format!(
                "executes {executing} requests of a session with {} slots; both ends have {slots}",
                stats.slots
            ));
        }
    }

    /// The open sessions' windows, with their servers.
    pub(crate) fn windows(&self, cx: &Cx<'_>) -> Vec<(SimRoute, u32)> {
        let window =
            |session: &UserSession| Some((session.server, cx.session_stats(session.id)?.window));
        self.sessions.iter().filter(|session| session.open).filter_map(window).collect()
    }

    /// Slots of ended calls that are not free yet.
    pub(crate) fn quarantined(&self, cx: &Cx<'_>) -> usize {
        let stats = self.sessions.iter().filter_map(|session| cx.session_stats(session.id));
        stats.map(|stats| stats.quarantined).sum()
    }

    /// Whether the user has no sessions.
    pub(crate) fn is_alone(&self) -> bool {
        self.sessions.is_empty()
    }
}
