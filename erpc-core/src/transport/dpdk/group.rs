//! The endpoints of a port, and how received datagrams reach them.
//!
//! Any member may poll any receive queue, one at a time. A datagram for another member goes to that
//! member's inbox before the queue is released, so the datagrams of a peer keep their order.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;

use dpdk_sys::rte_mbuf;

use super::bell::Bell;
use super::inbox::Inbox;
use crate::transport::udp::UdpRoute;

/// How datagrams reach the endpoints of a port.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Steering {
    /// The port has one endpoint and one receive queue.
    Single,
    /// The device has a rule (`rte_flow`) for each endpoint, which names its queue.
    Rules,
    /// The device spreads datagrams over the queues by a hash (RSS). The endpoint that finds a
    /// datagram of another one hands it over.
    Hash,
    /// The device has fewer queues than the port has endpoints, or its sender chooses the queue
    /// (`net_ring`, `net_memif`). Datagrams are handed over as for [`Steering::Hash`].
    Software,
}

/// A datagram within a mbuf.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    pub(super) route: UdpRoute,
    pub(super) data: *const u8,
    pub(super) len: u32,
    pub(super) marked: bool,
}

/// A datagram that another member has received.
#[derive(Clone, Copy)]
pub(super) struct HandedOver {
    pub(super) mbuf: *mut rte_mbuf,
    pub(super) lent: Lent,
}

// SAFETY: the mbuf belongs to whoever has this value, and mbufs may move between threads. `lent`
// points into it.
unsafe impl Send for HandedOver {}

/// An endpoint of the port.
pub(super) struct Member {
    pub(super) inbox: Inbox<HandedOver>,
    pub(super) bell: Arc<Bell>,
    /// Datagrams that did not fit the inbox.
    pub(super) overflow: AtomicU64,
    pub(super) is_closed: AtomicBool,
}

impl Member {
    pub(super) fn new(inbox: u32) -> Self {
        Self {
            inbox: Inbox::new(inbox),
            bell: Arc::default(),
            overflow: AtomicU64::new(0),
            is_closed: AtomicBool::new(false),
        }
    }
}

/// Whether a thread uses a queue.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct QueueLock(AtomicBool);

impl QueueLock {
    /// False if another thread uses the queue.
    #[inline]
    pub(super) fn try_acquire(&self) -> bool {
        !self.0.load(Ordering::Relaxed) && !self.0.swap(true, Ordering::Acquire)
    }

    /// Waits a bounded time: about as long as a burst takes, or until the system has run the thread
    /// that uses the queue. Then false.
    #[inline]
    pub(super) fn acquire(&self) -> bool {
        self.try_acquire() || self.acquire_slowly()
    }

    #[cold]
    fn acquire_slowly(&self) -> bool {
        (0..1_024).any(|attempt| {
            if attempt < 1_000 {
                hint::spin_loop()
            } else {
                thread::yield_now()
            }
            self.try_acquire()
        })
    }

    /// Ends the use that `acquire` or `try_acquire` has begun.
    #[inline]
    pub(super) fn release(&self) {
        self.0.store(false, Ordering::Release);
    }
}
