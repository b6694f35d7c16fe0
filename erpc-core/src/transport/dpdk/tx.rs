//! The sending half. It copies packets into mbufs. If the device can, long packets are read in the
//! msgbuf instead: a mbuf with the headers is chained to one that refers to the message's bytes.
//! Headers are copied always, so the protocol may write new ones while the device reads the bytes.
//!
//! Short messages to a peer that takes [bundles](crate::wire::bundle) share a frame. It is open until a
//! short message has no room in it, another peer needs its place, a control message to its peer follows,
//! or the doorbell rings.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::ptr;
use std::slice;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use dpdk_sys::rte_mbuf;

use super::arena::DpdkArena;
use super::device::Device;
use super::holds::Holds;
use crate::buf::MsgBuf;
use crate::clock;
use crate::transport::bundles::{self, OPENS, OpenBundles};
use crate::transport::frame::{Header, Mac, Resolution, control};
use crate::transport::udp::UdpRoute;
use crate::transport::{MAX_BURST, MIN_DATAGRAM, Route, TxPacket, TxQueue};
use crate::wire::bundle::MAX_BUNDLE;
use crate::wire::{HEADER_LEN, HeaderWords};

/// Longest packet that is copied although the device could read it in place, in bytes.
pub(super) const COPY_LIMIT: usize = 2_048;
/// How long a flush waits for the device, in ns. A device that sends needs some 10 us.
const FLUSH: u64 = 5_000_000;
/// Frames that can be staged.
const STAGED: usize = 2 * MAX_BURST;
/// Mbufs that are taken at once.
const TAKE: usize = 32;
/// Attempts of a flush at a port that takes no packets.
const ATTEMPTS: u32 = 64;
/// In a length: the mbuf is chained, and its own lengths are set.
const CHAINED: u16 = dpdk_sys::ERPC_CHAINED as u16;
// Every path and every mbuf has room for a bundle.
const _: () = assert!(MAX_BUNDLE <= MIN_DATAGRAM);
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
    bundles: OpenBundles<UdpRoute, OpenFrame>,
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
    holds: Option<Holds>,
    /// Empty mbufs for data outside of mbufs.
    tails: Vec<*mut rte_mbuf>,
    stuck: u64,
}

/// A staged frame whose headers are not written yet, because more messages may join it.
struct OpenFrame {
    header: Header,
    /// The index of its mbuf in `mbufs`. Valid until `ring`, which closes all open frames.
    at: usize,
    /// Bytes of its messages, with the gaps between them.
    len: usize,
}

// SAFETY: as for `DpdkRx`.
unsafe impl Send for DpdkTx {}

