//! Sessions that carry streams, one at a time.

use erpc_core::buf::MsgBuf;
use erpc_core::protocol::{CallError, Cause, Reply, SessionId};

use super::client::ClientStream;
use super::{StreamContext, Streams, Wake, owned, stream_of_token};
use crate::oracle::Oracle;
use crate::party::{Cx, Party};
use crate::plan::Plan;
use crate::stream_script::StreamScript;

/// The state of a session that carries streams.
#[derive(Default)]
pub(in crate::party) struct Lane {
    /// Streams that the session has carried.
    streams: u32,
    /// The current stream.
    stream: Option<u32>,
    /// How the session closes when its stream is over.
    leaving: Option<Leaving>,
}

/// How a session closes.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Leaving {
    /// Another session is opened afterwards.
    replaced: bool,
}

impl Lane {
    /// The session shall close, after its current stream. Returns whether it can close now.
    pub(in crate::party) fn leave(&mut self, replaced: bool) -> bool {
        self.leaving.get_or_insert(Leaving { replaced });
        self.stream.is_none()
    }
}

impl Party {
    /// Begins a round of `streams` more streams.
    pub(crate) fn begin_streams(
        &mut self,
        cx: &mut Cx<'_>,
        streams: u32,
        oracle: &mut Oracle,
        plan: &Plan,
    ) {
        if self.persists {
            self.try_missed(cx, oracle);
            self.streams.owed += streams;
            self.use_lanes(cx, oracle, plan);
        }
    }

    /// Begins the remaining streams on free lanes, usually on lanes whose sessions are established.
    pub(in crate::party) fn use_lanes(
        &mut self,
        cx: &mut Cx<'_>,
        oracle: &mut Oracle,
        plan: &Plan,
    ) {
        while self.streams.owed > 0 {
            let eager = self.chances.streams.percent(20);
            let free = self.sessions.iter_mut().find_map(|session| {
                let (id, number) = (session.id, session.number);
                let ready = !session.closing && (session.open || eager);
                let lane = session.lane.as_mut().filter(|_| ready)?;
                let free = lane.stream.is_none() && lane.leaving.is_none();
                free.then_some((id, number, session.open, lane))
            });
            let Some((session, number, open, lane)) = free else { return };
            let script = StreamScript::draw(&mut self.chances.streams, &plan.stream_mix);
            let id = oracle.stream_begins(number, script);
            lane.streams += 1;
            lane.stream = Some(id);
            let number = lane.streams;
            self.streams.owed -= 1;
            let Streams { begun, means, .. } = &mut self.streams;
            let mut context = StreamContext { cx: &mut *cx, means, oracle: &mut *oracle };
            begun.push(ClientStream::begin(id, (session, number, open), script, &mut context));
            let at = begun.len() - 1;
            self.go_on_with(cx, at, oracle);
        }
    }

    /// Lets a stream that this party has begun continue as far as possible.
    fn go_on_with(&mut self, cx: &mut Cx<'_>, at: usize, oracle: &mut Oracle) {
        let Streams { begun, means, .. } = &mut self.streams;
        let stream = &mut begun[at];
        stream.go_on(&mut StreamContext { cx: &mut *cx, means, oracle: &mut *oracle });
        let (id, spoilt) = (stream.id(), stream.is_spoilt());
        let is_over = stream.is_newly_over();
        if is_over {
            oracle.stream_is_over(id, spoilt);
        }
        if stream.has_ended() {
            oracle.stream_has_ended(id);
            drop(begun.swap_remove(at));
        }
        if is_over {
            self.free_lane(cx, id, spoilt);
        }
    }

    /// A lane's stream is over. A `spoilt` session is closed and replaced.
    fn free_lane(&mut self, cx: &mut Cx<'_>, id: u32, spoilt: bool) {
        let of = |lane: &Option<Lane>| lane.as_ref().and_then(|lane| lane.stream);
        let mut sessions = self.sessions.iter_mut();
        let Some(session) = sessions.find(|session| of(&session.lane) == Some(id)) else { return };
        let Some(lane) = &mut session.lane else { return };
        lane.stream = None;
        let spoilt = spoilt.then_some(Leaving { replaced: true });
        if let Some(Leaving { replaced }) = lane.leaving.or(spoilt)
            && !session.closing
        {
            (session.closing, session.replaced) = (true, replaced);
            cx.disconnect(session.id);
        }
    }

    /// A session has opened or is gone. Lets its streams continue.
    pub(in crate::party) fn lane_has_changed(
        &mut self,
        cx: &mut Cx<'_>,
        session: SessionId,
        gone: Option<Cause>,
        oracle: &mut Oracle,
    ) {
        // In reverse order, because ended streams are removed.
        for at in (0..self.streams.begun.len()).rev() {
            if self.streams.begun[at].session_has_changed(session, gone) {
                let id = self.streams.begun[at].id();
                if gone.is_some() && self.streams.begun[at].is_calling() {
                    oracle
                        .blame_stream(id, "has calls that have not ended when its session closes");
                }
                self.go_on_with(cx, at, oracle);
            }
        }
    }

    /// A call of a stream has ended.
    pub(in crate::party) fn stream_replied(
        &mut self,
        cx: &mut Cx<'_>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
        oracle: &mut Oracle,
    ) {
        let Some(id) = stream_of_token(token) else { return };
        let means = &mut self.streams.means;
        if let Err(CallError::MaybeExecuted(cause) | CallError::NotExecuted(cause)) = &reply
            && matches!(cause, Cause::DeadlineExceeded | Cause::NoMemory)
        {
            let sent = matches!(reply, Err(CallError::MaybeExecuted(_)));
            means.ended_early.0 += u64::from(sent);
            means.ended_early.1 += u64::from(!sent);
        }
        means.pool.recycle(request);
        let Some(at) = self.streams.begun.iter().position(|stream| stream.id() == id) else {
            return oracle.blame_stream(id, "has a call that ends after it");
        };
        let result = match reply {
            Ok(Reply { body, extended: true }) => {
                let message = owned(body, &mut means.pool);
                message.map(Some).map_err(|_| CallError::ResponseLost(Cause::NoMemory))
            }
            Ok(Reply { extended: false, .. }) => Ok(None),
            Err(error) => Err(error),
        };
        if result.is_ok() {
            oracle.stream_is_heard_of(id);
        }
        if !self.streams.begun[at].replied(token, result) {
            oracle.blame_stream(id, "has a call that ends, but was not under way");
        }
        self.go_on_with(cx, at, oracle);
    }

    /// A scheduled event of a stream's client is due.
    pub(super) fn wake_client(&mut self, cx: &mut Cx<'_>, wake: Wake, oracle: &mut Oracle) {
        let Streams { begun, means, .. } = &mut self.streams;
        if let Some(at) = begun.iter().position(|stream| stream.id() == wake.stream) {
            begun[at]
                .wake(wake.who, &mut StreamContext { cx: &mut *cx, means, oracle: &mut *oracle });
            self.go_on_with(cx, at, oracle);
        }
    }
}
