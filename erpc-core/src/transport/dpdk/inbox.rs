//! Packets that arrived at another endpoint's queue.
//!
//! A device may have fewer queues than endpoints, and spreads packets over its queues without regard
//! to the endpoint. So the endpoint that receives a packet looks at its UDP port, and hands it over
//! to the endpoint that has this port.

use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use dpdk_sys::rte_mbuf;

use super::device::lock;
use super::rx::Lent;

/// A datagram with its mbuf, which belongs to the holder of this value.
pub(super) struct Handed {
    pub(super) mbuf: *mut rte_mbuf,
    pub(super) lent: Lent,
}

// SAFETY: a mbuf may be used and freed by any thread, and this value is its only owner.
unsafe impl Send for Handed {}

/// The packets that siblings have received for an endpoint.
#[derive(Default)]
pub(super) struct Inbox {
    packets: Mutex<Vec<Handed>>,
    has_packets: AtomicBool,
}

impl Inbox {
    /// Without the lock; a packet that is being handed over may be missed.
    #[inline]
    pub(super) fn has_packets(&self) -> bool {
        self.has_packets.load(Ordering::Relaxed)
    }

    /// Takes packets from the front of `packets` until `limit` packets wait here. The rest stays.
    pub(super) fn put(&self, packets: &mut Vec<Handed>, limit: usize) {
        let mut waiting = lock(&self.packets);
        let room = limit.saturating_sub(waiting.len()).min(packets.len());
        waiting.extend(packets.drain(..room));
        self.has_packets.store(!waiting.is_empty(), Ordering::Relaxed);
    }

    /// Exchanges the waiting packets for `empty`.
    pub(super) fn take(&self, empty: &mut Vec<Handed>) {
        let mut waiting = lock(&self.packets);
        std::mem::swap(&mut *waiting, empty);
        self.has_packets.store(!waiting.is_empty(), Ordering::Relaxed);
    }
}
