//! The arguments that every step of the protocol takes.

use super::endpoint::EndpointState;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::TxQueue;

/// How long the packets of a burst may have waited in this endpoint's receive queue: its own delay, not the network's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueWait {
    /// How long the loop had not looked at the queue before it took this burst, in nanoseconds.
    pub absence: u64,
    /// How long ago, by now, the loop took this burst, in nanoseconds: handlers of earlier packets ran meanwhile.
    pub delay: u64,
}

impl QueueWait {
    /// The longest that a packet may have waited, in nanoseconds.
    #[inline]
    pub(super) fn longest(self) -> u64 {
        self.absence.saturating_add(self.delay)
    }
}

/// One entry into the protocol: the time, where packets go, and the state that both roles share.
pub(super) struct Turn<'a, X> {
    pub(super) now: Instant,
    /// How long the packet that is being received may have waited.
    pub(super) queue_wait: QueueWait,
    /// The packet that is being received carries a congestion mark.
    pub(super) marked: bool,
    pub(super) endpoint: &'a mut EndpointState,
    pub(super) tx: &'a mut X,
}

impl<'a, X> Turn<'a, X> {
    /// A turn that receives no packet.
    #[inline(always)]
    pub(super) fn new(now: Instant, endpoint: &'a mut EndpointState, tx: &'a mut X) -> Self {
        Self { now, queue_wait: QueueWait::default(), marked: false, endpoint, tx }
    }

    /// The same turn for a function that is not inlined, so that this one stays in registers.
    #[inline(always)]
    pub(super) fn reborrow(&mut self) -> Turn<'_, X> {
        let Self { now, queue_wait, marked, .. } = *self;
        Turn { now, queue_wait, marked, endpoint: self.endpoint, tx: self.tx }
    }

    /// The earliest time at which the packet may have arrived.
    #[inline]
    pub(super) fn arrived_at(&self) -> Instant {
        self.now.minus_nanos(self.queue_wait.absence)
    }
}

impl<X: TxQueue> Turn<'_, X> {
    /// Makes sure that the queue does not read `message`, of which a peer wants packets again, whose headers are to be
    /// rewritten. False if that would take more flushes than peers may cause in a turn: a flush lets go of everything that
    /// was sent before, so only what is sent several times within the turn needs another one.
    pub(super) fn reclaim(&mut self, message: &MsgBuf) -> bool {
        if mutant!(ResponseAgainWithoutFlush) {
            return true;
        }
        self.tx.reclaim();
        if message.is_unique() {
            return true;
        }
        let admitted = self.endpoint.forced_flushes.admits(self.now);
        if admitted {
            self.tx.flush();
        }
        admitted
    }
}
