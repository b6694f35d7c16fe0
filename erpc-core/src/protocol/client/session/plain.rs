//! Fast path of the common case: one packet out, one packet back, and capacity for both. No call of
//! the session waits for a credit. A call that is sent also needs that no call of another session
//! waits for the same capacity; a response does not need that.
//!
//! Calls may wait in the session's queue because all slots are occupied. Then a new call joins the
//! queue, and each response starts the first call of the queue.
//!
//! Each function either does what the general path in `send` and `response` does, or changes
//! nothing and leaves the packet to the general path. The fast path saves the checks for everything
//! that is not the common case. Three differences: of the answers in a burst, only the first gives a
//! round trip, and only the first is noted for `Probing`, unless calls of the session are overdue. A
//! call that is sent does not show that the session's credits are still in use.

use super::OpenSession;
use crate::memory::prefetch;
use crate::mutants::mutant;
use crate::protocol::client::call::{Call, Finished, FinishedPlain, write_remaining};
use crate::protocol::client::common::Common;
use crate::protocol::client::lines::Lines;
use crate::protocol::client::method_times::Told;
use crate::protocol::client::slot::SlotState;
use crate::protocol::endpoint::EndpointState;
use crate::protocol::turn::Turn;
use crate::protocol::{NewCall, SessionId};
use crate::time::Instant;
use crate::transport::{Route, TxQueue};
use crate::wire::{HeaderWords, ReplyInfo, RequestNumber};

