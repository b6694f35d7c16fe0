//! The sending half. It copies every packet into a mbuf, so it never holds a msgbuf.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dpdk_sys::rte_mbuf;

use super::device::Device;
use crate::clock;
use crate::transport::frame::{Header, Mac, Resolution, control};
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, Route, TxPacket, TxQueue};

/// Packets that can be staged.
const STAGED: usize = 2 * MAX_BURST;
/// Mbufs that are taken at once.
const TAKE: usize = 32;
/// Attempts of a flush at a port that takes no packets.
const ATTEMPTS: u32 = 64;
/// Headers that are kept. The table is emptied when it is full.
const HEADERS: usize = 16_384;

/// The sending half of a [`DpdkTransport`](super::DpdkTransport).
///
/// Mbufs `[sent, staged)` are filled, `[staged, taken)` are empty and ours.
pub struct DpdkTx {
    device: Arc<Device>,
    udp_port: u16,
    queue: u16,
    /// Whether the queue must be locked.
    is_shared: bool,
    mbufs: [*mut rte_mbuf; STAGED],
    data: [*mut u8; STAGED],
    lengths: [u16; STAGED],
    sent: usize,
    staged: usize,
    taken: usize,
    /// Headers by the peer's address without its port.
    headers: HashMap<UdpRoute, Header>,
    last: Option<(UdpRoute, Header)>,
    version: u32,
    room: usize,
    /// Bytes in front of every datagram: all peers have the family of the port's address.
    header_len: u64,
    packets: u64,
    bytes: u64,
    /// Bytes of the staged datagrams.
    staged_bytes: u64,
    dropped: u64,
    ecn: bool,
}

// SAFETY: as for `DpdkRx`.
unsafe impl Send for DpdkTx {}

impl DpdkTx {
    pub(super) fn new(device: Arc<Device>, index: usize) -> Self {
        let queues = device.tx_locks.len();
        let queue = index % queues;
        Self {
            udp_port: device.udp_port + index as u16,
            queue: queue as u16,
            // Also a queue of its own is locked in a group, because any member may restart the port.
            is_shared: device.members.len() > 1,
            room: device.pool.room(),
            header_len: device.interface.header_len() as u64,
            device,
            mbufs: [ptr::null_mut(); STAGED],
            data: [ptr::null_mut(); STAGED],
            lengths: [0; STAGED],
            sent: 0,
            staged: 0,
            taken: 0,
            headers: HashMap::new(),
            last: None,
            version: 0,
            packets: 0,
            bytes: 0,
            staged_bytes: 0,
            dropped: 0,
            ecn: false,
        }
    }

    pub(super) fn counters(&self) -> [u64; 3] {
        [self.packets, self.bytes, self.dropped]
    }

    pub(super) fn enable_ecn(&mut self) {
        self.ecn = true;
        self.headers.clear();
        self.last = None;
    }

    #[inline(always)]
    fn send(&mut self, route: &UdpRoute, len: usize, fill: impl FnOnce(&mut [u8])) {
        let version = self.device.version.load(Ordering::Relaxed);
        if version != self.version {
            self.version = version;
            self.headers.clear();
            self.last = None;
        }
        let host = route.with_port(0);
        let header = match &self.last {
            Some((last, header)) if *last == host => *header,
            _ => match self.headers.get(&host) {
                Some(header) => {
                    self.last = Some((host, *header));
                    *header
                }
                None => return self.send_unresolved(route, len, fill),
            },
        };
        let total = header.len() + len;
        if total > self.room || self.staged == self.taken && !self.take() {
            self.dropped += 1;
            return;
        }
        // SAFETY: mbufs below `taken` are ours, with `room` bytes at `data`, and `total` is at most
        // `room`. DPDK's memory is initialized: it was zeroed by the system.
        let frame = unsafe { slice::from_raw_parts_mut(self.data[self.staged], total) };
        fill(&mut frame[header.len()..]);
        if self.device.offload.is_some() {
            header.write_for_device(frame, self.udp_port, route.port());
        } else {
            header.write(frame, self.udp_port, route.port());
        }
        self.lengths[self.staged] = total as u16;
        self.staged += 1;
        self.staged_bytes += len as u64;
        if self.staged - self.sent >= MAX_BURST {
            self.ring();
        }
    }

    /// Takes empty mbufs. False if there is no room for a packet, or the mempool is dry.
    #[cold]
    fn take(&mut self) -> bool {
        if self.taken + TAKE > STAGED {
            self.ring();
            self.compact();
            if self.taken + TAKE > STAGED {
                return false;
            }
        }
        let (mbufs, data) = (&mut self.mbufs[self.taken..][..TAKE], &mut self.data[self.taken..]);
        // SAFETY: both slices have room for `TAKE` entries, and the mempool is never freed.
        let error = unsafe {
            dpdk_sys::erpc_take(
                self.device.pool.as_ptr(),
                mbufs.as_mut_ptr(),
                data.as_mut_ptr(),
                TAKE as u16,
            )
        };
        if error == 0 {
            self.taken += TAKE;
        }
        error == 0
    }

