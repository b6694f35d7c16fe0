//! The calls of a user.

use bytes::BufMut;
use erpc_core::protocol::{Cause, NewCall, RejectReason};
use erpc_core::time::Instant;
use erpc_core::wire::extension::{Extension, MAX_EXTENSION};

use super::{Cx, Party, UserSession};
use crate::call_behaviour::CallBehaviour;
use crate::oracle::Oracle;
use crate::pattern;
use crate::plan::Plan;

/// Methods below this number are shared by calls, and the first bytes of a request name its call.
/// Each other method belongs to one call, and names it.
pub(crate) const SHARED_METHODS: u32 = 64;

/// The number of a request's call, from its method and its first bytes. `u32::MAX` if they name
/// none.
pub(crate) fn call_of(method: u32, extended: bool, request: &[u8]) -> u32 {
    if method >= SHARED_METHODS {
        return method - SHARED_METHODS;
    }
    let body = match extended {
        true => Extension::split(request).map_or(&[][..], |(_, body)| body),
        false => request,
    };
    pattern::call(body).unwrap_or(u32::MAX)
}

impl Party {
    /// Makes the remaining calls, up to `plan.outstanding` at a time.
    pub(crate) fn make_calls(&mut self, cx: &mut Cx<'_>, oracle: &mut Oracle, plan: &Plan) {
        while self.owed > 0 && self.under_way < plan.outstanding {
            // A call uses an established session or, with `eager`, also a session that is still
            // opening.
            let eager = self.chances.sessions.percent(2);
            let ready = |session: &UserSession| {
                session.lane.is_none() && !session.closing && (session.open || eager)
            };
            let count = self.sessions.iter().filter(|session| ready(session)).count();
            let at = self.chances.sessions.below(count as u64) as usize;
            let mut ready = self.sessions.iter_mut().filter(|session| ready(session));
            let Some(session) = ready.nth(at) else { return };
            let random = &mut self.chances.sizes;
            let mut next = || plan.sizes.draw_next(self.made, random);
            let (len, response_len) = (next(), next());
            self.made += 1;
            let behaviour = CallBehaviour::draw(&mut self.chances.behaviour, &plan.call_mix);
            // Leave room for extensions.
            let most = plan.sizes.longest.saturating_sub(MAX_EXTENSION as u32);
            let (len, response_len) = match behaviour.extended {
                true => (len.min(most), response_len.min(most)),
                false => (len, response_len),
            };
            let Ok(mut request) =
                cx.alloc(MAX_EXTENSION * usize::from(behaviour.extended) + len as usize)
            else {
                oracle.no_memory();
                self.owed -= 1;
                continue;
            };
            let id = oracle.begin(session.number, len, response_len);
            if behaviour.extended {
                request.put_slice(&oracle.extend(id, behaviour.deadline));
            }
            pattern::fill(&mut request, oracle.request_key(id), len as usize);
            let shared = self.chances.methods.below(plan.handlers.methods) as u32;
            let tells = pattern::call(&request.as_slice()[request.len() - len as usize..]);
            let method = tells.map_or(SHARED_METHODS + id, |_| shared);
            oracle.is_of_method(id, method);
            self.handed_over += 1;
            let call = NewCall {
                extended: behaviour.extended,
                deadline: behaviour
                    .deadline
                    .map_or(Instant::NEVER, |left| cx.now().plus_nanos(left)),
                ..NewCall::new(method, request, u64::from(id))
            };
            match cx.call(session.id, call) {
                Ok(()) => {
                    session.calls.push(id);
                    self.under_way += 1;
                    self.owed -= 1;
                    match behaviour.cancel {
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
                        // The session's queue has room again when a call ends or the session opens.
                        RejectReason::QueueFull => return,
                        RejectReason::NoSession
                        | RejectReason::Disconnecting
                        | RejectReason::PeerDraining => self.owed -= 1,
                        RejectReason::DeadlineExceeded if behaviour.deadline == Some(0) => {
                            self.owed -= 1
                        }
                        other => oracle.blame_call(id, format!("call {id} is rejected: {other}")),
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
}
