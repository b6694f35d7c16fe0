//! Asks for the packets of a long response before it begins.
//!
//! A server sends only the first packet of a response unasked. If the client waited for it before it
//! asks for the others, a long response would take one round trip more than a request of the same
//! length. So if the last response of a method had several packets, the client asks for as many
//! packets, at most 64, right behind its next request of the method. The server remembers the request
//! for response until it has the response.
//!
//! The client reserves credits, window and room as for any packets that it asks for. A guess must not
//! delay other calls. So there is none while calls wait, or while the session is paced, and a guess
//! leaves a quarter of credits, window and room. The first packet of a shorter response releases the
//! rest.
//!
//! Requests for response measure round trips. An early one does not: its packets follow the first
//! packet of the response. So the first packet measures the round trip.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::response::MOST_PULLED;
use crate::protocol::index::SlotIndex;
use crate::protocol::turn::Turn;
use crate::transport::{Route, TxQueue};
use crate::wire::{Kind, Stamp};

impl<R: Route> OpenSession<R> {
    /// Whether a new call of the method asks for the packets of its response early, as far as can be
    /// known before its request is sent.
    #[inline(always)]
    pub(super) fn pulls_early(&mut self, lines: &mut Lines<R>, method: u32) -> bool {
        self.long_responses.last(method) > 0 && self.affords_guess(lines)
    }

    #[inline(never)]
    fn affords_guess(&mut self, lines: &mut Lines<R>) -> bool {
        let cost = self.cut.charges.pull();
        lines.flow(&mut self.credits, self.peer).affords_guess(cost)
    }

    /// The last packet of a request was sent. Asks for the packets behind the first one of its
    /// response, if the response is likely to have them.
    #[inline]
    pub(super) fn pull_early<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
    ) {
        let Some(call) = self.slots[at].call() else { return };
        let expected = self.long_responses.last(call.method());
        if expected > 0 && call.next_to_send().is_none() && !call.recovery().was_retransmitted() {
            self.pull_expected(turn, lines, at, expected);
        }
    }

    #[inline(never)]
    fn pull_expected<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        expected: u32,
    ) {
        let number = self.slots[at].number;
        let Some(call) = self.slots[at].call() else { return };
        let begins = call.response().is_none() && !call.retry().is_accepted();
        if !begins || call.is_pulled_early() || call.continues() {
            return;
        }
        let others_wait = self.credits.is_short() || !lines.are_empty(self.peer);
        if others_wait && !mutant!(EarlyPullTakesTurn) || self.pacer.is_limited() {
            return;
        }
        let (cut, flags) = (self.cut_of(call.is_large()), self.flags.with_large(call.is_large()));
        let (layout, cost) = (cut.response(expected), cut.charges.pull());
        let most = (layout.packets() - 1).min(MOST_PULLED);
        let mut flow = lines.flow(&mut self.credits, self.peer);
        let mut count = 0;
        while count < most && (flow.affords_guess(cost) || mutant!(EarlyPullTakesAll)) {
            if flow.take(cost).is_err() {
                break;
            }
            let bytes = self.cut.charges.overhead() + layout.len(1 + count);
            self.pacer.spend(turn.now, bytes, turn.endpoint.config.bypasses);
            count += 1;
        }
        if count == 0 {
            return;
        }
        let kind = Kind::RequestForResponse;
        let packet = self.short_packet(kind, flags, number, 1, Stamp::NONE.to_u32(), count);
        turn.tx.push_bytes(&self.common.route, packet.as_bytes());
        if let Some(call) = self.slots[at].call_mut() {
            call.note_pulled_early(count, cost);
        }
    }
}