    /// Moves the mbufs that are ours to the front.
    fn compact(&mut self) {
        let ours = self.sent..self.taken;
        self.mbufs.copy_within(ours.clone(), 0);
        self.data.copy_within(ours.clone(), 0);
        self.lengths.copy_within(ours, 0);
        self.staged -= self.sent;
        self.taken -= self.sent;
        self.sent = 0;
    }

    /// Offers the staged packets to the device once.
    #[inline]
    fn ring(&mut self) {
        let count = self.staged - self.sent;
        if count == 0 || !self.device.is_running() {
            return;
        }
        let lock = &self.device.tx_locks[usize::from(self.queue)];
        if self.is_shared && !lock.acquire() {
            return;
        }
        // SAFETY: the mbufs `[sent, staged)` are ours and filled with `lengths` bytes. This thread
        // alone uses the queue. Those that the device takes are its own from now on.
        let sent = unsafe {
            dpdk_sys::erpc_tx_burst(
                self.device.port,
                self.queue,
                self.mbufs[self.sent..].as_mut_ptr(),
                self.lengths[self.sent..].as_ptr(),
                self.device.offload.as_ref().map_or(ptr::null(), ptr::from_ref),
                count as u16,
            )
        };
        if self.is_shared {
            lock.release();
        }
        let taken = usize::from(sent).min(count);
        self.packets += taken as u64;
        if taken == count {
            self.bytes += std::mem::take(&mut self.staged_bytes);
        } else {
            self.count_some(taken);
        }
        self.sent += taken;
        if self.sent == self.taken {
            (self.sent, self.staged, self.taken) = (0, 0, 0);
        }
    }

    /// Counts the bytes of the first `taken` staged packets.
    #[cold]
    fn count_some(&mut self, taken: usize) {
        let frames: u64 = self.lengths[self.sent..][..taken].iter().copied().map(u64::from).sum();
        let bytes = frames - taken as u64 * self.header_len;
        self.staged_bytes -= bytes;
        self.bytes += bytes;
    }

    /// Looks up the peer's MAC address. The packet waits for the answer, or is dropped.
    #[cold]
    fn send_unresolved(&mut self, route: &UdpRoute, len: usize, fill: impl FnOnce(&mut [u8])) {
        let device = Arc::clone(&self.device);
        let address = route.socket_addr();
        if let SocketAddr::V6(v6) = address
            && v6.ip().is_unicast_link_local()
        {
            device.scope.store(v6.scope_id(), Ordering::Relaxed);
        }
        let peer = address.ip();
        let Some(hop) = device.interface.next_hop(peer) else {
            self.dropped += 1;
            return;
        };
        let header = |mac| Header::new(&device.interface, peer, mac, self.ecn);
        let Some(draft) = header(Mac([0; 6])).filter(|draft| draft.len() + len <= self.room) else {
            self.dropped += 1;
            return;
        };
        let mut fill = Some(fill);
        let frame = || {
            let mut frame = vec![0; draft.len() + len];
            if let Some(fill) = fill.take() {
                fill(&mut frame[draft.len()..]);
            }
            draft.write(&mut frame, self.udp_port, route.port());
            frame
        };
        let resolution = device.neighbours().resolve(hop, clock::now(), frame);
        match (resolution, fill) {
            (Resolution::Known(mac), Some(fill)) => {
                if self.headers.len() >= HEADERS {
                    self.headers.clear();
                }
                if let Some(header) = header(mac) {
                    self.headers.insert(route.with_port(0), header);
                    self.send(route, len, fill);
                }
            }
            (Resolution::Ask, _) => {
                device.send_control(self.queue, control::ask(&device.interface, hop));
            }
            (Resolution::Waiting, _) => {}
            _ => self.dropped += 1,
        }
    }
}

impl TxQueue for DpdkTx {
    type Route = UdpRoute;

    #[inline]
    fn push_bytes(&mut self, route: &UdpRoute, bytes: &[u8]) {
        self.send(route, bytes.len(), |out| out.copy_from_slice(bytes));
    }

    #[inline]
    fn push(&mut self, route: &UdpRoute, packet: TxPacket<'_>) {
        self.send(route, packet.len(), |out| {
            packet.copy_to(out);
        });
    }

    /// As the doorbell: all packets were copied. Repeats a refused doorbell a bounded number of
    /// times, then leaves the packets to the next one.
    fn flush(&mut self) {
        for _ in 0..ATTEMPTS {
            self.ring();
            if self.sent == self.staged {
                return;
            }
            std::hint::spin_loop();
        }
    }

    #[inline]
    fn doorbell(&mut self) {
        self.ring();
    }
}

impl Drop for DpdkTx {
    fn drop(&mut self) {
        self.flush();
        let ours = &mut self.mbufs[self.sent..self.taken];
        // SAFETY: these mbufs are ours, and nothing uses them after this.
        unsafe { dpdk_sys::erpc_give_back(ours.as_mut_ptr(), ours.len() as u16) };
    }
}
