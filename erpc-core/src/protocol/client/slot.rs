//! A request slot, and what is left in it of a call that has ended early.

use super::call::Call;
use super::reservation::{Flow, Reserved};
use super::retry::RetryTimer;
use crate::mutants::mutant;
use crate::protocol::WINDOW;
use crate::protocol::index::SlotIndex;
use crate::time::Instant;
use crate::wire::RequestNumber;

/// A request slot (`SSlot` in the original).
pub(super) struct Slot {
    /// The current request's number, or the last one's.
    pub(super) number: RequestNumber,
    /// The last request that ended before an answer had told whether its probes were needed. Before there was one, a
    /// number that no request has.
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
    pub(super) fn new(at: SlotIndex) -> Self {
        let none = at.number_before_first();
        Self { number: none, undecided: none, state: SlotState::Free }
    }

    /// The number of the slot's next request.
    #[inline(always)]
    pub(super) fn advance(&mut self) -> RequestNumber {
        self.number = self.number.plus(WINDOW as u32);
        self.number
    }

    /// Nothing of the request was sent: the slot's next one takes its number, or the server would wait for it.
    pub(super) fn step_back(&mut self) {
        self.number = self.number.plus((WINDOW as u32).wrapping_neg());
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

    /// Takes the call out; the slot is free then.
    #[inline(always)]
    pub(super) fn take_call(&mut self) -> Option<Call> {
        self.call()?;
        match std::mem::replace(&mut self.state, SlotState::Free) {
            SlotState::Call(call) => Some(call),
            // It is a call, as was looked up; so the compiler need not keep the slot's old state in memory to drop it.
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

    /// Of whatever waits for an answer in it.
    pub(super) fn retry_mut(&mut self) -> Option<&mut RetryTimer> {
        match &mut self.state {
            SlotState::Call(call) => Some(call.retry_mut()),
            SlotState::Quarantine(quarantine) => Some(&mut quarantine.retry),
            SlotState::Free => None,
        }
    }
}

/// What is left of a call that has ended here before its server has answered, and may be executing.
///
/// The slot stays taken until the server has said that it is done with the request, or the next one would
/// find it busy there; so does what its packets took, as they and their answers may be on their way.
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

    pub(super) fn retry(&self) -> &RetryTimer {
        &self.retry
    }

    pub(super) fn reserved(&self) -> Reserved {
        self.reserved
    }

    /// Whether the server may have the whole request.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    /// The server is executing the request.
    pub(super) fn accept(&mut self, now: Instant) {
        self.retry.progress(now);
        self.retry.accept();
    }

    /// Gives back what the call's packets took.
    pub(super) fn release(&mut self, flow: &mut Flow<'_>) {
        let reserved = std::mem::take(&mut self.reserved);
        if !mutant!(QuarantineLeak) {
            flow.release_all(reserved);
        }
    }
}
