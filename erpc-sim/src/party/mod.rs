//! What the user of an endpoint does: calls others, and answers.

mod calls;
mod handlers;
mod turn;

use erpc_core::buf::MsgBuf;
use erpc_core::protocol::SessionId;
use erpc_core::runtime::Context;

pub(crate) use self::handlers::Answer;
use self::handlers::PutOff;
pub(crate) use self::turn::Turn;
use crate::oracle::{Incarnation, Oracle};
use crate::plan::Plan;
use crate::transport::SimTransport;
use crate::{Feature, Random, SimRoute};

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
