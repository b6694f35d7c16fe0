//! The receiving half.

use std::net::SocketAddr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dpdk_sys::{erpc_frame, rte_mbuf};

use super::device::Device;
use super::eal;
use super::group::{HandedOver, Lent, Steering};
use crate::clock;
use crate::time::Instant;
use crate::transport::frame::{FrameDrop, FrameDrops, Packet, Resolve, control, parse};
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, RxPacket, RxQueue};
use crate::wire::bundle;

/// Bursts between two looks at the clock, for housekeeping.
const BURSTS_PER_LOOK: u32 = 1 << 14;
/// Time between two rounds of housekeeping, in ns.
const HOUSEKEEPING: u64 = 100_000_000;

/// The receiving half of a [`DpdkTransport`](super::DpdkTransport).
pub struct DpdkRx {
    device: Arc<Device>,
    index: usize,
    /// Whether this endpoint is alone, with one queue.
    is_alone: bool,
    /// The first of this endpoint's receive queues. The others follow at a distance of the number of
    /// endpoints.
    home: usize,
    /// The queue of another endpoint that is polled next.
    visited: usize,
    /// The members that have got datagrams since they were last woken: one bit each.
    to_wake: u64,
    is_drained: bool,
    tx_queue: u16,
    /// The mbufs of the last burst, of which `held` are ours.
    mbufs: [*mut rte_mbuf; MAX_BURST],
    held: usize,
    frames: [erpc_frame; MAX_BURST],
    lent: [Lent; MAX_BURST],
    count: usize,
    /// The datagrams of the last burst whose packets exceed a burst. They come with the next one.
    left: [Lent; MAX_BURST],
    next_left: usize,
    ends_left: usize,
    packets: u64,
    bytes: u64,
    drops: FrameDrops,
    bursts: u32,
    looked: Instant,
    is_registered: bool,
    marks: bool,
}

// SAFETY: the mbufs and what is lent from them belong to this queue alone, and a thread may use a
// port that another thread has used before.
unsafe impl Send for DpdkRx {}

impl DpdkRx {
    pub(super) fn new(device: Arc<Device>, index: usize) -> Self {
        let route = UdpRoute::from_v4(0, 0);
        Self {
            index,
            is_alone: device.steering == Steering::Single,
            home: index % device.rx_locks.len(),
            visited: 0,
            to_wake: 0,
            is_drained: true,
            tx_queue: (index % device.tx_locks.len()) as u16,
            device,
            mbufs: [std::ptr::null_mut(); MAX_BURST],
            held: 0,
            frames: [erpc_frame::default(); MAX_BURST],
            lent: [Lent { route, data: std::ptr::null(), len: 0, marked: false }; MAX_BURST],
            count: 0,
            left: [Lent { route, data: std::ptr::null(), len: 0, marked: false }; MAX_BURST],
            next_left: 0,
            ends_left: 0,
            packets: 0,
            bytes: 0,
            drops: FrameDrops::default(),
            bursts: 0,
            looked: Instant::ZERO,
            is_registered: false,
            marks: false,
        }
    }

    pub(super) fn received(&self) -> (u64, u64) {
        (self.packets, self.bytes)
    }

    pub(super) fn drops(&self) -> FrameDrops {
        self.drops
    }

    pub(super) fn enable_marks(&mut self) {
        self.marks = true;
    }

    fn give_back(&mut self) {
        (self.count, self.next_left, self.ends_left) = (0, 0, 0);
        let held = std::mem::take(&mut self.held);
        if held > 0 {
            // SAFETY: the first `held` mbufs are ours. `count` is 0 and no datagram is left, so none is
            // lent any more: a loan borrows `self`.
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
            self.device.housekeeping(self.tx_queue);
        }
    }

    #[cold]
    fn control(device: &Device, queue: u16, packet: &Packet<'_>) {
        match *packet {
            Packet::Echo(echo) => {
                device.send_control(queue, control::echo_reply(&device.interface, &echo))
            }
            Packet::Resolve(message) => {
                let (ip, mac, asks) = match message {
                    Resolve::Asks { ip, mac } => (ip, mac, true),
                    Resolve::Tells { ip, mac } => (ip, mac, false),
                };
                let mut waiting = {
                    let mut table = device.neighbours();
                    let waiting = table.learn(ip, mac, asks, clock::now());
                    device.version.store(table.version(), Ordering::Relaxed);
                    waiting
                };
                for frame in &mut waiting {
                    frame[..6].copy_from_slice(&mac.0);
                }
                let answer = asks.then(|| control::tell(&device.interface, ip, mac)).flatten();
                device.send_control(queue, answer);
                device.send_waiting(queue, waiting);
            }
            Packet::Datagram(_) => {}
        }
    }

