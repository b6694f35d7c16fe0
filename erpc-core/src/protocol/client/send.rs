//! A request's way out.

use super::*;
use crate::mutants::mutant;
use crate::protocol::{RejectReason, Rejected};
use crate::transport::TxQueue;
use crate::wire::{Header, Kind, PacketLayout, PacketNumber, ShortPacket};

impl<R: Route> ClientSide<R> {
    /// Accepts a call: into a free slot and out, or behind others.
    #[inline(always)]
    pub(in crate::protocol) fn call<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), Rejected> {
        match self.plain_call(turn, id, new) {
            Ok(()) => Ok(()),
            Err(new) => self.call_or_queue(turn, id, new),
        }
    }

    /// Accepts a call that is not the common case.
    #[inline(never)]
    fn call_or_queue<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), Rejected> {
        debug_assert!(
            new.extended || new.deadline == Instant::NEVER,
            "the server is told deadlines"
        );
        let reject = |reason, request| Err(Rejected { reason, request });
        let session =
            self.sessions.get_mut(id.index).filter(|session| session.generation == id.generation);
        let Some(session) = session else {
            return reject(RejectReason::NoSession, new.request);
        };
        if session.draining {
            return reject(RejectReason::Disconnecting, new.request);
        }
        let (size, limit) = (new.request.len(), session.max_request as usize);
        if size > limit {
            return reject(RejectReason::TooLarge { size, limit }, new.request);
        }
        if new.deadline <= turn.now {
            return reject(RejectReason::DeadlineExceeded, new.request);
        }
        if !session.free.is_empty() && session.queue.is_empty() && session.is_open() {
            turn.endpoint.stats.calls += 1;
            self.start(turn, id.index, new);
            return Ok(());
        }
        if session.queue.len() >= turn.endpoint.config.queue_limit {
            return reject(RejectReason::QueueFull, new.request);
        }
        turn.endpoint.stats.calls += 1;
        session.queue_deadline = session.queue_deadline.min(new.deadline);
        Self::arm(turn.endpoint, id.index, session, new.deadline);
        session.queue.push_back(new);
        Ok(())
    }

    /// Fills free slots from the queue.
    pub(super) fn start_queued<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
    ) {
        while let Some(session) = self.sessions.get_mut(index) {
            if session.free.is_empty() || !session.is_open() {
                return;
            }
            let Some(new) = session.queue.pop_front() else { return };
            if new.deadline <= turn.now {
                Self::fail_unsent(turn.endpoint, new, Cause::DeadlineExceeded);
                continue;
            }
            self.start(turn, index, new);
        }
    }

    /// Puts a call into a free slot and sends what there is room for.
    #[inline]
    fn start<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        new: NewCall,
    ) {
        let session = &mut self.sessions[index];
        let at = session.free.first();
        session.free.remove(at);
        Self::arm(turn.endpoint, index, session, new.deadline);
        let slot = &mut session.slots[at];
        slot.number = slot.number.plus(WINDOW as u32);
        let layout = PacketLayout::new(new.request.len() as u32, session.payload, session.payload);
        let last = session.charges.packet(layout.len(layout.packets() - 1));
        let last_cost = (last, session.charges.eager_reply);
        slot.call = Some(Call {
            request: new.request,
            token: new.token,
            method: new.method,
            extended: new.extended.then_some(new.deadline),
            layout,
            last_cost,
            sent: 0,
            acked: 0,
            ever_sent: 0,
            patience: Patience::new(turn.now),
            retransmitted: false,
            waiting: None,
            rolled_back: None,
            probed_at: Instant::ZERO,
            response: None,
        });
        self.transmit(turn, index, at, None);
    }

    /// Sends the request packets that there is room for; what is missing is waited for. `at_head` is
    /// the line at whose head the call stands, if it has waited.
    #[inline]
    pub(super) fn transmit<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
        at_head: Option<Blocked>,
    ) {
        let Some(call) = &self.sessions[index].slots[at].call else { return };
        let before = call.sent;
        if call.waiting.is_some()
            || call.patience.accepted
            || call.response.is_some()
            || before == call.layout.packets()
        {
            return;
        }
        let mut lack = self.line_ahead(index, at_head);
        let session = &mut self.sessions[index];
        let peer = &mut self.peers[session.peer];
        let to = (session.remote, session.slots[at].number, session.flags);
        let overhead = session.charges.overhead;
        while lack.is_none() {
            let Some(call) = &mut session.slots[at].call else { return };
            if call.sent == call.layout.packets() {
                break;
            }
            if session.pace.holds(turn.now) {
                lack = Some(Blocked::Pace);
                break;
            }
            let (units, reply) = Self::charge(&session.charges, call, call.sent);
            let mut flow = Flow {
                credits: &mut session.credits,
                window: &mut peer.window,
                room: &mut self.room,
            };
            lack = flow.take(units, reply).err();
            if lack.is_some() {
                break;
            }
            let header = call.header(to, call.sent, turn.now);
            call.write_deadline(call.sent, turn.now);
            let bytes = overhead + call.layout.len(call.sent);
            turn.tx.push(&session.route, call.request.packet(call.sent, &header, &call.layout));
            call.patience.active_at = turn.now;
            call.sent += 1;
            if call.sent <= call.ever_sent {
                turn.endpoint.stats.retransmissions += 1;
            } else {
                call.ever_sent = call.sent;
                // It also says that the slot's last response may be dropped.
                session.owes_done.remove(at);
                session.told_done.remove(at);
            }
            session.spend(turn.now, bytes, turn.endpoint.config.bypasses);
        }
        let Some(call) = &mut session.slots[at].call else { return };
        call.waiting = lack;
        let (sent, retries) = (call.sent, call.patience.retries);
        if sent > before {
            let deadline = turn.now.plus_nanos(session.rtt.rto(retries));
            Self::arm(turn.endpoint, index, session, deadline);
        }
        if let Some(lack) = lack {
            self.stand_in_line(turn.now, index, at, lack);
        }
    }

    /// Sends a request packet once more, on the account of the copy that is out.
    pub(super) fn send_again<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
        packet: u32,
    ) {
        let session = &mut self.sessions[index];
        let slot = &mut session.slots[at];
        let Some(call) = &mut slot.call else { return };
        let header = call.header((session.remote, slot.number, session.flags), packet, turn.now);
        // The first copy may still be queued here, and its header is about to be written again.
        if !mutant!(ResendWithoutFlush) {
            turn.tx.flush();
        }
        call.write_deadline(packet, turn.now);
        turn.tx.push(&session.route, call.request.packet(packet, &header, &call.layout));
        call.patience.active_at = turn.now;
        call.retransmitted = true;
        turn.endpoint.stats.retransmissions += 1;
    }

    /// Asks once more for the next response packet, on the account of the request that is out.
    pub(super) fn ask_again<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
    ) {
        let session = &mut self.sessions[index];
        let slot = &session.slots[at];
        let Some(call) = &slot.call else { return };
        let Some(response) = &call.response else { return };
        let header = Header {
            connection: session.remote,
            kind: Kind::RequestForResponse,
            packet: PacketNumber::new(response.assembly.next()),
            request: slot.number,
            aux: call.stamp_at(turn.now).to_u32(),
            size: 1,
            flags: session.flags,
        };
        turn.tx.push_bytes(&session.route, ShortPacket::new(&header, &[]).as_bytes());
        turn.endpoint.stats.retransmissions += 1;
    }

    /// Asks for as many response packets as there is room for.
    ///
    /// To ask rarely, it waits while more is on its way than it could ask for now, unless it can ask
    /// for all the rest: one request for response then covers half a window.
    pub(super) fn pull<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
        at_head: Option<Blocked>,
    ) {
        let session = &self.sessions[index];
        let Some(call) = &session.slots[at].call else { return };
        let Some(response) = &call.response else { return };
        let left = response.assembly.layout().packets() - response.asked;
        let on_their_way = response.asked - response.assembly.next();
        let affordable = u32::from(session.credits).min(left);
        let soon = !session.pace.is_limited() && affordable < on_their_way && affordable < left;
        if call.waiting.is_some() || left == 0 || soon {
            return;
        }
        let mut lack = self.line_ahead(index, at_head);
        let session = &mut self.sessions[index];
        let peer = &mut self.peers[session.peer];
        let Some(call) = &session.slots[at].call else { return };
        let Some(response) = &call.response else { return };
        let (layout, asked) = (*response.assembly.layout(), response.asked);
        let header = Header {
            connection: session.remote,
            kind: Kind::RequestForResponse,
            packet: PacketNumber::new(asked),
            request: session.slots[at].number,
            aux: call.stamp_at(turn.now).to_u32(),
            size: 0,
            flags: session.flags,
        };
        let mut count = 0;
        while lack.is_none() && count < left {
            if session.pace.holds(turn.now) {
                lack = Some(Blocked::Pace);
                break;
            }
            let mut flow = Flow {
                credits: &mut session.credits,
                window: &mut peer.window,
                room: &mut self.room,
            };
            lack = flow.take(session.charges.bare, session.charges.full_reply).err();
            if lack.is_none() {
                let bytes = session.charges.overhead + layout.len(asked + count);
                session.spend(turn.now, bytes, turn.endpoint.config.bypasses);
                count += 1;
            }
        }
        let Some(call) = &mut session.slots[at].call else { return };
        let Some(response) = &mut call.response else { return };
        if count > 0 {
            let header = Header { size: count, ..header };
            turn.tx.push_bytes(&session.route, ShortPacket::new(&header, &[]).as_bytes());
            response.asked += count;
            call.patience.active_at = turn.now;
            let deadline = turn.now.plus_nanos(session.rtt.rto(call.patience.retries));
            Self::arm(turn.endpoint, index, session, deadline);
        }
        // What is on its way will remind us of credits and room; nothing reminds us of time.
        let unasked = count == 0 && on_their_way == 0;
        if let Some(lack) = lack.filter(|lack| unasked || *lack == Blocked::Pace)
            && let Some(call) = &mut self.sessions[index].slots[at].call
        {
            call.waiting = Some(lack);
            self.stand_in_line(turn.now, index, at, lack);
        }
    }

    /// The line that a call has to join although there may be room: others wait there already, and
    /// calls that come and go would keep them waiting for ever. Who stands at the head of a line, `at_head`,
    /// has nobody ahead in that one.
    #[inline]
    fn line_ahead(&mut self, index: SessionIndex, at_head: Option<Blocked>) -> Option<Blocked> {
        let session = &self.sessions[index];
        let peer = session.peer;
        if !session.paced.is_empty() && at_head != Some(Blocked::Pace) {
            return Some(Blocked::Pace);
        }
        if !session.starved.is_empty() && at_head != Some(Blocked::Credits) {
            return Some(Blocked::Credits);
        }
        if at_head != Some(Blocked::Window) && self.somebody_waits(Line::Peer(peer)) {
            return Some(Blocked::Window);
        }
        (at_head != Some(Blocked::Room) && self.somebody_waits(Line::Room)).then_some(Blocked::Room)
    }

    /// Whether anybody waits in a line, once those at its head that do not any more have left it.
    #[inline]
    fn somebody_waits(&mut self, line: Line) -> bool {
        while let Some(&first) = self.line(line).and_then(|line| line.front()) {
            if self.waits(first, line) {
                return true;
            }
            self.line(line).and_then(VecDeque::pop_front);
        }
        false
    }

    /// Puts the call in a slot into the line for what it lacks.
    fn stand_in_line(&mut self, now: Instant, index: SessionIndex, at: SlotIndex, lack: Blocked) {
        let session = &mut self.sessions[index];
        let number = session.slots[at].number;
        let waiter = Waiter { index, generation: session.generation, number };
        match lack {
            Blocked::Pace => {
                session.paced.insert(at);
                self.wait_for_departure(now, index);
            }
            Blocked::Credits => {
                if session.starved.is_empty() {
                    session.starved_turn = at;
                }
                session.starved.insert(at);
            }
            Blocked::Window => self.peers[session.peer].waiting.push_back(waiter),
            Blocked::Room => self.room_waiting.push_back(waiter),
        }
    }

    /// Takes a call that ends out of the line in which it stands. Who gives up came last, or has waited for
    /// longest: it is looked for at both ends, and left to be passed over if it is further inside.
    pub(super) fn leave_line(&mut self, place: Waiter, line: Line) {
        const LOOKED_AT: usize = 64;
        let Some(line) = self.line(line) else { return };
        let tail = line.len().saturating_sub(LOOKED_AT).max(LOOKED_AT);
        let mut near = (0..line.len().min(LOOKED_AT)).chain(tail..line.len());
        if let Some(at) = near.find(|at| line[*at] == place) {
            line.remove(at);
        }
    }

    /// How many places in lines are taken.
    #[cfg(test)]
    pub(in crate::protocol) fn places_in_lines(&self) -> usize {
        let lines = self.peers.iter().map(|(_, peer)| peer.waiting.len());
        lines.sum::<usize>() + self.room_waiting.len()
    }

    /// The session may have got a credit back: calls that wait for one go on when the burst is over.
    ///
    /// If each credit return fed the next in line, that call would send as few packets as it is for, and be answered
    /// for those alone: runs that were cut short once would stay short, down to a credit return for every 4 packets.
    #[inline]
    pub(super) fn feed_later(&mut self, index: SessionIndex) {
        if !self.sessions[index].starved.is_empty() && self.released.last() != Some(&index) {
            self.released.push(index);
        }
    }

    /// Lets calls go on that waited for a credit, session by session.
    pub(super) fn feed<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        for at in 0..self.released.len() {
            self.feed_starved(turn, self.released[at]);
        }
        self.released.clear();
    }

    /// Lets calls go on that waited for a credit of this session, one after the other.
    fn feed_starved<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, index: SessionIndex) {
        while let Some(session) = self.sessions.get_mut(index) {
            if session.starved.is_empty() || session.credits == 0 {
                return;
            }
            let at = session.next_starved();
            self.resume(turn, index, at, Blocked::Credits);
        }
    }

    /// A call goes on that stands at the head of a line.
    pub(super) fn resume<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        index: SessionIndex,
        at: SlotIndex,
        at_head: Blocked,
    ) {
        let Some(call) = &mut self.sessions[index].slots[at].call else { return };
        if call.waiting.take_if(|waiting| *waiting == at_head).is_none() {
            return;
        }
        if call.response.is_some() {
            self.pull(turn, index, at, Some(at_head));
        } else {
            self.transmit(turn, index, at, Some(at_head));
        }
    }

    /// What the burst has made possible: responses asked on for, waiting calls sent. Work is bounded by
    /// what was released: each pass over a line ends at the first call that finds no room.
    pub(in crate::protocol) fn end_of_burst<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
    ) {
        self.feed(turn);
        for at in 0..self.pulls.len() {
            let waiter = self.pulls[at];
            if let Some(slot) = self.waiter_slot(waiter) {
                if let Some(response) = self.response_mut(waiter.index, slot) {
                    response.pull_pending = false;
                }
                self.pull(turn, waiter.index, slot, None);
            }
        }
        self.pulls.clear();
        self.serve_lines(turn);
    }

    /// Lets calls go on that waited for what was released.
    pub(super) fn serve_lines<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>) {
        while let Some(peer) = self.ready_peers.pop() {
            if let Some(entry) = self.peers.get_mut(peer) {
                entry.ready = false;
                self.serve_line(turn, Line::Peer(peer));
            }
        }
        if !self.room_waiting.is_empty() {
            self.serve_line(turn, Line::Room);
        }
    }

    fn line(&mut self, line: Line) -> Option<&mut VecDeque<Waiter>> {
        match line {
            Line::Peer(peer) => self.peers.get_mut(peer).map(|peer| &mut peer.waiting),
            Line::Room => Some(&mut self.room_waiting),
        }
    }

    /// Serves waiting calls in order until one has to stand in this very line again.
    fn serve_line<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, line: Line) {
        let Some(bound) = self.line(line).map(|line| line.len()) else { return };
        for _ in 0..bound {
            let Some(waiter) = self.line(line).and_then(VecDeque::pop_front) else { return };
            if !self.waits(waiter, line) {
                continue;
            }
            let slot = SlotIndex::of(waiter.number);
            self.resume(turn, waiter.index, slot, line.lack());
            if self.waits(waiter, line) {
                // It got further than before or not at all; either way the line is used up, and its
                // turn comes first again.
                if let Some(queue) = self.line(line) {
                    queue.rotate_right(1);
                }
                return;
            }
        }
    }

    /// Whether the call behind an entry of a line still waits there.
    pub(super) fn waits(&self, waiter: Waiter, line: Line) -> bool {
        let call = self.waiter_slot(waiter).map(|at| &self.sessions[waiter.index].slots[at].call);
        call.and_then(Option::as_ref).is_some_and(|call| call.waiting == Some(line.lack()))
    }

    /// The slot of a waiter whose call is still there.
    pub(super) fn waiter_slot(&self, waiter: Waiter) -> Option<SlotIndex> {
        let session = self.sessions.get(waiter.index)?;
        let at = SlotIndex::of(waiter.number);
        let slot = &session.slots[at];
        let same = session.generation == waiter.generation
            && slot.number == waiter.number
            && slot.call.is_some();
        same.then_some(at)
    }

    fn response_mut(&mut self, index: SessionIndex, at: SlotIndex) -> Option<&mut Response> {
        self.sessions[index].slots[at].call.as_mut()?.response.as_deref_mut()
    }
}

/// A line that calls wait in.
#[derive(Clone, Copy)]
pub(super) enum Line {
    Peer(PeerIndex),
    Room,
}

impl Line {
    /// What is waited for in it.
    fn lack(self) -> Blocked {
        match self {
            Self::Peer(_) => Blocked::Window,
            Self::Room => Blocked::Room,
        }
    }
}