impl<R: Route> OpenSession<R> {
    /// Sends a request of one packet if this is the common case; otherwise hands the call back.
    #[inline(always)]
    pub(in crate::protocol::client) fn plain_call<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), NewCall> {
        let ready = self.common.id.generation == id.generation
            && !self.free.is_empty()
            && self.common.queue.is_empty();
        if !ready {
            return self.plain_queue(turn.endpoint, turn.now, id, new);
        }
        if new.extended {
            self.extended_start(&mut turn.reborrow(), lines, new)?;
        } else {
            self.plain_start::<false, _>(turn, lines, new)?;
        }
        turn.endpoint.stats.calls += 1;
        Ok(())
    }

    /// Queues a call because all slots are occupied, if this is the common case; otherwise hands
    /// the call back.
    #[inline(never)]
    fn plain_queue(
        &mut self,
        endpoint: &mut EndpointState,
        now: Instant,
        id: SessionId,
        new: NewCall,
    ) -> Result<(), NewCall> {
        let Common { id: own, timer, queue, intake, .. } = &mut self.common;
        let ready = own.generation == id.generation
            && self.free.is_empty()
            && intake.is_free()
            && !new.extended
            && new.request.len() <= self.heads.max_request as usize
            && queue.len() < endpoint.config.queue_limit
            // The loop was not away: see `check_after_absence`.
            && timer.at() >= now;
        if !ready {
            return Err(new);
        }
        endpoint.stats.calls += 1;
        queue.push(new);
        Ok(())
    }

    /// Puts a call into a free slot and sends it, if this is the common case; otherwise hands the
    /// call back.
    ///
    /// A call without an extension has no deadline. It is so common that it has the code for itself.
    #[inline(always)]
    fn plain_start<const EXTENDED: bool, X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        mut new: NewCall,
    ) -> Result<(), NewCall> {
        let size = new.request.len();
        let ready = self.is_quiet()
            && !self.pacer.is_limited()
            && size <= self.heads.max_request as usize
            && !self.pulls_early(lines, new.method)
            && (!EXTENDED || new.deadline > turn.now);
        if !ready {
            return Err(new);
        }
        // No timeout is below the floor, so a timer that fires before the floor has passed is early
        // enough. The subtraction wraps if the timer is overdue.
        let until_timer = self.common.timer.at().as_nanos().wrapping_sub(turn.now.as_nanos());
        if until_timer > self.rtt.floor() && !self.mind_timer(turn) {
            return Err(new);
        }
        let is_large = self.cuts_large(turn.now, lines, size);
        let cost = self.cut_of(is_large).charges.last_packet(size);
        let Some(peer) = lines.uncontended(self.peer) else { return Err(new) };
        if !peer.take(&mut self.credits, cost) {
            return Err(new);
        }
        if EXTENDED && new.deadline != Instant::NEVER {
            self.carry_deadline(turn, &mut new);
        }
        let at = self.free.first();
        self.free.remove(at);
        self.kept.superseded(at);
        let step = self.slots.step();
        let slot = &mut self.slots[at];
        slot.number = slot.number.plus(step);
        let (number, size) = (slot.number, size as u32);
        let head = self.heads.request.with_large(is_large).and_extended(EXTENDED);
        let header = HeaderWords::single(self.remote, head, number, new.method, size);
        turn.tx.push_single(&self.common.route, header, &mut new.request, self.takes_bundles);
        let call = Call::sent_whole(new, is_large, cost, turn.now);
        // The slot is free: `forget` skips no destructor.
        debug_assert!(slot.is_free());
        std::mem::forget(std::mem::replace(&mut slot.state, SlotState::Call(call)));
        Ok(())
    }

    /// As [`Self::plain_start`], for a call with an extension.
    #[inline(never)]
    fn extended_start<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        new: NewCall,
    ) -> Result<(), NewCall> {
        self.plain_start::<true, _>(turn, lines, new)
    }

    /// Arms the timer for a call's deadline, and writes the remaining time into its extension.
    fn carry_deadline<X>(&mut self, turn: &mut Turn<'_, X>, new: &mut NewCall) {
        if !mutant!(PlainDeadlineUnarmed) {
            self.common.timer.arm(&mut turn.endpoint.timers, new.deadline);
        }
        if !mutant!(PlainDeadlineUntold) {
            write_remaining(&mut new.request, new.deadline, turn.now);
        }
    }

    /// Starts the first call of the queue. A slot is free.
    #[inline(never)]
    fn start_next<X: TxQueue<Route = R>>(&mut self, turn: &mut Turn<'_, X>, lines: &mut Lines<R>) {
        let Some(new) = self.common.queue.pop() else { return };
        let started = if new.extended {
            self.extended_start(turn, lines, new)
        } else {
            self.plain_start::<false, _>(turn, lines, new)
        };
        if let Err(new) = started {
            self.start_or_fail(turn, lines, new);
            self.start_queued(turn, lines);
        }
    }

    /// Loads what [`Self::plain_response`] and [`Self::plain_call`] read and write into the cache.
    #[inline]
    pub(in crate::protocol::client) fn prefetch(&self, request: RequestNumber) {
        prefetch(&self.local);
        prefetch(&self.common);
        prefetch(&self.liveness);
        prefetch(&self.cut.charges);
        prefetch(self.pacer.pace());
        prefetch(&self.slots[self.slots.of(request)]);
    }

    /// Loads the request of a call into the cache.
    #[inline]
    pub(in crate::protocol::client) fn prefetch_request(&self, request: RequestNumber) {
        if let Some(call) = self.slots[self.slots.of(request)].call() {
            call.prefetch_request();
        }
    }

    /// Handles a response of one packet to a plain call.
    #[inline(always)]
    pub(in crate::protocol::client) fn plain_response<X: TxQueue<Route = R>>(
        &mut self,
        turn: &mut Turn<'_, X>,
        lines: &mut Lines<R>,
        route: &R,
        header: HeaderWords,
        body_len: usize,
    ) -> Option<Finished> {
        let at = self.slots.of(header.request());
        let ours = self.local == header.connection()
            && self.common.route == *route
            && self.heads.response == header.head().small()
            && header.size() as usize == body_len
            && header.size() <= self.heads.max_response
            && self.is_quiet()
            && self.slots[at].number == header.request();
        if !ours {
            return None;
        }
        let slot = &mut self.slots[at];
        let call = slot.call()?;
        if !call.is_plain() || call.is_large() != header.head().large() {
            return None;
        }
        let FinishedPlain { finished, method, cost, sent_at } = slot.take_call()?.finish_plain();
        let info = ReplyInfo::from_u32(header.aux());
        let has_slow = lines.on_plain_reply(self.peer, info, &mut self.credits, cost);
        if self.is_notable(info, has_slow) {
            let overtaken = lines.probing(self.peer).is_passed(sent_at);
            let nanos = info.processing_nanos();
            let told = Told { method, nanos, runs_on: false, overtaken, probes_unanswered: false };
            self.note_handler_time(turn.now, lines, &told);
        }
        let is_first = self.liveness.heard(turn.now);
        if is_first | self.overdue {
            self.answered(turn, lines, sent_at);
        }
        // Only the first answer of a burst gives a sample: the others would differ from it only by
        // the length of the burst.
        if is_first {
            self.response_lengths.note_short();
            let trip = turn.now.nanos_since(sent_at);
            // The answered packet was in flight too, but its credit was released above.
            let in_flight = u32::from(self.credits.taken()) + 1;
            let waits = (info.processing_nanos(), turn.queue_wait.absence);
            self.measured(turn, lines, trip, waits, in_flight, false);
        }
        if info.is_marked() | turn.marked {
            self.pacer.on_mark(turn.now, turn.endpoint.config.bypasses);
        }
        self.free.insert(at);
        turn.endpoint.stats.responses += 1;
        turn.tx.reclaim();
        if !finished.request.is_unique() && !mutant!(FlushForgottenPlain) {
            // The transmit queue still refers to the request, so the user must not get the request
            // back before the flush (thesis section 6.3.2.2).
            turn.tx.flush();
        }
        if !self.common.queue.is_empty() && !mutant!(QueueForgotten) {
            // A copy, so that the compiler need not keep `turn` in memory in the common case.
            self.start_next(&mut turn.reborrow(), lines);
        }
        Some(finished)
    }
}