    /// Receives up to `MAX_BURST - held` frames from `queue`. Returns whether there may be more.
    #[inline(always)]
    fn receive<const ALONE: bool>(&mut self, queue: u16) -> bool {
        if !self.device.is_running() {
            return false;
        }
        let start = if ALONE { 0 } else { self.held };
        let room = MAX_BURST - start;
        // SAFETY: both arrays have room for `room` entries from here. This thread alone uses the
        // queue, which is set up and started: it is the only endpoint, or has the queue's lock.
        let count = unsafe {
            dpdk_sys::erpc_rx_burst(
                self.device.port,
                queue,
                self.mbufs[start..].as_mut_ptr(),
                self.frames[start..].as_mut_ptr(),
                room as u16,
            )
        };
        let count = usize::from(count).min(room);
        if ALONE {
            self.held = count;
        }
        for at in start..start + count {
            if ALONE {
                self.sort::<true>(at);
            } else {
                let mbuf = self.mbufs[at];
                if self.sort::<false>(at) {
                    self.mbufs[self.held] = mbuf;
                    self.held += 1;
                }
            }
        }
        count == room
    }

    /// Handles frame `at`. False if its mbuf now belongs to another endpoint.
    #[inline(always)]
    fn sort<const ALONE: bool>(&mut self, at: usize) -> bool {
        let device = &*self.device;
        if self.frames[at].segments != 1 && !Self::linearize(self.mbufs[at], &mut self.frames[at]) {
            self.drops.count(FrameDrop::Oversized);
            return true;
        }
        let frame = &self.frames[at];
        if frame.checksums == 2 {
            self.drops.count(FrameDrop::Checksum);
            return true;
        }
        // SAFETY: the mbuf is ours until the next burst or until it is handed over, and its only
        // segment has `len` bytes at `data`.
        let bytes = unsafe { slice::from_raw_parts(frame.data, frame.len as usize) };
        let verified = device.verifies && frame.checksums == 1;
        match parse(bytes, &device.interface, verified) {
            Ok(Packet::Datagram(datagram)) if datagram.payload.len() > device.max_datagram => {
                self.drops.count(FrameDrop::Oversized);
            }
            Ok(Packet::Datagram(datagram)) => {
                let route = datagram.source;
                let lent = Lent {
                    route: if device.is_link_local { Self::scoped(device, route) } else { route },
                    data: datagram.payload.as_ptr(),
                    len: datagram.payload.len() as u32,
                    marked: datagram.marked,
                };
                match device.member_at(datagram.port) {
                    Some(member) if ALONE || member == self.index => self.lend(lent),
                    Some(member) => return !self.hand_over(member, self.mbufs[at], lent),
                    None => self.drops.count(FrameDrop::NoEndpoint),
                }
            }
            Ok(packet) => Self::control(device, self.tx_queue, &packet),
            Err(reason) => self.drops.count(reason),
        }
        true
    }

    /// The source as this process names it.
    fn scoped(device: &Device, source: UdpRoute) -> UdpRoute {
        match source.socket_addr() {
            SocketAddr::V6(mut v6) if v6.ip().is_unicast_link_local() => {
                v6.set_scope_id(device.scope.load(Ordering::Relaxed));
                SocketAddr::V6(v6).into()
            }
            _ => source,
        }
    }

    /// Makes a frame one segment, as `net_ring` delivers those that were sent without a copy.
    #[cold]
    fn linearize(mbuf: *mut rte_mbuf, frame: &mut erpc_frame) -> bool {
        // SAFETY: the mbuf is ours, and nothing is lent from it yet.
        unsafe { dpdk_sys::erpc_linearize(mbuf, frame) == 0 }
    }

    /// Lends the packets of a datagram, or leaves some of them for the next burst.
    #[inline(always)]
    fn lend(&mut self, lent: Lent) {
        self.packets += 1;
        self.bytes += u64::from(lent.len);
        let lent = Lent { marked: lent.marked && self.marks, ..lent };
        if let Some(rest) = self.lend_packets(lent) {
            self.left[self.ends_left] = rest;
            self.ends_left += 1;
        }
    }

    /// Lends packets until the burst is full. Returns the rest of the datagram.
    #[inline(always)]
    fn lend_packets(&mut self, mut lent: Lent) -> Option<Lent> {
        while self.count < MAX_BURST {
            // SAFETY: the bytes lie in a mbuf that is ours at least until the next `give_back`.
            let bytes = unsafe { slice::from_raw_parts(lent.data, lent.len as usize) };
            let (len, rest) = bundle::split_first(bytes);
            self.lent[self.count] = Lent { len: len as u32, ..lent };
            self.count += 1;
            if rest.is_empty() {
                return None;
            }
            lent = Lent { data: rest.as_ptr(), len: rest.len() as u32, ..lent };
        }
        Some(lent)
    }

