//! Sends requests, and asks for response packets.

use super::OpenSession;
use crate::mutants::mutant;
use crate::protocol::client::call::Call;
use crate::protocol::client::common::fail_unsent;
use crate::protocol::client::lines::{LineId, Lines, Waiter};
use crate::protocol::client::reservation::Blocked;
use crate::protocol::client::response::{MOST_PULLED, Response};
use crate::protocol::client::slot::SlotState;
use crate::protocol::index::SlotIndex;
use crate::protocol::turn::Turn;
use crate::protocol::{Cause, NewCall};
use crate::transport::{Route, TxQueue};
use crate::wire::{Flags, Header, Kind, PacketNumber, RequestNumber, ShortPacket};

/// A call that begins to wait for a credit is short if it has at most this number of packets left
/// to send or ask for.
const SHORT: u32 = 2;

impl<R: Route> OpenSession<R> {
    /// Whether a new call gets a slot immediately, instead of waiting behind others.
    pub(in crate::protocol::client) fn takes_calls(&self) -> bool {
        !self.free.is_empty() && self.common.queue.is_empty() && !self.common.intake.holds()
    }

    /// Fills free slots from the queue.
    pub(super) fn start_queued<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        while !self.free.is_empty() && !self.common.intake.holds() {
            let Some(new) = self.common.queue.pop() else { return };
            self.start_or_fail(turn, lines, new);
        }
    }

    /// Starts a call that was queued, or fails it if its deadline has passed.
    pub(super) fn start_or_fail<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        new: NewCall,
    ) {
        if new.deadline <= turn.now {
            fail_unsent(new, Cause::DeadlineExceeded, turn.endpoint);
        } else {
            self.start(turn, lines, new);
        }
    }

    /// Puts a call into a free slot and sends the packets for which there is capacity.
    #[inline]
    pub(in crate::protocol::client) fn start<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        new: NewCall,
    ) {
        let at = self.free.first();
        self.free.remove(at);
        self.begin_to_send(turn);
        self.arm(turn, new.deadline);
        let is_large = self.cuts_large(turn.now, lines, new.request.len());
        let cut = self.cut_of(is_large);
        let layout = cut.layout.with_size(new.request.len() as u32);
        let last_cost = cut.charges.last_packet(layout.len(layout.packets() - 1));
        if layout.packets() > 1 {
            self.want_larger(turn);
        }
        let step = self.slots.step();
        let slot = &mut self.slots[at];
        slot.number = slot.number.plus(step);
        slot.state = SlotState::Call(Call::new(new, layout, is_large, last_cost, turn.now));
        self.transmit(turn, lines, at, None);
    }

    /// Sends the request packets for which there is capacity; for the rest, the call waits.
    /// `at_head` is what the call has waited for, if it is at the head of that line.
    #[inline(never)]
    pub(super) fn transmit<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        at_head: Option<Blocked>,
    ) {
        let Some(call) = self.slots[at].call() else { return };
        if call.waiting().is_some() || call.next_to_send().is_none() {
            return;
        }
        // The call may have waited in a line for so long that the session falls back to its initial
        // credits. Congestion control does not start again here, even if nothing is in flight: in a
        // slow session, that is normal between two departures.
        if self.credit_limit.begin(turn.now) {
            self.set_credits();
            self.limit_pace(turn);
        }
        let mut lack = self.line_ahead(lines, at_head);
        let slot = &mut self.slots[at];
        let SlotState::Call(call) = &mut slot.state else { return };
        let mut any_sent = false;
        while lack.is_none() {
            let Some(packet) = call.next_to_send() else { break };
            if self.pacer.holds(turn.now) {
                lack = Some(Blocked::Pace);
                break;
            }
            let cost = call.cost(&self.cut.charges, packet);
            lack = lines.flow(&mut self.credits, self.peer).take(cost).err();
            if lack.is_some() {
                break;
            }
            let layout = call.layout();
            let header = Header {
                connection: self.remote,
                kind: Kind::Request,
                packet: PacketNumber::new(packet),
                request: slot.number,
                aux: call.aux(packet, turn.now),
                size: layout.size(),
                flags: self.flags.with_large(call.is_large()).and_extended(call.is_extended()),
            };
            let request = call.request_for(packet, turn.now);
            if layout.packets() == 1 {
                turn.tx.push_single(
                    &self.common.route,
                    header.to_words(),
                    request,
                    self.takes_bundles,
                );
            } else {
                turn.tx.push(&self.common.route, request.packet(packet, &header, &layout));
            }
            any_sent = true;
            if call.note_sent(turn.now) {
                // A new request also tells the server to drop the slot's last response.
                self.kept.superseded(at);
            } else {
                let cause = call.recovery().cause();
                turn.endpoint.stats.count_resent(&mut self.retransmissions, cause, 1);
            }
            let bytes = self.cut.charges.overhead() + layout.len(packet);
            self.pacer.spend(turn.now, bytes, turn.endpoint.config.bypasses);
        }
        if any_sent && lack.is_none() {
            self.pull_early(turn, lines, at);
        }
        let Some(call) = self.slots[at].call() else { return };
        let (retries, is_simple) = (call.retry().retries(), call.simple_sent_at().is_some());
        if any_sent {
            let deadline = turn.now.plus_nanos(self.rtt.rto(retries));
            if is_simple {
                self.common.timer.arm_for_call(&mut turn.endpoint.timers, deadline);
            } else {
                self.arm(turn, deadline);
            }
        }
        if let Some(lack) = lack {
            self.wait_for(turn, lines, at, lack);
        }
    }

    /// Sends a request packet again. The packet uses the reservation of the copy that is in flight.
    pub(super) fn send_again<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        at: SlotIndex,
        packet: u32,
    ) {
        let slot = &mut self.slots[at];
        let number = slot.number;
        let Some(call) = slot.call_mut() else { return };
        let layout = call.layout();
        let header = Header {
            connection: self.remote,
            kind: Kind::Request,
            packet: PacketNumber::new(packet),
            request: number,
            aux: call.aux(packet, turn.now),
            size: layout.size(),
            flags: self.flags.with_large(call.is_large()).and_extended(call.is_extended()),
        };
        // The first copy may still be in the transmit queue, and its header is about to be
        // rewritten.
        turn.tx.reclaim();
        if call.is_queued() && !mutant!(ResendWithoutFlush) {
            turn.tx.flush();
        }
        let request = call.request_for(packet, turn.now);
        turn.tx.push(&self.common.route, request.packet(packet, &header, &layout));
        call.note_sent_again(turn.now);
    }

    /// A packet without a body, about `request`.
    pub(super) fn short_packet(
        &self,
        kind: Kind,
        flags: Flags,
        request: RequestNumber,
        packet: u32,
        aux: u32,
        size: u32,
    ) -> ShortPacket {
        let packet = PacketNumber::new(packet);
        let connection = self.remote;
        ShortPacket::new(&Header { connection, kind, packet, request, aux, size, flags }, &[])
    }

    /// Asks again for the next response packet. The repeated request for response uses the
    /// reservation of the first one.
    pub(super) fn ask_again<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        at: SlotIndex,
    ) {
        let slot = &self.slots[at];
        let Some(call) = slot.call() else { return };
        let Some(response) = call.response() else { return };
        let stamp = call.recovery().stamp_at(turn.now).to_u32();
        let (flags, next) = (self.flags.with_large(call.is_large()), response.next());
        let packet =
            self.short_packet(Kind::RequestForResponse, flags, slot.number, next, stamp, 1);
        turn.tx.push_bytes(&self.common.route, packet.as_bytes());
    }

    /// Asks for as many response packets as there is capacity for.
    ///
    /// To send few requests for response, a session without pacing waits while it could ask for
    /// fewer packets than are in flight, and for fewer than [`MOST_PULLED`], unless it can ask for
    /// all the rest. One request for response then covers about half of the session's credits, or
    /// [`MOST_PULLED`] packets.
    pub(super) fn pull<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        at_head: Option<Blocked>,
    ) {
        self.begin_to_send(turn);
        let Some(call) = self.slots[at].call() else { return };
        let Some(response) = call.response() else { return };
        let (left, on_their_way) = (response.left(), response.on_their_way());
        let affordable = u32::from(self.credits.available()).min(left);
        let few = affordable < on_their_way.min(MOST_PULLED) && affordable < left;
        let soon = !self.pacer.is_limited() && few;
        if call.waiting().is_some() || left == 0 || soon {
            return;
        }
        let (layout, asked, cost) = (*response.layout(), response.asked(), response.cost());
        let stamp = call.recovery().stamp_at(turn.now).to_u32();
        let mut lack = self.line_ahead(lines, at_head);
        let mut count = 0;
        while lack.is_none() && count < left {
            if self.pacer.holds(turn.now) {
                lack = Some(Blocked::Pace);
                break;
            }
            lack = lines.flow(&mut self.credits, self.peer).take(cost).err();
            if lack.is_none() {
                let body = if mutant!(PullsUncharged) { 0 } else { layout.len(asked + count) };
                let bytes = self.cut.charges.overhead() + body;
                self.pacer.spend(turn.now, bytes, turn.endpoint.config.bypasses);
                count += 1;
            }
        }
        for from in (asked..asked + count).step_by(MOST_PULLED as usize) {
            self.send_pull(turn, at, from, MOST_PULLED.min(asked + count - from), stamp);
        }
        // While response packets are in flight, each arrival makes the call pull again. So the call
        // need not wait for credits, window or room. If pacing holds it back, only a departure
        // makes it pull again.
        let unasked = count == 0 && on_their_way == 0;
        if let Some(lack) = lack.filter(|lack| unasked || *lack == Blocked::Pace) {
            self.wait_for(turn, lines, at, lack);
        }
    }

    /// Asks for `count` response packets, starting with packet `from`.
    fn send_pull<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        at: SlotIndex,
        from: u32,
        count: u32,
        stamp: u32,
    ) {
        let Some(call) = self.slots[at].call() else { return };
        let (number, flags) = (self.slots[at].number, self.flags.with_large(call.is_large()));
        let packet = self.short_packet(Kind::RequestForResponse, flags, number, from, stamp, count);
        turn.tx.push_bytes(&self.common.route, packet.as_bytes());
        let Some(call) = self.slots[at].call_mut() else { return };
        if let Some(response) = call.response_mut() {
            response.note_asked(count);
        }
        call.retry_mut().restart(turn.now);
        let deadline = turn.now.plus_nanos(self.rtt.rto(call.retry().retries()));
        self.arm(turn, deadline);
    }

    /// At the end of the burst, asks for more of a response.
    pub(in crate::protocol::client) fn pull_pending<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        waiter: Waiter,
    ) {
        let Some(at) = self.slot_of(waiter) else { return };
        let call = self.slots[at].call_mut();
        call.and_then(Call::response_mut).into_iter().for_each(Response::pulled);
        self.pull(turn, lines, at, None);
    }

    /// What a call has to wait for because other calls already wait for it, even if there is
    /// capacity. Otherwise new calls could starve the waiting calls. A call at the head of a line
    /// does not wait behind that line.
    #[inline]
    fn line_ahead(&self, lines: &Lines<R>, at_head: Option<Blocked>) -> Option<Blocked> {
        if self.pacer.is_awaited() && at_head != Some(Blocked::Pace) {
            return Some(Blocked::Pace);
        }
        if self.credits.is_short() && at_head != Some(Blocked::Credits) {
            return Some(Blocked::Credits);
        }
        if at_head != Some(Blocked::Window) && !lines.is_empty(LineId::Peer(self.peer)) {
            return Some(Blocked::Window);
        }
        let behind = at_head != Some(Blocked::Room) && !lines.is_empty(LineId::Room);
        behind.then_some(Blocked::Room)
    }

    /// Makes the call in a slot wait for `lack`.
    fn wait_for<X>(
        &mut self,
        turn: &Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        lack: Blocked,
    ) {
        let waiter = self.waiter(at);
        let Some(call) = self.slots[at].call_mut() else { return };
        debug_assert_eq!(call.waiting(), None, "a call waits for one thing at a time");
        call.set_waiting(Some(lack));
        match lack {
            Blocked::Pace => {
                self.pacer.wait(at);
                lines.wait_for_departure(turn.now, self.common.id.index, &mut self.pacer);
            }
            Blocked::Credits => self.credits.wait(at, call.left() <= SHORT),
            Blocked::Window => lines.join(LineId::Peer(self.peer), waiter),
            Blocked::Room => lines.join(LineId::Room, waiter),
        }
    }

    /// The call in a slot does not wait any more, because it was answered or ends. Does nothing if
    /// the call did not wait.
    pub(super) fn stop_waiting(&mut self, lines: &mut Lines<R>, at: SlotIndex) {
        self.credits.leave(at);
        self.pacer.leave(at);
        let Some(call) = self.slots[at].call_mut() else { return };
        let Some(lack) = call.waiting() else { return };
        call.set_waiting(None);
        if let Some(line) = self.line(lack) {
            lines.leave(line);
        }
    }

    /// Resumes a call that is at the head of a line.
    pub(in crate::protocol::client) fn resume<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        at: SlotIndex,
        at_head: Blocked,
    ) {
        let Some(call) = self.slots[at].call_mut() else { return };
        if call.waiting() != Some(at_head) {
            return;
        }
        call.set_waiting(None);
        let is_pulling = call.response().is_some();
        if let Some(line) = self.line(at_head) {
            lines.leave(line);
        }
        if is_pulling {
            self.pull(turn, lines, at, Some(at_head));
        } else {
            self.transmit(turn, lines, at, Some(at_head));
        }
    }

    /// Resumes the calls that waited for a credit of this session, one after the other.
    pub(in crate::protocol::client) fn feed<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        while let Some(at) = self.credits.next() {
            self.resume(turn, lines, at, Blocked::Credits);
        }
    }

    /// The session's departure is due: resumes the calls that wait for it, round robin over the
    /// slots, one packet each.
    pub(in crate::protocol::client) fn depart<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
    ) {
        while let Some(at) = self.pacer.next(turn.now) {
            self.resume(turn, lines, at, Blocked::Pace);
        }
        self.pacer.forget_wait();
        lines.wait_for_departure(turn.now, self.common.id.index, &mut self.pacer);
    }
}
