//! A request slot of a server session (`SSlot` in the original eRPC).

use super::agreement::Agreement;
use super::kept_response::KeptResponse;
use super::memory::SessionMemory;
use super::receiving::{Received, Receiving};
use crate::buf::{MsgBuf, Pool};
use crate::mutants::mutant;
use crate::time::Instant;
use crate::wire::{Header, RequestNumber};

/// Largest capacity of a response buffer that a slot keeps for its next response, in bytes.
pub const KEPT_CAPACITY: usize = 768;

/// The progress of a slot's current request.
///
/// ```text
/// Idle -> [Receiving ->] Executing [-> Accepted] -> Responding -> Idle
/// ```
///
/// * A request of one packet skips `Receiving`.
/// * The slot enters `Accepted` only if the client sends a packet of the executing request again,
///   or cancels the request.
/// * If the client cancels a request before it is complete, or there is no memory for it, the slot
///   goes to `Responding` without the handler. The response is a failure.
/// * `Responding` ends when the client confirms the response, or sends the slot's next request.
///
/// A slot keeps the buffer of a small response. The handler of the slot's next request gets the
/// buffer for its own response (thesis section 6.3.3, preallocated responses).
pub(super) enum SlotState {
    /// The slot has received no request yet, or the client has confirmed the last response.
    Idle { kept: Option<MsgBuf> },
    /// Some packets of the request have arrived.
    Receiving(Box<Receiving>),
    /// The handler has the request.
    Executing {
        /// The earliest time at which the last request packet may have arrived.
        since: Instant,
        /// The number of response packets behind the first one that the client has asked for.
        early: u16,
    },
    /// The handler has the request, and the client knows. The client no longer holds room for the
    /// response, so the server must announce it.
    Accepted {
        since: Instant,
        /// When the server last told the client that the request is executing.
        told: Instant,
        /// The client has cancelled the request, and the handler knows.
        cancelled: bool,
    },
    /// The response is kept: the client may still pull packets of it, or need some packets again.
    Responding(KeptResponse),
}

impl SlotState {
    /// Ends the request. Returns the response's buffer, or the buffer that was kept for it.
    fn into_buffer(self, memory: &mut SessionMemory, pool: &mut Pool) -> Option<MsgBuf> {
        match self {
            Self::Idle { kept } => kept,
            Self::Executing { .. } | Self::Accepted { .. } => None,
            Self::Receiving(receiving) => receiving.discard(memory, pool),
            Self::Responding(response) => Some(response.into_message()),
        }
    }
}

/// The execution of a request by its handler.
#[derive(Clone, Copy)]
pub(super) struct Execution {
    /// The earliest time at which the last request packet may have arrived.
    pub(super) since: Instant,
    /// The client knows that the request is executing, and no longer holds room for the response.
    pub(super) is_accepted: bool,
}

/// How a request number relates to a slot's current request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Position {
    Earlier,
    Current,
    Next,
    /// Beyond the next request: a correct client cannot have sent it yet.
    Leap,
}

/// One of a session's request slots.
pub(super) struct ServerSlot {
    /// The number of the current request, or of the last request if the slot is idle.
    number: RequestNumber,
    /// The request and its response are cut into large packets.
    is_large: bool,
    state: SlotState,
}

impl ServerSlot {
    /// A slot without a request. The number of its first request will be `before_first` plus the
    /// session's number of slots.
    pub(super) fn new(before_first: RequestNumber) -> Self {
        Self { number: before_first, is_large: false, state: SlotState::Idle { kept: None } }
    }

    #[inline]
    pub(super) fn number(&self) -> RequestNumber {
        self.number
    }

    #[inline(always)]
    pub(super) fn is_large(&self) -> bool {
        self.is_large
    }

