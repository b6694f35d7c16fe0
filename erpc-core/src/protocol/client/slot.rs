//! A request slot, and the quarantine of a call that has ended early.

use super::call::Call;
use super::reservation::{Flow, Reserved};
use super::retry::RetryTimer;
use crate::mutants::mutant;
use crate::protocol::config::SlotCount;
use crate::time::Instant;
use crate::wire::RequestNumber;

/// A request slot (`SSlot` in the original).
pub(super) struct Slot {
    /// The current request's number; that of the last request if the slot is free.
    pub(super) number: RequestNumber,
    /// The last request whose answers did not show whether its probes were needed. If the response
    /// to this request arrives a second time, a probe was needless. If there is no such request,
    /// the field holds a number that no request has.
    pub(super) undecided: RequestNumber,
    pub(super) state: SlotState,
}

/// What is in a slot.
pub(super) enum SlotState {
    Free,
    Call(Call),
    Quarantine(Box<Quarantine>),
}

impl Slot {
    /// A free slot. `none` is the number before that of its first request.
    pub(super) fn new(none: RequestNumber) -> Self {
        Self { number: none, undecided: none, state: SlotState::Free }
    }

    /// Reuses the number of a request of which no packet was sent. Otherwise the server would wait
    /// for that request.
    pub(super) fn step_back(&mut self, count: SlotCount) {
        self.number = self.number.plus(count.step().wrapping_neg());
    }

    #[inline(always)]
    pub(super) fn call(&self) -> Option<&Call> {
        match &self.state {
            SlotState::Call(call) => Some(call),
            _ => None,
        }
    }

    #[inline(always)]
    pub(super) fn call_mut(&mut self) -> Option<&mut Call> {
        match &mut self.state {
            SlotState::Call(call) => Some(call),
            _ => None,
        }
    }

    /// Takes the call out, which frees the slot.
    #[inline(always)]
    pub(super) fn take_call(&mut self) -> Option<Call> {
        self.call()?;
        match std::mem::replace(&mut self.state, SlotState::Free) {
            SlotState::Call(call) => Some(call),
            // Unreachable: the state is a call. With `forget`, the compiler need not keep the old
            // state in memory to drop it.
            state => {
                std::mem::forget(state);
                None
            }
        }
    }

    pub(super) fn is_free(&self) -> bool {
        matches!(self.state, SlotState::Free)
    }

    pub(super) fn is_quarantined(&self) -> bool {
        matches!(self.state, SlotState::Quarantine(_))
    }

    /// The retry timer of the call or quarantine in the slot; `None` if the slot is free.
    pub(super) fn retry_mut(&mut self) -> Option<&mut RetryTimer> {
        match &mut self.state {
            SlotState::Call(call) => Some(call.retry_mut()),
            SlotState::Quarantine(quarantine) => Some(&mut quarantine.retry),
            SlotState::Free => None,
        }
    }
}

/// The rest of a call that has ended at the client before the server has answered. The server may
/// still execute the request.
///
/// The slot stays occupied until the server has finished the request; otherwise the slot's next
/// request would find the server's slot busy. The reservation of its packets stays, because the
/// packets and their answers may still be in flight.
pub(super) struct Quarantine {
    retry: RetryTimer,
    reserved: Reserved,
    /// The server may have the whole request.
    whole: bool,
}

impl Quarantine {
    pub(super) fn new(now: Instant, reserved: Reserved, whole: bool) -> Self {
        Self { retry: RetryTimer::new(now), reserved, whole }
    }

    pub(super) fn retry(&self) -> RetryTimer {
        self.retry
    }

    pub(super) fn reserved(&self) -> Reserved {
        self.reserved
    }

    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The server is executing the request.
    pub(super) fn accept(&mut self, now: Instant) {
        self.retry.progress(now);
        self.retry.accept();
    }

    /// Releases the reservation of the call's packets.
    pub(super) fn release(&mut self, flow: &mut Flow<'_>) {
        let reserved = std::mem::take(&mut self.reserved);
        if !mutant!(QuarantineLeak) {
            flow.release_all(reserved);
        }
    }
}
