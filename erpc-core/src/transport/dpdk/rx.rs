//! The receiving half.

use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dpdk_sys::{erpc_frame, rte_mbuf};

use super::device::Device;
use super::eal;
use crate::clock;
use crate::time::Instant;
use crate::transport::frame::{FrameDrop, FrameDrops, Packet, Resolve, control, parse};
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, RxPacket, RxQueue};

/// Bursts between two looks at the clock, for housekeeping.
const BURSTS_PER_LOOK: u32 = 1 << 14;
/// Time between two rounds of housekeeping, in ns.
const HOUSEKEEPING: u64 = 100_000_000;

/// A datagram within a mbuf of the burst.
#[derive(Clone, Copy)]
struct Lent {
    route: UdpRoute,
    data: *const u8,
    len: u32,
    marked: bool,
}

/// The receiving half of a [`DpdkTransport`](super::DpdkTransport).
pub struct DpdkRx {
    device: Arc<Device>,
    /// The mbufs of the last burst, of which `held` are ours.
    mbufs: [*mut rte_mbuf; MAX_BURST],
    held: usize,
    frames: [erpc_frame; MAX_BURST],
    lent: [Lent; MAX_BURST],
    count: usize,
    packets: u64,
    bytes: u64,
    drops: FrameDrops,
    bursts: u32,
    looked: Instant,
    is_registered: bool,
    marks: bool,
}

// SAFETY: the mbufs belong to this queue alone, and a thread may use a port that another thread has
// used before.
unsafe impl Send for DpdkRx {}

impl DpdkRx {
    pub(super) fn new(device: Arc<Device>) -> Self {
        let route = UdpRoute::from_v4(0, 0);
        Self {
            device,
            mbufs: [std::ptr::null_mut(); MAX_BURST],
            held: 0,
            frames: [erpc_frame::default(); MAX_BURST],
            lent: [Lent { route, data: std::ptr::null(), len: 0, marked: false }; MAX_BURST],
            count: 0,
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
            self.device.housekeeping();
        }
    }

    #[cold]
    fn control(device: &Device, packet: &Packet<'_>) {
        match *packet {
            Packet::Echo(echo) => {
                device.send_control(control::echo_reply(&device.interface, &echo))
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
                device.send_control(answer.into_iter().chain(waiting));
            }
            Packet::Datagram(_) => {}
        }
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
        let device = &*self.device;
        // SAFETY: both arrays have room for `MAX_BURST` entries. One thread uses the queue, which
        // is set up and started.
        let held = unsafe {
            dpdk_sys::erpc_rx_burst(
                device.port,
                0,
                self.mbufs.as_mut_ptr(),
                self.frames.as_mut_ptr(),
                MAX_BURST as u16,
            )
        };
        self.held = usize::from(held).min(MAX_BURST);
        for frame in &self.frames[..self.held] {
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
                Ok(Packet::Datagram(datagram)) if datagram.port == device.udp_port => {
                    self.bytes += datagram.payload.len() as u64;
                    self.lent[self.count] = Lent {
                        route: datagram.source,
                        data: datagram.payload.as_ptr(),
                        len: datagram.payload.len() as u32,
                        marked: datagram.marked && self.marks,
                    };
                    self.count += 1;
                }
                Ok(Packet::Datagram(_)) => self.drops.count(FrameDrop::NoEndpoint),
                Ok(packet) => Self::control(device, &packet),
                Err(reason) => self.drops.count(reason),
            }
        }
        self.packets += self.count as u64;
        self.count
    }

    #[inline]
    fn is_drained(&self) -> bool {
        // Drivers hand out whole bursts while they have packets.
        self.held < MAX_BURST
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
    }
}