    /// The client has cut the current request again, into small packets, because the path drops
    /// large ones. The response is cut into small packets, too. Packets of the request that arrived
    /// before are dropped.
    pub(super) fn cut_small(
        &mut self,
        agreed: &Agreement,
        memory: &mut SessionMemory,
        pool: &mut Pool,
    ) {
        self.is_large = false;
        match &mut self.state {
            SlotState::Responding(response) => {
                response.cut_again(agreed.response(response.size(), false));
            }
            SlotState::Receiving(_) => self.clear(memory, pool),
            // An executing request becomes an accepted one: its packet has come again.
            SlotState::Idle { .. } | SlotState::Executing { .. } | SlotState::Accepted { .. } => {}
        }
    }

    /// `step` is the session's number of slots.
    #[inline]
    pub(super) fn position(&self, number: RequestNumber, step: u32) -> Position {
        match number.ahead_of(self.number) {
            0 => Position::Current,
            ahead if ahead < 0 => Position::Earlier,
            ahead if ahead == step as i32 => Position::Next,
            _ => Position::Leap,
        }
    }

    /// Whether a planted bug makes the slot mistake its current request, of one packet, for the
    /// next request.
    #[inline]
    pub(super) fn mistakes_repetition(&self) -> bool {
        match self.state {
            SlotState::Responding(_) => mutant!(DedupeOffByOne),
            SlotState::Executing { .. } | SlotState::Accepted { .. } => mutant!(ExecutedTwice),
            SlotState::Idle { .. } | SlotState::Receiving(_) => false,
        }
    }

    #[inline]
    pub(super) fn state(&mut self) -> &mut SlotState {
        &mut self.state
    }

    /// Whether the handler has the current request.
    #[inline]
    pub(super) fn is_executing(&self) -> bool {
        matches!(self.state, SlotState::Executing { .. } | SlotState::Accepted { .. })
    }

    /// Whether a part of the current request has arrived.
    pub(super) fn is_receiving(&self) -> bool {
        matches!(self.state, SlotState::Receiving(_))
    }

    /// Whether the current request is incomplete or executing: it has no response yet.
    #[inline]
    pub(super) fn is_busy(&self) -> bool {
        self.is_executing() || self.is_receiving()
    }

    /// Whether the owner must be notified if the client disappears: the request is executing and
    /// not cancelled.
    pub(super) fn needs_cancel(&self) -> bool {
        self.is_executing() && !matches!(self.state, SlotState::Accepted { cancelled: true, .. })
    }

    /// The execution of the current request, if its handler has it.
    #[inline]
    pub(super) fn execution(&self) -> Option<Execution> {
        match self.state {
            SlotState::Executing { since, .. } => Some(Execution { since, is_accepted: false }),
            SlotState::Accepted { since, .. } => Some(Execution { since, is_accepted: true }),
            SlotState::Idle { .. } | SlotState::Receiving(_) | SlotState::Responding(_) => None,
        }
    }

    /// Claims the number of the slot's next request, which is cut into large or small packets. The
    /// client has the response to the previous request.
    pub(super) fn claim(
        &mut self,
        number: RequestNumber,
        is_large: bool,
        memory: &mut SessionMemory,
        pool: &mut Pool,
    ) {
        debug_assert!(
            !self.is_busy() || mutant!(ExecutedTwice),
            "the slot's last request was answered"
        );
        (self.number, self.is_large) = (number, is_large);
        self.clear(memory, pool);
    }

    /// Makes the slot idle. Keeps a small buffer for the next response; returns a large one to the
    /// pool.
    pub(super) fn clear(&mut self, memory: &mut SessionMemory, pool: &mut Pool) {
        let mut kept = self.take_state().into_buffer(memory, pool);
        if let Some(buffer) = kept.take_if(|buffer| buffer.capacity() > KEPT_CAPACITY) {
            memory.remove(buffer.footprint());
            if mutant!(BufferLeak) { std::mem::forget(buffer) } else { pool.recycle(buffer) }
        }
        self.state = SlotState::Idle { kept };
    }

