//! Msgbufs that the device may be reading.

use std::cell::UnsafeCell;
use std::collections::VecDeque;
use std::mem;
use std::sync::atomic::{AtomicU8, Ordering};

use dpdk_sys::erpc_hold;

use crate::buf::MsgBuf;

/// Packets that can be held at once. Further ones are copied.
const HOLDS: u16 = 1_024;

/// References to msgbufs, released in the order of their packets. Drivers send in this order.
pub(super) struct Holds {
    /// What drivers write to when they have read a packet. Shared with them while in flight.
    slots: Box<[UnsafeCell<erpc_hold>]>,
    free: Vec<u16>,
    in_flight: VecDeque<(u16, MsgBuf)>,
}

impl Holds {
    pub(super) fn new() -> Self {
        Self {
            slots: (0..HOLDS).map(|_| UnsafeCell::new(erpc_hold::default())).collect(),
            free: (0..HOLDS).collect(),
            in_flight: VecDeque::with_capacity(HOLDS.into()),
        }
    }

    /// Keeps `msgbuf` until the driver calls back with the returned hold. `None` if there are too
    /// many.
    #[inline]
    pub(super) fn hold(&mut self, msgbuf: impl FnOnce() -> MsgBuf) -> Option<*mut erpc_hold> {
        let slot = self.free.pop()?;
        let hold = self.slots[usize::from(slot)].get();
        // SAFETY: a free slot is ours alone.
        unsafe { (*hold).is_done = 0 };
        self.in_flight.push_back((slot, msgbuf()));
        Some(hold)
    }

    /// Releases the msgbufs that the device has read.
    #[inline]
    pub(super) fn reclaim(&mut self) {
        while let Some((slot, _)) = self.in_flight.front() {
            let hold = self.slots[usize::from(*slot)].get();
            // SAFETY: the slot lives as long as `self`.
            let is_done = unsafe { &raw mut (*hold).is_done };
            // SAFETY: as above. Both sides access the field atomically while the slot is in flight.
            let is_done = unsafe { AtomicU8::from_ptr(is_done) };
            if is_done.load(Ordering::Acquire) == 0 {
                return;
            }
            self.free.push(*slot);
            self.in_flight.pop_front();
        }
    }

    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        self.in_flight.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }
}

impl Drop for Holds {
    fn drop(&mut self) {
        self.reclaim();
        if !self.is_empty() {
            // A driver, or the peer of `net_ring`, has not finished. It will write to the slots and
            // read the messages, so both stay.
            mem::forget(mem::take(&mut self.slots));
            mem::forget(mem::take(&mut self.in_flight));
        }
    }
}
