//! Asks for the packets of a long response before it begins.
//!
//! A server sends only the first packet of a response unasked. To wait for it before the client asks
//! for the others would take a round trip more than a request of the same length. So if the last
//! response of a method had several packets, the client asks for as many behind its next request of
//! the method. The server remembers the request for response until it has the response.
//!
//! The client reserves credits and room as for any packets that it asks for. A guess must not delay
//! other calls, so it takes at most half of the credits and of the room. If the response is shorter,
//! what is too much is released when its first packet arrives.
//!
//! Requests for response measure round trips. An early one does not: its packets follow the first
//! packet of the response. So the first packet measures the round trip.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::session::send::MOST_PULLED;
use crate::protocol::index::SlotIndex;
use crate::protocol::turn::Turn;
use crate::transport::{Route, TxQueue};
use crate::wire::{Kind, Stamp};

/// Methods whose long responses a session remembers.
const METHODS: usize = 4;

/// The methods of a session whose last responses were long: did not fit one packet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LongResponses {
    /// Method and bytes of its last response; 0 bytes if the place is free. The place of a method
    /// depends on its id only.
    places: [(u32, u32); METHODS],
}

impl LongResponses {
    /// The bytes of the method's last response; 0 if it was short.
    #[inline(always)]
    pub(super) fn last(&self, method: u32) -> u32 {
        let (known, bytes) = self.places[method as usize % METHODS];
        if known == method { bytes } else { 0 }
    }

    /// A response of `bytes` bytes has begun, which was not announced.
    pub(super) fn note_long(&mut self, method: u32, bytes: u32) {
        self.places[method as usize % METHODS] = (method, bytes);
    }

    /// A response was short, or came so late that it was announced.
    #[inline]
    pub(super) fn forget(&mut self, method: u32) {
        if self.last(method) > 0 && !mutant!(LongResponseExpectedForever) {
            self.places[method as usize % METHODS] = (0, 0);
        }
    }
}

impl<R: Route> OpenSession<R> {
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
        if call.response().is_some() || call.is_pulled_early() || call.retry().is_accepted() {
            return;
        }
        let (cut, flags) = (self.cut_of(call.is_large()), self.flags.with_large(call.is_large()));
        let (layout, cost) = (cut.response(expected), cut.charges.pull());
        let most = (layout.packets() - 1).min(MOST_PULLED);
        let mut count = 0;
        while count < most {
            let is_scarce = lines.is_room_scarce() || self.credits.is_scarce();
            if is_scarce && !mutant!(EarlyPullTakesAll) || self.pacer.holds(turn.now) {
                break;
            }
            if lines.flow(&mut self.credits, self.peer).take(cost).is_err() {
                break;
            }
            let bytes = self.cut.charges.overhead() + layout.len(1 + count);
            self.pacer.spend(turn.now, bytes, turn.endpoint.config.bypasses);
            count += 1;
        }
        if count == 0 {
            return;
        }
        // No stamp: the packets come behind the first one, so they do not measure the path.
        let kind = Kind::RequestForResponse;
        let packet = self.short_packet(kind, flags, number, 1, Stamp::NONE.to_u32(), count);
        turn.tx.push_bytes(&self.common.route, packet.as_bytes());
        if let Some(call) = self.slots[at].call_mut() {
            call.note_pulled_early(count, cost);
        }
    }
}