    /// Starts the request whose number the slot has [claimed](Self::claim). Returns the kept
    /// buffer, for the handler.
    pub(super) fn execute(&mut self, since: Instant, memory: &mut SessionMemory) -> Option<MsgBuf> {
        debug_assert!(matches!(self.state, SlotState::Idle { .. }));
        let kept = self.take_kept();
        memory.remove(kept.as_ref().map_or(0, MsgBuf::footprint));
        self.state = SlotState::Executing { since, early: 0 };
        kept
    }

    /// Takes the first of several packets of the request whose number the slot has
    /// [claimed](Self::claim).
    pub(super) fn receive(&mut self, mut receiving: Receiving, memory: &mut SessionMemory) {
        debug_assert!(matches!(self.state, SlotState::Idle { .. }));
        memory.add(if mutant!(HeldNotCounted) { 0 } else { receiving.footprint() });
        receiving.keep(self.take_kept());
        self.state = SlotState::Receiving(Box::new(receiving));
    }

    /// Records that a packet of an incomplete request has arrived, out of order if there is a
    /// `gap`. True if the slot owes a credit return that it did not owe before.
    pub(super) fn owe_credit(&mut self, header: &Header, gap: bool) -> bool {
        match &mut self.state {
            SlotState::Receiving(receiving) => receiving.owe_credit(header, gap),
            _ => false,
        }
    }

    /// The request for the handler, once all its packets have arrived.
    pub(super) fn complete(
        &mut self,
        since: Instant,
        memory: &mut SessionMemory,
    ) -> Option<Received> {
        let SlotState::Receiving(receiving) = &self.state else { return None };
        if !receiving.is_complete() {
            return None;
        }
        match std::mem::replace(&mut self.state, SlotState::Executing { since, early: 0 }) {
            SlotState::Receiving(receiving) => Some(receiving.into_request(memory)),
            _ => None,
        }
    }

    /// The client has repeated a packet of the executing request, or cancels the request. Returns
    /// whether to answer `Accepted`: not if the server did so less than `pause` nanoseconds ago.
    pub(super) fn accept(&mut self, now: Instant, pause: u64) -> bool {
        match &mut self.state {
            SlotState::Executing { since, .. } => {
                self.state = SlotState::Accepted { since: *since, told: now, cancelled: false };
                true
            }
            SlotState::Accepted { told, .. } => {
                let tells = now.nanos_since(*told) >= pause || mutant!(DuplicateAlwaysAnswered);
                if tells {
                    *told = now;
                }
                tells
            }
            _ => false,
        }
    }

    /// The number of response packets behind the first one that the client has asked for while the
    /// request was executing. 0 if the response will be announced.
    pub(super) fn early(&self) -> u16 {
        match self.state {
            SlotState::Executing { early, .. } => early,
            _ => 0,
        }
    }

    /// The client has cancelled the executing request. To be called after [`Self::accept`]. Returns
    /// whether the handler must be notified: only the first time.
    pub(super) fn cancel(&mut self) -> bool {
        match &mut self.state {
            SlotState::Accepted { cancelled, .. } => !std::mem::replace(cancelled, true),
            _ => false,
        }
    }

    /// Stores the response in the slot, in place of the kept buffer.
    #[inline]
    pub(super) fn respond(
        &mut self,
        response: KeptResponse,
        memory: &mut SessionMemory,
        pool: &mut Pool,
    ) {
        memory.add(response.footprint());
        if let Some(buffer) = self.take_kept() {
            memory.remove(buffer.footprint());
            pool.recycle(buffer);
        }
        self.state = SlotState::Responding(response);
    }

    /// Whether this is the request after the slot's current one. `step` is the session's number of
    /// slots.
    #[inline(always)]
    pub(super) fn is_next(&self, number: RequestNumber, step: u32) -> bool {
        number == self.number.plus(step)
    }

