//! The arguments that every step of the protocol takes.

use super::endpoint::EndpointState;
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::TxQueue;

/// What [`Core::prefetch`](super::Core::prefetch) loads. The second needs what the first has loaded.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Stage {
    /// Sessions and their slots.
    Sessions,
    /// The messages in these slots.
    Messages,
}

/// How long the packets of a burst may have waited in this endpoint's receive queue. This delay is
/// the endpoint's own, not the network's.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct QueueWait {
    /// How long the loop had not polled the queue when it took this burst, in nanoseconds.
    pub absence: u64,
    /// The time since the loop took this burst, in nanoseconds. In this time the handlers of
    /// earlier packets ran.
    pub delay: u64,
}

impl QueueWait {
    /// The longest time that a packet may have waited, in nanoseconds.
    #[inline]
    pub(super) fn longest(self) -> u64 {
        self.absence.saturating_add(self.delay)
    }
}

/// One call into the protocol: the time, the transmit queue, and the state that both roles share.
pub(super) struct Turn<'a, X> {
    pub(super) now: Instant,
    /// How long the packet that is being received may have waited.
    pub(super) queue_wait: QueueWait,
    /// True if the packet that is being received carries a congestion mark.
    pub(super) marked: bool,
    pub(super) endpoint: &'a mut EndpointState,
    pub(super) tx: &'a mut X,
}

impl<'a, X> Turn<'a, X> {
    /// A turn in which no packet is received.
    #[inline(always)]
    pub(super) fn new(now: Instant, endpoint: &'a mut EndpointState, tx: &'a mut X) -> Self {
        Self { now, queue_wait: QueueWait::default(), marked: false, endpoint, tx }
    }

    /// A copy of this turn, for a function that is not inlined. Only the copy's address leaves the
    /// caller, so the compiler can keep the original in registers.
    #[inline(always)]
    pub(super) fn reborrow(&mut self) -> Turn<'_, X> {
        let Self { now, queue_wait, marked, .. } = *self;
        Turn { now, queue_wait, marked, endpoint: self.endpoint, tx: self.tx }
    }

    /// The earliest time at which the received packet may have arrived.
    #[inline]
    pub(super) fn arrived_at(&self) -> Instant {
        self.now.minus_nanos(self.queue_wait.absence)
    }
}

impl<X: TxQueue> Turn<'_, X> {
    /// Makes sure that the transmit queue no longer reads `message`, whose packet headers are about
    /// to be rewritten because a peer wants packets again. This may need a flush, which releases
    /// every packet that was sent before. So a turn needs another flush only if a peer wants
    /// packets again that were sent since the last flush. Returns false if the queue still reads
    /// the message, but peers have already caused the maximum number of flushes in this turn.
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
