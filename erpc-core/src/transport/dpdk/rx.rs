//! The receiving half.

use std::sync::atomic::Ordering;
use std::{ptr, slice};

use dpdk_sys::{erpc_frame, rte_mbuf};

use super::device::Seat;
use super::eal;
use super::inbox::Handed;
use crate::clock;
use crate::time::Instant;
use crate::transport::frame::{FrameDrop, FrameDrops, Packet, control, parse};
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, RxPacket, RxQueue};

/// Bursts between two looks at the clock, for housekeeping.
const BURSTS_PER_LOOK: u32 = 1 << 14;
/// Bursts without packets between two looks at the queues of siblings.
const BURSTS_PER_VISIT: u32 = 256;
/// Time between two rounds of housekeeping, in ns.
const HOUSEKEEPING: u64 = 100_000_000;

/// A datagram within a mbuf of the burst.
#[derive(Clone, Copy)]
pub(super) struct Lent {
    route: UdpRoute,
    data: *const u8,
    len: u32,
    marked: bool,
}

/// The receiving half of a [`DpdkTransport`](super::DpdkTransport).
pub struct DpdkRx {
    seat: Seat,
    /// The mbufs of the last burst, of which `held` are ours.
    mbufs: [*mut rte_mbuf; MAX_BURST],
    held: usize,
    frames: [erpc_frame; MAX_BURST],
    lent: [Lent; MAX_BURST],
    count: usize,
    /// Whether the device had no more frames than the last burst asked for.
    is_drained: bool,
    /// Packets that siblings have handed over, in reverse order.
    handed: Vec<Handed>,
    /// Packets for a sibling, while they are handed over.
    outgoing: Vec<Handed>,
    /// Polls of each queue when this endpoint last looked; empty if it has no siblings.
    polls: Vec<u32>,
    /// Frames that have arrived here, for any endpoint.
    arrived: u64,
    packets: u64,
    bytes: u64,
    drops: FrameDrops,
    bursts: u32,
    looked: Instant,
    is_registered: bool,
    has_paused: bool,
    marks: bool,
}

// SAFETY: the mbufs belong to this queue alone, and a thread may use a port that another thread has
// used before.
unsafe impl Send for DpdkRx {}

impl DpdkRx {
    pub(super) fn new(seat: Seat) -> Self {
        let route = UdpRoute::from_v4(0, 0);
        Self {
            polls: vec![0; if seat.has_siblings() { seat.device.queues.len() } else { 0 }],
            seat,
            mbufs: [std::ptr::null_mut(); MAX_BURST],
            held: 0,
            frames: [erpc_frame::default(); MAX_BURST],
            lent: [Lent { route, data: std::ptr::null(), len: 0, marked: false }; MAX_BURST],
            count: 0,
            is_drained: true,
            handed: Vec::new(),
            outgoing: Vec::new(),
            arrived: 0,
            packets: 0,
            bytes: 0,
            drops: FrameDrops::default(),
            bursts: 0,
            looked: Instant::ZERO,
            is_registered: false,
            has_paused: false,
            marks: false,
        }
    }

    pub(super) fn received(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }

    /// Frames that have arrived at this endpoint's queue or inbox.
    pub(super) fn arrived(&self) -> u64 {
        self.arrived
    }

    pub(super) fn drops(&self) -> FrameDrops {
        self.drops
    }

    pub(super) fn enable_marks(&mut self) {
        self.marks = true;
    }