    /// Whether [`Self::plain_execute`] applies: the request is the slot's next, and the slot holds
    /// a small response that was sent once. `step` is the session's number of slots.
    #[inline(always)]
    pub(super) fn is_plain_next(&self, number: RequestNumber, step: u32) -> bool {
        let SlotState::Responding(response) = &self.state else { return false };
        self.is_next(number, step)
            && response.is_single()
            && response.message().capacity() <= KEPT_CAPACITY
    }

    /// Loads the buffer of the slot's response into the cache.
    #[inline]
    pub(super) fn prefetch_buffer(&self) {
        if let SlotState::Responding(response) = &self.state {
            response.message().prefetch();
        }
    }

    /// The common case of [`Self::claim`] and [`Self::execute`].
    #[inline(always)]
    pub(super) fn plain_execute(
        &mut self,
        number: RequestNumber,
        is_large: bool,
        since: Instant,
        memory: &mut SessionMemory,
    ) -> Option<MsgBuf> {
        debug_assert!(matches!(self.state, SlotState::Responding(_)), "see `is_plain_next`");
        (self.number, self.is_large) = (number, is_large);
        match std::mem::replace(&mut self.state, SlotState::Executing { since, early: 0 }) {
            SlotState::Responding(response) => {
                let buffer = response.into_single();
                memory.remove(buffer.footprint());
                Some(buffer)
            }
            // Unreachable: see `is_plain_next`. With `forget`, the compiler need not keep the old
            // state in memory to drop it.
            state => {
                std::mem::forget(state);
                None
            }
        }
    }

    /// The common case of [`Self::execution`]: the client does not know that the request is
    /// executing. Returns when the execution began.
    #[inline(always)]
    pub(super) fn plain_executing_since(&self) -> Option<Instant> {
        match self.state {
            SlotState::Executing { since, .. } => Some(since),
            _ => None,
        }
    }

    /// The common case of [`Self::respond`], after [`Self::plain_executing_since`].
    #[inline(always)]
    pub(super) fn plain_respond(&mut self, response: KeptResponse, memory: &mut SessionMemory) {
        debug_assert!(self.plain_executing_since().is_some());
        memory.add(response.footprint());
        // The old state is `Executing`, which owns nothing: `forget` saves the drop check and leaks
        // nothing.
        std::mem::forget(std::mem::replace(&mut self.state, SlotState::Responding(response)));
    }

    /// Bytes of memory that the slot holds.
    pub(super) fn footprint(&self) -> usize {
        match &self.state {
            SlotState::Idle { kept } => kept.as_ref().map_or(0, MsgBuf::footprint),
            SlotState::Executing { .. } | SlotState::Accepted { .. } => 0,
            SlotState::Receiving(receiving) => receiving.footprint(),
            SlotState::Responding(response) => response.footprint(),
        }
    }

    /// Ends the slot and frees its memory.
    pub(super) fn discard(self, memory: &mut SessionMemory, pool: &mut Pool) {
        if let Some(buffer) = self.state.into_buffer(memory, pool) {
            memory.remove(buffer.footprint());
            pool.recycle(buffer);
        }
    }

    /// # Panics
    /// If an invariant of the slot does not hold.
    pub(super) fn check_invariants(&self) {
        match &self.state {
            SlotState::Receiving(receiving) => receiving.check_invariants(),
            SlotState::Responding(response) => response.check_invariants(),
            SlotState::Idle { .. } | SlotState::Executing { .. } | SlotState::Accepted { .. } => {}
        }
    }

    /// Takes an idle slot's buffer.
    fn take_kept(&mut self) -> Option<MsgBuf> {
        match &mut self.state {
            SlotState::Idle { kept } => kept.take(),
            _ => None,
        }
    }