impl DpdkTx {
    pub(super) fn new(device: Arc<Device>, index: usize) -> Self {
        let queues = device.tx_locks.len();
        let holds = device.arena.as_ref().map(|_| Holds::new());
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
            bundles: OpenBundles::new(),
            version: 0,
            packets: 0,
            bytes: 0,
            staged_bytes: 0,
            dropped: 0,
            ecn: false,
            holds,
            tails: Vec::with_capacity(TAKE),
            stuck: 0,
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

    pub(super) fn stuck_flushes(&self) -> u64 {
        self.stuck
    }

    /// The header of datagrams to the peer, if its MAC address is known.
    #[inline(always)]
    fn header(&mut self, route: &UdpRoute) -> Option<Header> {
        let version = self.device.version.load(Ordering::Relaxed);
        if version != self.version {
            self.version = version;
            self.headers.clear();
            self.last = None;
        }
        let host = route.with_port(0);
        match &self.last {
            Some((last, header)) if *last == host => Some(*header),
            _ => {
                let header = *self.headers.get(&host)?;
                self.last = Some((host, header));
                Some(header)
            }
        }
    }

    /// Stages a packet whose message the device reads in place. False if it must be copied: it is
    /// short, the message is in other memory, or the peer's MAC address is not known.
    fn send_in_place(&mut self, route: &UdpRoute, packet: &TxPacket<'_>) -> bool {
        let ([first, second], trailer) = packet.pieces();
        let (words, rest) = first.split_at(HEADER_LEN);
        // One piece follows the packet's header: the data of a first packet, or those of a later one.
        let data = match (rest, second) {
            (data, []) | ([], data) => data,
            _ => return false,
        };
        let is_in_arena = |arena: &DpdkArena| arena.contains(data.as_ptr());
        if trailer.is_some() || !self.device.arena.as_ref().is_some_and(is_in_arena) {
            return false;
        }
        let Some(header) = self.header(route) else { return false };
        if self.tails.is_empty() && !self.take_tails() || self.staged == self.taken && !self.take()
        {
            return false;
        }
        let Some(holds) = &mut self.holds else { return false };
        let Some(hold) = holds.hold(|| packet.hold()) else { return false };
        let front = header.len() + HEADER_LEN;
        // SAFETY: as in `send`; a mbuf has room for the largest frame.
        let frame = unsafe { slice::from_raw_parts_mut(self.data[self.staged], front) };
        frame[header.len()..].copy_from_slice(words);
        if self.device.offload.is_some() {
            header.write_for_device(frame, data, self.udp_port, route.port());
        } else {
            header.write_in_front_of(frame, data, self.udp_port, route.port());
        }
        let (head, tail) = (self.mbufs[self.staged], self.tails.pop().unwrap_or(ptr::null_mut()));
        // SAFETY: two empty mbufs of our own: `tails` is not empty. The hold and the msgbuf stay until
        // the driver frees `tail`, and the data lie where the device can read.
        unsafe {
            dpdk_sys::erpc_chain_outside(
                head,
                front as u16,
                tail,
                data.as_ptr(),
                data.len() as u16,
                hold,
            );
        };
        self.stage((front + data.len()) as u16 | CHAINED, packet.len());
        true
    }

    #[cold]
    fn take_tails(&mut self) -> bool {
        let Some(pool) = &self.device.tails else { return false };
        let (mut mbufs, mut data) = ([ptr::null_mut(); TAKE], [ptr::null_mut(); TAKE]);
        // SAFETY: room for `TAKE` entries each, and the mempool lives as long as the device.
        let error = unsafe {
            dpdk_sys::erpc_take(pool.as_ptr(), mbufs.as_mut_ptr(), data.as_mut_ptr(), TAKE as u16)
        };
        if error == 0 {
            self.tails.extend(mbufs);
        }
        error == 0
    }

    /// Adds the mbuf at `staged` to those that are sent next.
    #[inline(always)]
    fn stage(&mut self, length: u16, datagram: usize) {
        self.lengths[self.staged] = length;
        self.staged += 1;
        self.staged_bytes += datagram as u64;
        if self.staged - self.sent >= MAX_BURST {
            self.ring();
        }
    }

    /// Adds a message to the frame that the last message joined. False if that is for another peer,
    /// or has no room.
    #[inline(always)]
    fn append(&mut self, route: &UdpRoute, header: HeaderWords, message: &[u8]) -> bool {
        let Some(open) = self.bundles.last(|to| to == route) else { return false };
        let Some(len) = bundles::joined(open.len, message.len()) else { return false };
        debug_assert!((self.sent..self.staged).contains(&open.at));
        let front = open.header.len();
        // SAFETY: the mbuf is staged and ours: `ring` takes all open frames out before mbufs leave or
        // move. It has room for `MAX_BUNDLE` bytes behind the headers, as each mbuf has, and its memory
        // is initialized, as in `send`.
        let frame = unsafe { slice::from_raw_parts_mut(self.data[open.at], front + len) };
        bundles::join(open.len, header, message, &mut frame[front..]);
        self.lengths[open.at] = (front + len) as u16;
        self.staged_bytes += (len - open.len) as u64;
        open.len = len;
        true
    }

    /// Puts a message into another frame than the last message. Opens one, unless the message is so
    /// long that few others would have room.
    #[inline(never)]
    fn bundle(&mut self, route: &UdpRoute, header: HeaderWords, message: &mut MsgBuf) {
        let data = message.as_slice();
        let has_one = self.bundles.find(|to| to == route).is_some();
        if has_one && self.append(route, header, data) {
            return;
        }
        // A peer whose address is not known yet gets no frame, and takes no other peer's place.
        if HEADER_LEN + data.len() > OPENS || self.header(route).is_none() {
            return self.push(route, message.single_packet(header));
        }
        if let Some((route, frame)) = self.bundles.make_room(has_one) {
            self.close(&route, &frame);
        }
        self.send(route, HEADER_LEN + data.len(), true, |out| bundles::write(header, data, out));
    }

    /// Writes the headers of an open frame.
    #[inline]
    fn close(&self, route: &UdpRoute, frame: &OpenFrame) {
        let &OpenFrame { ref header, at, len } = frame;
        debug_assert!((self.sent..self.staged).contains(&at));
        // SAFETY: as in `append`. `send` and `append` have filled `len` bytes behind the headers.
        let bytes = unsafe { slice::from_raw_parts_mut(self.data[at], header.len() + len) };
        self.complete(header, bytes, route);
    }

    /// Closes the open frames whose peers end them.
    #[inline]
    fn close_bundles(&mut self, ends: impl Fn(&UdpRoute) -> bool) {
        while let Some((route, frame)) = self.bundles.take_if(&ends) {
            self.close(&route, &frame);
        }
    }

    #[inline(always)]
    fn complete(&self, header: &Header, frame: &mut [u8], route: &UdpRoute) {
        if self.device.offload.is_some() {
            header.write_for_device(frame, &[], self.udp_port, route.port());
        } else {
            header.write(frame, self.udp_port, route.port());
        }
    }

    /// Stages a packet in a frame of its own, which messages may join if it `stays_open`.
    #[inline(always)]
    fn send(
        &mut self,
        route: &UdpRoute,
        len: usize,
        stays_open: bool,
        fill: impl FnOnce(&mut [u8]),
    ) {
        let Some(header) = self.header(route) else {
            return self.send_unresolved(route, len, fill);
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
        if stays_open {
            self.bundles.open(*route, OpenFrame { header, at: self.staged, len });
        } else {
            self.complete(&header, frame, route);
        }
        self.stage(total as u16, len);
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
        // SAFETY: both slices have room for `TAKE` entries, and the mempool lives as long as the
        // device.
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
        if count == 0 {
            return;
        }
        self.close_bundles(|_| true);
        if !self.device.is_running() {
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

    /// Waits until the device has read all held messages.
    #[cold]
    fn flush_held(&mut self) {
        let begun = clock::now();
        let held = |tx: &Self| tx.holds.as_ref().map_or(0, Holds::len);
        while held(self) > 0 && clock::now().nanos_since(begun) < FLUSH {
            self.ring();
            let lock = &self.device.tx_locks[usize::from(self.queue)];
            if self.device.is_running() && (!self.is_shared || lock.acquire()) {
                // SAFETY: the port is started, and this thread alone uses the queue.
                unsafe { dpdk_sys::erpc_tx_cleanup(self.device.port, self.queue) };
                if self.is_shared {
                    lock.release();
                }
            }
            self.reclaim();
        }
        self.stuck += u64::from(held(self) > 0);
    }

    /// Counts the bytes of the first `taken` staged packets.
    #[cold]
    fn count_some(&mut self, taken: usize) {
        let frames: u64 = self.lengths[self.sent..][..taken]
            .iter()
            .map(|length| u64::from(length & !CHAINED))
            .sum();
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
                    self.send(route, len, false, fill);
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
        // A control message must not overtake messages to the same peer.
        self.close_bundles(|to| to == route);
        self.send(route, bytes.len(), false, |out| out.copy_from_slice(bytes));
    }

    #[inline]
    fn push(&mut self, route: &UdpRoute, packet: TxPacket<'_>) {
        if packet.len() > COPY_LIMIT && self.holds.is_some() && self.send_in_place(route, &packet) {
            return;
        }
        self.send(route, packet.len(), false, |out| {
            packet.copy_to(out);
        });
    }

    #[inline]
    fn push_single(
        &mut self,
        route: &UdpRoute,
        header: HeaderWords,
        message: &mut MsgBuf,
        takes_bundles: bool,
    ) {
        if !takes_bundles || header.has_trailer() {
            return self.push(route, message.single_packet(header));
        }
        if !self.append(route, header, message.as_slice()) {
            self.bundle(route, header, message);
        }
    }

    /// Repeats a refused doorbell a bounded number of times, then leaves the packets to the next one,
    /// unless the device must read messages in place. It waits for that, but not longer than a few
    /// milliseconds: a device may be stuck. Then the messages stay held, and are reserved until the
    /// device has read them.
    fn flush(&mut self) {
        for _ in 0..ATTEMPTS {
            self.ring();
            if self.sent == self.staged {
                break;
            }
            std::hint::spin_loop();
        }
        self.reclaim();
        if self.holds.as_ref().is_some_and(|holds| !holds.is_empty()) {
            self.flush_held();
        }
    }

    #[inline]
    fn reclaim(&mut self) {
        if let Some(holds) = &mut self.holds {
            holds.reclaim();
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
        // SAFETY: as above. Bulk functions accept no mbufs too.
        unsafe { dpdk_sys::erpc_give_back(self.tails.as_mut_ptr(), self.tails.len() as u16) };
    }
}
