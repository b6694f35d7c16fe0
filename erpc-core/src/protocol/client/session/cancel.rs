//! Calls that end before their answer arrives: cancelled, or past their deadline.
//!
//! The caller learns of the end immediately, and gets its request back. The client does not know
//! how far the request has got until the server answers. Until then the slot is in *quarantine*.
//!
//! ```text
//! waits for a slot          ->  gone
//! no packet sent            ->  gone; the next call takes its number
//! request in flight         ->  quarantine: Cancel, repeated
//!                                 Accepted           releases the request's reservation; further
//!                                                    Cancels are probes
//!                                 Response, Failure  frees the slot
//! response arriving         ->  gone; the slot's next request, or a Done, tells the server
//! ```

use super::OpenSession;
use super::response::is_announcement;
use crate::mutants::mutant;
use crate::protocol::client::call::Call;
use crate::protocol::client::kept::KEPT_SMALL;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::slot::{Quarantine, SlotState};
use crate::protocol::index::SlotIndex;
use crate::protocol::stats::DropReason;
use crate::protocol::turn::Turn;
use crate::protocol::{Cause, Event, Notice, SessionEvent};
use crate::transport::{Route, TxQueue};
use crate::wire::{CANCEL, Header, Kind};

impl<R: Route> OpenSession<R> {
    /// Ends the call in a slot with this token. Returns whether there was such a call.
    pub(in crate::protocol::client) fn cancel<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        token: u64,
        cause: Cause,
    ) -> bool {
        let found = self
            .occupied()
            .iter()
            .find(|at| self.slots[*at].call().is_some_and(|call| call.token() == token));
        if let Some(at) = found {
            self.end_early(turn, lines, at, cause);
        }
        found.is_some()
    }

    /// Ends the calls whose deadline has passed.
    pub(in crate::protocol::client) fn end_late_calls<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        for at in self.occupied().iter() {
            if self.slots[at].call().is_some_and(|call| call.deadline() <= turn.now) {
                self.end_early(turn, lines, at, Cause::DeadlineExceeded);
            }
        }
    }

    /// The server shuts down. Calls of which nothing was sent end now, except those that continue a
    /// stream. Calls that were sent go on: the server answers or refuses them.
    pub(super) fn on_server_draining<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        let intake = &mut self.common.intake;
        if intake.disconnects() || intake.server_drains() {
            return;
        }
        intake.begin_server_drain();
        let notice = Notice::Session(self.common.id, SessionEvent::Draining);
        turn.endpoint.notices.push_back(notice);
        self.common.queue.fail_beginning(Cause::PeerDraining, turn.endpoint);
        for at in self.occupied().iter() {
            let unsent = |call: &Call| !call.was_sent() && !call.continues();
            if self.slots[at].call().is_some_and(unsent) {
                self.end_early(turn, lines, at, Cause::PeerDraining);
            }
        }
    }

    /// Ends the call in a slot before its answer has arrived. The request goes back to the user, so
    /// first the transmit queue is made to release it (thesis section 6.3.2.2).
    fn end_early<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        cause: Cause,
    ) {
        let place = self.waiter(at);
        let Some(lack) = self.slots[at].call().map(|call| call.waiting()) else { return };
        self.stop_waiting(lines, at);
        if let Some(line) = lack.and_then(|lack| self.line(lack)) {
            lines.vacate(line, place);
        }
        let Some(mut call) = self.slots[at].take_call() else { return };
        turn.tx.reclaim();
        if call.is_queued() && !mutant!(FlushForgottenAtCancel) {
            turn.tx.flush();
        }
        let error = call.error(cause);
        let is_pending = call.was_sent() && call.response().is_none();
        if is_pending && !mutant!(NoQuarantine) {
            let reserved = call.outstanding(&self.cut.charges);
            let quarantine = Quarantine::new(turn.now, reserved, call.maybe_executed());
            self.slots[at].state = SlotState::Quarantine(Box::new(quarantine));
            let due = turn.now.plus_nanos(self.rtt.rto(0));
            self.arm(turn, due);
            self.send_cancel(turn, at);
            call.fail(turn.endpoint, error);
            return;
        }
        if !call.was_sent() && !mutant!(UnsentNumberLost) {
            let count = self.slots.count();
            self.slots[at].step_back(count);
        }
        call.release_outstanding(&self.cut.charges, &mut lines.flow(&mut self.credits, self.peer));
        if call.response().is_some() || self.kept.is_owed(at) {
            self.owe_done(turn, at);
        }
        call.fail(turn.endpoint, error);
        self.vacate(turn, lines, at);
    }

    /// Tells the server that the response is not wanted. The packet uses the request's credit.
    pub(super) fn send_cancel<X: TxQueue<Route = R>>(&self, turn: &mut Turn<'_, X>, at: SlotIndex) {
        if !mutant!(CancelNotSent) {
            // Not `large`: the size of large packets may change before the answer arrives.
            let flags = self.flags.with_large(false);
            let packet = self.short_packet(Kind::Done, flags, self.slots[at].number, CANCEL, 0, 0);
            turn.tx.push_bytes(&self.common.route, packet.as_bytes());
        }
    }

    /// Handles a server's packet about a cancelled request.
    pub(super) fn on_quarantined<'p, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        header: &Header,
        body: &[u8],
    ) -> Result<Event<'p, R>, DropReason> {
        let at = self.slots.of(header.request);
        let layout = self.cut_of(header.flags.large()).response(header.size);
        let slot = &mut self.slots[at];
        let SlotState::Quarantine(quarantine) = &mut slot.state else {
            return Err(DropReason::Duplicate);
        };
        let failure = header.kind == Kind::Failure;
        match header.kind {
            Kind::Response | Kind::Failure => {
                is_announcement(header, &layout, body)?;
                if !(quarantine.is_whole() || failure) {
                    return Err(DropReason::Unsolicited);
                }
            }
            Kind::Accepted if quarantine.is_whole() => quarantine.accept(turn.now),
            Kind::CreditReturn => return Err(DropReason::Duplicate),
            _ => return Err(DropReason::Unsolicited),
        }
        quarantine.release(&mut lines.flow(&mut self.credits, self.peer));
        if header.kind == Kind::Accepted {
            lines.note_release(self.peer);
            lines.feed_later(self.index(), &self.credits);
            return Ok(Event::None);
        }
        if mutant!(QuarantineForEver) {
            return Ok(Event::None);
        }
        slot.state = SlotState::Free;
        let stats = &mut turn.endpoint.stats;
        *(if failure { &mut stats.cancelled } else { &mut stats.late_responses }) += 1;
        if header.size > KEPT_SMALL {
            self.owe_done(turn, at);
        }
        self.vacate(turn, lines, at);
        Ok(Event::None)
    }

    /// A slot is empty: its reservation may serve other calls, and the next queued call gets the
    /// slot.
    pub(super) fn vacate<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
    ) {
        debug_assert!(self.slots[at].is_free());
        self.free.insert(at);
        self.credits.leave(at);
        self.pacer.leave(at);
        lines.note_release(self.peer);
        lines.feed_later(self.index(), &self.credits);
        if !self.common.queue.is_empty() && !mutant!(QueueForgotten) {
            self.start_queued(turn, lines);
        }
    }
}