    fn take_state(&mut self) -> SlotState {
        std::mem::replace(&mut self.state, SlotState::Idle { kept: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::server::kept_response::Response;
    use crate::wire::PacketLayout;

    const STEP: u32 = 8;
    const SECOND: Instant = Instant::from_nanos(1_000_000_000);

    fn response(pool: &mut Pool, len: usize) -> KeptResponse {
        let mut message = pool.alloc(len).expect("memory");
        message.resize(len);
        let response = Response { message, failure: false, extended: false };
        KeptResponse::new(response, PacketLayout::new(len as u32, 1_024, 1_024), false, 0)
    }

    /// A slot that has responded to its first request with `len` bytes.
    fn responded(len: usize) -> (ServerSlot, SessionMemory, Pool) {
        let (mut memory, mut pool) = (SessionMemory::default(), Pool::new(1 << 20));
        let first = RequestNumber::from_u32(0);
        let mut slot = ServerSlot::new(RequestNumber::from_u32(0u32.wrapping_sub(STEP)));
        assert_eq!(slot.position(first, STEP), Position::Next);
        slot.claim(first, true, &mut memory, &mut pool);
        assert!(slot.execute(SECOND, &mut memory).is_none(), "no response before the first");
        assert_eq!(memory.slots(), 0);
        slot.respond(response(&mut pool, len), &mut memory, &mut pool);
        assert_eq!(memory.slots(), slot.footprint());
        slot.check_invariants();
        (slot, memory, pool)
    }

    #[test]
    fn positions_are_relative_to_the_current_request() {
        let (slot, ..) = responded(10);
        let position = |number: i32| slot.position(RequestNumber::from_u32(number as u32), STEP);
        let window = STEP as i32;
        assert_eq!(position(0), Position::Current);
        assert_eq!(position(window), Position::Next);
        assert_eq!(position(2 * window), Position::Leap);
        assert_eq!(position(-window), Position::Earlier);
    }

    #[test]
    fn the_slot_keeps_a_small_buffer_for_the_next_request_but_no_large_one() {
        for (len, is_small) in [(10, true), (KEPT_CAPACITY * 4, false)] {
            let (mut slot, mut memory, mut pool) = responded(len);
            let next = RequestNumber::from_u32(STEP);
            assert_eq!(slot.is_plain_next(next, STEP), is_small);
            slot.claim(next, true, &mut memory, &mut pool);
            assert_eq!(memory.slots(), slot.footprint());
            assert_eq!(slot.execute(SECOND, &mut memory).is_some(), is_small);
            assert_eq!((memory.slots(), slot.footprint()), (0, 0));
        }
    }

    #[test]
    fn the_plain_functions_do_the_same_as_the_general_ones() {
        let (mut slot, mut memory, mut pool) = responded(10);
        let next = RequestNumber::from_u32(STEP);
        assert!(slot.is_plain_next(next, STEP));
        assert!(slot.plain_execute(next, false, SECOND, &mut memory).is_some());
        assert_eq!((slot.number(), slot.plain_executing_since()), (next, Some(SECOND)));
        assert_eq!((memory.slots(), slot.footprint()), (0, 0));
        slot.plain_respond(response(&mut pool, 20), &mut memory);
        assert!(memory.slots() > 0 && memory.slots() == slot.footprint());
    }

    #[test]
    fn the_handler_is_notified_of_the_first_cancel_only() {
        let (mut slot, mut memory, mut pool) = responded(10);
        slot.claim(RequestNumber::from_u32(STEP), true, &mut memory, &mut pool);
        slot.execute(SECOND, &mut memory);
        assert!(slot.needs_cancel() && slot.plain_executing_since().is_some());
        assert!(slot.accept(SECOND, 0) && slot.cancel());
        assert!(slot.accept(SECOND, 0) && !slot.accept(SECOND, 1), "the client was told just now");
        assert!(!slot.cancel() && !slot.needs_cancel());
        assert!(slot.execution().is_some_and(|execution| execution.is_accepted));
    }
}
