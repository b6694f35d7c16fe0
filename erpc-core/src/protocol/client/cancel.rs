//! Calls that end before their answer comes: cancelled, or too late.

use super::*;
use crate::transport::TxQueue;

impl<R: Route> ClientSide<R> {
    /// Ends the call with this token, if it has not ended.
    pub(in crate::protocol) fn cancel<X: TxQueue<Route = R>>(
        &mut self,
        shared: &mut Shared,
        _now: Instant,
        id: SessionId,
        call: (u64, Cause),
        _tx: &mut X,
    ) -> bool {
        let (token, cause) = call;
        let session = self
            .sessions
            .get_mut(id.index as usize)
            .filter(|session| session.generation == id.generation);
        let Some(session) = session else { return false };
        let place = session.queue.iter().position(|queued| queued.token == token);
        let Some(queued) = place.and_then(|place| session.queue.remove(place)) else {
            return false;
        };
        shared.stats.failures += 1;
        shared.notices.push_back(Notice::CallFailed {
            token,
            error: CallError::NotExecuted(cause),
            request: queued.request,
        });
        true
    }
}