    fn give_back(&mut self) {
        self.count = 0;
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            // SAFETY: the first `held` mbufs are ours. `count` is 0, so none is lent any more: a
            // loan borrows `self`.
            unsafe { dpdk_sys::erpc_give_back(self.mbufs.as_mut_ptr(), held as u16) };
        }
    }

    #[cold]
    fn look(&mut self) {
        if !self.is_registered {
            self.is_registered = true;
            eal::register_thread();
        }
        self.housekeeping();
    }

    /// Does the port's housekeeping if it is due.
    pub(super) fn housekeeping(&mut self) {
        let now = clock::now();
        if now.nanos_since(self.looked) >= HOUSEKEEPING {
            self.looked = now;
            self.seat.housekeeping();
        }
    }

    /// Handles a frame that carries no datagram.
    #[cold]
    fn control(seat: &Seat, packet: &Packet<'_>) {
        match *packet {
            Packet::Echo(echo) => {
                seat.send_control(control::echo_reply(&seat.device.interface, &echo));
            }
            Packet::Resolve(message) => seat.learn(message),
            Packet::Datagram(_) => {}
        }
    }

    /// Receives from this endpoint's queue, if the burst has room.
    #[inline(always)]
    fn poll_own(&mut self) {
        let room = MAX_BURST - self.held;
        if room > 0 {
            self.is_drained = self.poll(self.seat.queue, room) < room;
        }
    }

    /// Receives from the queues that stand still, because the loops of their endpoints do: they may
    /// hold packets for this endpoint.
    #[cold]
    fn poll_still_queues(&mut self) {
        for queue in 0..self.polls.len() {
            let polls = self.seat.device.queues[queue].polls.load(Ordering::Relaxed);
            let stands_still = std::mem::replace(&mut self.polls[queue], polls) == polls;
            let room = MAX_BURST - self.held;
            if stands_still && queue != self.seat.queue && room > 0 {
                self.poll(queue, room);
            }
        }
    }

    /// Receives up to `room` frames after those that are held. Returns how many.
    #[inline(always)]
    fn poll(&mut self, queue: usize, room: usize) -> usize {
        let first = self.held;
        let mbufs = self.mbufs[first..][..room].as_mut_ptr();
        // SAFETY: both arrays have room for `room` entries.
        let polled =
            unsafe { self.seat.receive(queue, mbufs, self.frames.as_mut_ptr(), room as u16) };
        let polled = usize::from(polled).min(room);
        self.arrived += polled as u64;
        self.held += polled;
        let device = &*self.seat.device;
        let mut strays = 0;
        for (at, frame) in self.frames[..polled].iter().enumerate() {
            if frame.segments != 1 {
                self.drops.count(FrameDrop::Oversized);
                continue;
            }
            if frame.checksums == 2 {
                self.drops.count(FrameDrop::Checksum);
                continue;
            }
            // SAFETY: the mbuf is ours until the next burst, and its only segment has `len` bytes at
            // `data`.
            let bytes = unsafe { slice::from_raw_parts(frame.data, frame.len as usize) };
            let verified = device.verifies && frame.checksums == 1;
            match parse(bytes, &device.interface, verified) {
                Ok(Packet::Datagram(datagram)) => {
                    let lent = Lent {
                        route: datagram.source,
                        data: datagram.payload.as_ptr(),
                        len: datagram.payload.len() as u32,
                        marked: datagram.marked,
                    };
                    if datagram.port == self.seat.udp_port {
                        self.bytes += u64::from(lent.len);
                        self.lent[self.count] = lent;
                        self.count += 1;
                    } else {
                        let mbuf = &mut self.mbufs[first + at];
                        let stray = Stray { seat: &self.seat, port: datagram.port, lent };
                        strays += stray.hand_over(mbuf, &mut self.outgoing, &mut self.drops);
                    }
                }
                Ok(packet) => Self::control(&self.seat, &packet),
                Err(reason) => self.drops.count(reason),
            }
        }
        if strays > 0 {
            self.forget_strays();
        }
        polled
    }

    /// Removes the mbufs that were handed over from those that are held.
    #[cold]
    fn forget_strays(&mut self) {
        let mut kept = 0;
        for at in 0..self.held {
            if !self.mbufs[at].is_null() {
                self.mbufs[kept] = self.mbufs[at];
                kept += 1;
            }
        }
        self.held = kept;
    }

    /// Shows siblings that this loop runs, and now and then polls for those that do not.
    fn look_after_siblings(&mut self) {
        let own = &self.seat.device.queues[self.seat.queue].polls;
        own.store(own.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
        if self.count == 0 && (self.has_paused || self.bursts.is_multiple_of(BURSTS_PER_VISIT)) {
            self.has_paused = false;
            self.poll_still_queues();
        }
    }

    /// Notes that the loop pauses now.
    pub(super) fn pauses(&mut self) {
        self.has_paused = true;
    }

    /// Takes packets that siblings have handed over.
    #[cold]
    fn take_handed(&mut self) {
        if self.handed.is_empty() {
            self.seat.member().inbox.take(&mut self.handed);
            self.handed.reverse();
        }
        while self.held < MAX_BURST
            && let Some(Handed { mbuf, lent }) = self.handed.pop()
        {
            self.mbufs[self.held] = mbuf;
            self.held += 1;
            self.lent[self.count] = lent;
            self.count += 1;
            self.arrived += 1;
            self.bytes += u64::from(lent.len);
        }
    }

    /// Whether siblings have handed over packets that are still to be received.
    #[inline]
    pub(super) fn has_handed(&self) -> bool {
        !self.handed.is_empty() || self.seat.member().inbox.has_packets()
    }
}