    /// Lends what the last burst has left.
    fn lend_left(&mut self) {
        self.count = 0;
        self.is_drained = false;
        while self.next_left < self.ends_left {
            if let Some(rest) = self.lend_packets(self.left[self.next_left]) {
                self.left[self.next_left] = rest;
                return;
            }
            self.next_left += 1;
        }
        (self.next_left, self.ends_left) = (0, 0);
    }

    /// Hands a datagram over to its endpoint. False if that has no room, or is closed: then the mbuf
    /// stays here.
    fn hand_over(&mut self, member: usize, mbuf: *mut rte_mbuf, lent: Lent) -> bool {
        let to = &self.device.members[member];
        if to.is_closed.load(Ordering::Relaxed) {
            self.drops.count(FrameDrop::NoEndpoint);
            return false;
        }
        if !to.inbox.push(HandedOver { mbuf, lent }) {
            to.overflow.fetch_add(1, Ordering::Relaxed);
            return false;
        }
        self.to_wake |= 1 << member;
        true
    }

    /// Takes what other endpoints have handed over. Returns whether there may be more.
    fn take_inbox(&mut self) -> bool {
        while self.held < MAX_BURST {
            let Some(HandedOver { mbuf, lent }) = self.device.members[self.index].inbox.pop()
            else {
                return false;
            };
            self.mbufs[self.held] = mbuf;
            self.held += 1;
            self.lend(lent);
        }
        true
    }

    /// Polls a queue that other endpoints poll too. Returns whether there may be more.
    fn poll(&mut self, queue: usize) -> bool {
        if !self.device.rx_locks[queue].try_acquire() {
            // The endpoint that polls the queue may fill the inbox.
            let _more = self.take_inbox();
            return true;
        }
        // While the queue is locked, nobody hands over its datagrams. Those of the inbox are older
        // than those of the queue.
        let has_more = self.take_inbox() || self.receive::<false>(queue as u16);
        self.device.rx_locks[queue].release();
        has_more
    }

    fn burst_of_group(&mut self) {
        let (queues, members) = (self.device.rx_locks.len(), self.device.members.len());
        let mut has_more = false;
        for queue in (self.home..queues).step_by(members) {
            has_more |= self.poll(queue);
        }
        // Datagrams for this endpoint may lie in the queue of one that is busy or asleep.
        if self.held == 0 && queues > 1 && self.device.steering != Steering::Rules {
            self.visited = (self.visited + 1) % queues;
            self.poll(self.visited);
        }
        self.is_drained = !has_more;
        let mut to_wake = std::mem::take(&mut self.to_wake);
        while to_wake != 0 {
            self.device.members[to_wake.trailing_zeros() as usize].bell.ring_sleeper();
            to_wake &= to_wake - 1;
        }
    }
}

impl RxQueue for DpdkRx {
    type Route = UdpRoute;

    #[inline]
    fn burst(&mut self) -> usize {
        if self.ends_left > 0 {
            self.lend_left();
            return self.count;
        }
        self.give_back();
        if self.bursts.is_multiple_of(BURSTS_PER_LOOK) {
            self.look();
        }
        self.bursts = self.bursts.wrapping_add(1);
        if self.is_alone {
            self.is_drained = !self.receive::<true>(0);
        } else {
            self.burst_of_group();
        }
        self.count
    }

    #[inline]
    fn is_drained(&self) -> bool {
        // Drivers hand out whole bursts while they have packets.
        self.is_drained && self.ends_left == 0
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.ends_left > 0
    }

    #[inline]
    fn packet(&self, index: usize) -> RxPacket<'_, UdpRoute> {
        let lent = &self.lent[..self.count][index];
        // SAFETY: the bytes lie in a mbuf of the last burst. It is returned only in `give_back`, which
        // needs `&mut self`, so the borrow in the result has ended.
        let bytes = unsafe { slice::from_raw_parts(lent.data, lent.len as usize) };
        RxPacket { route: lent.route, bytes, marked: lent.marked }
    }
}

impl Drop for DpdkRx {
    fn drop(&mut self) {
        self.give_back();
        // What is handed over from now on is returned with the device.
        self.device.members[self.index].is_closed.store(true, Ordering::Relaxed);
        while self.take_inbox() {
            self.give_back();
        }
        self.give_back();
    }
}
