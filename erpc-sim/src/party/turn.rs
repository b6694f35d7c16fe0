//! What a user does in a turn of its endpoint's loop.

use erpc_core::buf::MsgBuf;
use erpc_core::event_loop::App;
use erpc_core::protocol::{
    Body, CallError, Cause, ClientId, ConnectError, Reply, Request, RequestHandle, SessionEvent,
    SessionId,
};
use erpc_core::status::{Code, Status};
use erpc_core::time::Instant;

use super::handlers::Answer;
use super::streams::{stream_of, stream_of_token};
use super::{Cx, Party, call_of};
use crate::SimRoute;
use crate::oracle::Oracle;
use crate::plan::Plan;
use crate::transport::SimTransport;

/// A user in a turn of its endpoint's loop.
pub(crate) struct Turn<'w> {
    pub(crate) party: &'w mut Party,
    pub(crate) oracle: &'w mut Oracle,
    pub(crate) plan: &'w Plan,
    /// Answers that are put off, with the delay in ns.
    pub(crate) later: &'w mut Vec<(u64, Answer)>,
}

impl App<SimTransport> for Turn<'_> {
    fn on_request(&mut self, cx: &mut Cx<'_>, request: Request<'_, SimRoute>) {
        self.party.check_client(cx, &request, self.plan, self.oracle);
        if self.plan.has_streams() && stream_of(request.method).is_some() {
            return self.party.stream_request(cx, request, self.oracle);
        }
        let Request { handle, method, body, extended, deadline, .. } = request;
        let id = call_of(method, extended, body.as_slice());
        let bare = self.oracle.bare_request(id, body.as_slice(), Some(extended));
        let asked = self.oracle.executed(self.party.me, id, bare);
        let now = cx.now().as_nanos();
        let left =
            (deadline != Instant::NEVER).then(|| deadline.as_nanos().wrapping_sub(now) as i64);
        self.oracle.told_deadline(id, left);
        if let Body::Message(message) = body {
            cx.recycle(message);
        }
        let answer = Answer { id, method, handle, asked };
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
        if stream_of_token(token).is_some() {
            self.party.stream_replied(cx, token, reply, request, self.oracle);
            return self.party.use_lanes(cx, self.oracle, self.plan);
        }
        let id = token as u32;
        let result = reply
            .as_ref()
            .map(|reply| self.oracle.bare_response(id, reply.as_slice(), reply.extended));
        let bare = self.oracle.bare_request(id, request.as_slice(), None);
        self.oracle.ended(id, result, bare);
        // The user owns the request again and writes into it. The write panics if a transmit queue
        // still holds the request.
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
            self.oracle.blame_call(id, format!("call {id} ends after its session"));
        }
        self.party.under_way -= 1;
        self.party.make_calls(cx, self.oracle, self.plan);
    }

    fn on_cancel(&mut self, cx: &mut Cx<'_>, request: RequestHandle) {
        if self.party.stream_cancelled(cx, request, self.oracle) {
            return;
        }
        let mut known = self.party.put_off.iter_mut();
        let Some(put_off) = known.find(|put_off| put_off.handle == request) else {
            return self.oracle.blame("a handler is told to stop after it has answered");
        };
        if std::mem::replace(&mut put_off.told, true) {
            let id = put_off.id;
            let what = format!("the handler of call {id} is told twice to stop");
            return self.oracle.blame_call(id, what);
        }
        self.oracle.told_of_cancel(put_off.id);
        // Some handlers stop, others continue.
        if self.party.chances.obedience.percent(50) {
            self.party.put_off.retain(|put_off| put_off.handle != request);
            cx.respond_status(request, &Status::new(Code::Cancelled, "stopped"));
        }
    }

    fn on_client_gone(&mut self, _: &mut Cx<'_>, client: ClientId, _: Cause) {
        self.party.stream_client_gone(client, self.oracle);
        for put_off in &mut self.party.put_off {
            if put_off.handle.client() != client {
                continue;
            }
            if !put_off.told {
                let id = put_off.id;
                self.oracle.blame_call(
                    id,
                    format!(
                        "the client of call {id} is gone, but its handler was not told to stop"
                    ),
                );
            }
            if std::mem::replace(&mut put_off.gone, true) {
                self.oracle.blame("a client is gone twice");
            }
        }
    }

    fn on_session(&mut self, cx: &mut Cx<'_>, session: SessionId, event: SessionEvent) {
        let Some(at) = self.party.sessions.iter().position(|known| known.id == session) else {
            return self.oracle.blame(format!("an event of an unknown session: {event:?}"));
        };
        if event == SessionEvent::Draining {
            let session = &mut self.party.sessions[at];
            session.closing = true;
            return cx.disconnect(session.id);
        }
        let SessionEvent::Closed(cause) = event else {
            let session = &mut self.party.sessions[at];
            session.open = true;
            let (id, is_lane) = (session.id, session.lane.is_some());
            self.oracle.opened(session.number, cx.session_address(id));
            if is_lane {
                self.party.lane_has_changed(cx, id, None, self.oracle);
                return self.party.use_lanes(cx, self.oracle, self.plan);
            }
            return self.party.make_calls(cx, self.oracle, self.plan);
        };
        let closed = self.party.sessions.swap_remove(at);
        if !closed.calls.is_empty() {
            let calls = &closed.calls;
            let what = format!("closes before its calls {calls:?} have ended: {cause}");
            self.oracle.blame_session(closed.number, what);
        }
        if !closed.closing && matches!(cause, Cause::Disconnected) {
            self.oracle.blame_session(closed.number, "closes as if its user had asked for it");
        }
        self.oracle.session_ended(closed.number, cause);
        if self.party.persists && (!closed.closing || closed.replaced) {
            self.party.begins_anew = true;
            match cause {
                // The server may refuse every attempt without delay. So the user tries again only
                // in the next round, not in this turn.
                Cause::Connect(error) if error != ConnectError::Timeout => {
                    self.party.missed.push(closed.target());
                }
                _ => self.party.connect(cx, closed.target(), self.oracle),
            }
        }
        if closed.lane.is_some() {
            self.party.lane_has_changed(cx, closed.id, Some(cause), self.oracle);
            self.party.use_lanes(cx, self.oracle, self.plan);
        }
        self.party.make_calls(cx, self.oracle, self.plan);
    }
}