/// A datagram that arrived at the queue of `seat`, for another UDP port.
struct Stray<'a> {
    seat: &'a Seat,
    port: u16,
    lent: Lent,
}

impl Stray<'_> {
    /// Hands the packet over to the endpoint that has the port, or drops it. Returns the number of
    /// packets handed over; its mbuf is then replaced by a null pointer.
    #[cold]
    fn hand_over(
        self,
        mbuf: &mut *mut rte_mbuf,
        outgoing: &mut Vec<Handed>,
        drops: &mut FrameDrops,
    ) -> usize {
        let Some(sibling) = self.seat.sibling(self.port) else {
            drops.count(FrameDrop::NoEndpoint);
            return 0;
        };
        outgoing.push(Handed { mbuf: *mbuf, lent: self.lent });
        sibling.inbox.put(outgoing, self.seat.device.capacity() as usize);
        if outgoing.pop().is_some() {
            drops.count(FrameDrop::Overflow);
            return 0;
        }
        *mbuf = ptr::null_mut();
        sibling.bell.ring_if_pausing();
        1
    }
}

impl RxQueue for DpdkRx {
    type Route = UdpRoute;

    #[inline]
    fn burst(&mut self) -> usize {
        self.give_back();
        if self.bursts.is_multiple_of(BURSTS_PER_LOOK) {
            self.look();
        }
        self.bursts = self.bursts.wrapping_add(1);
        if self.has_handed() {
            self.take_handed();
        }
        self.poll_own();
        if !self.polls.is_empty() {
            self.look_after_siblings();
        }
        self.packets += self.count as u64;
        self.count
    }

    #[inline]
    fn is_drained(&self) -> bool {
        // Drivers hand out whole bursts while they have packets.
        self.is_drained && !self.has_handed()
    }

    #[inline]
    fn packet(&self, index: usize) -> RxPacket<'_, UdpRoute> {
        let lent = &self.lent[..self.count][index];
        // SAFETY: the bytes lie in a mbuf of the last burst. It is returned only in `give_back`, which
        // needs `&mut self`, so the borrow in the result has ended.
        let bytes = unsafe { slice::from_raw_parts(lent.data, lent.len as usize) };
        RxPacket { route: lent.route, bytes, marked: lent.marked && self.marks }
    }
}

impl Drop for DpdkRx {
    fn drop(&mut self) {
        self.give_back();
        for mut packet in self.handed.drain(..) {
            // SAFETY: the packet's mbuf is ours, and not used after this.
            unsafe { dpdk_sys::erpc_give_back(&raw mut packet.mbuf, 1) };
        }
    }
}
