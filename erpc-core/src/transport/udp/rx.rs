//! Receiving in bursts.
//!
//! There are three ways to receive. Which one is cheapest depends on how many packets are queued:
//!
//! - One call for one datagram, without ancillary data. This is the cheapest empty poll.
//! - One call for many datagrams. With a single packet queued, this costs 50 % more than the first
//!   way.
//! - Runs of packets from one peer, coalesced by the kernel (`UDP_GRO`) into one datagram that
//!   passes through the network stack once. This gives ten times the rate under load, but the
//!   packet length arrives as ancillary data, which makes every single packet more expensive.
//!
//! Marks of congested switches (ECN) are ancillary data, too. An endpoint that enables them cannot
//! use the cheapest way: a single packet then always costs as much as with coalescing.
//!
//! The queue counts the datagrams and packets that arrive between two empty polls. It chooses the
//! way to receive by these counts. Coalesced packets are handed out like others, a burst at a time,
//! without further system calls.

use std::ops::Range;
use std::sync::Arc;

use rustix::io::Errno;

use super::reports::Reports;
use super::route::{Name, UdpRoute};
use super::socket::UdpSocket;
use super::stray::Member;
use super::sys::{Controls, Headers};
use super::{MAX_DATAGRAM, sys};
use crate::mutants::mutant;
use crate::transport::{MAX_BURST, RxPacket, RxQueue};
use crate::wire::bundle;

/// The receiving half of a [`UdpTransport`](super::UdpTransport).
pub struct UdpRx {
    socket: Arc<UdpSocket>,
    /// `DATAGRAMS` buffers of `stride` bytes. Fresh zeroed memory, so that pages which no datagram
    /// has reached use no memory.
    buffers: Box<[u8]>,
    stride: usize,
    max_datagram: usize,
    names: Box<[Name; DATAGRAMS]>,
    controls: Box<[Controls; DATAGRAMS]>,
    /// Bytes of `controls[_]` that the kernel may write; 0 if no ancillary data is enabled.
    control_len: usize,
    vectors: Vectors,
    headers: Headers,
    /// Number of headers, from the first, that the kernel has changed since [`Self::prepare`] set
    /// them. All other headers are ready for the next call.
    used: usize,
    /// The senders of `datagrams`.
    routes: [UdpRoute; DATAGRAMS],
    /// Datagrams of the last system call, and how far each was handed out.
    datagrams: [Datagram; DATAGRAMS],
    /// Which of `datagrams` have the mark of a congested switch.
    marks: [bool; DATAGRAMS],
    /// Number of `datagrams`, and index of the first one that has packets left to hand out.
    received: usize,
    next: usize,
    /// Whether this burst's system call returned fewer datagrams than requested.
    emptied: bool,
    /// Whether this burst's system call failed because of a packet sent earlier.
    failed: bool,
    /// Their flag is raised when a receive call fails.
    reports: Arc<Reports>,
    /// The burst that is lent out.
    packets: [Packet; MAX_BURST],
    count: usize,
    /// Set in a group: access to the other members.
    member: Option<Member>,
    /// Whether the burst consists of strays from other members.
    strays: bool,
    /// Number of datagrams since the last empty poll, and of packets handed out from them. A bundle
    /// counts as one packet.
    run: u32,
    run_packets: u32,
    /// Whether to request many datagrams: several have arrived since the last empty poll, or in the
    /// latest period between two empty polls in which any arrived.
    expect_many: bool,
    /// Number of datagrams to request then.
    many: usize,
    /// Whether the kernel coalesces.
    coalescing: bool,
    /// Whether the kernel reports marks.
    ecn: bool,
    /// How often in succession only a single packet arrived between two empty polls.
    singles: u32,
    counters: RxCounters,
}

/// The mark of a congested switch (RFC 3168), in the low two bits of the traffic class. Other
/// values say whether the sender's transport is ECN-capable.
const CE: u8 = 0b11;
/// Most datagrams that one call receives. Each has a buffer of its own.
const DATAGRAMS: usize = 32;
/// Most long datagrams that one call receives: datagrams of more than `LONG` bytes. The bytes of
/// more than these would leave the processor's second-level cache before they are handed out, and
/// for so many bytes one more call costs little.
const LONG_DATAGRAMS: usize = 8;
const LONG: usize = 16_384;
/// Coalescing starts when this many packets have arrived since the last empty poll.
const COALESCE_FROM: u32 = 4;
/// Coalescing stops when only a single packet arrived between two empty polls, this many times in
/// succession.
const SINGLES: u32 = 64;

/// Counters since the queue was created.
#[derive(Clone, Copy, Default)]
pub(super) struct RxCounters {
    /// Those that peers have sent. A bundle is one.
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) truncated: u64,
    /// Strays lost because their member's inbox was full.
    pub(super) overflow: u64,
}

/// A datagram in its buffer: one as a peer has sent it, or a run that the kernel coalesced.
#[derive(Clone, Copy, Default)]
struct Datagram {
    /// The bytes from `at` to `len` are not yet handed out.
    at: u32,
    len: u32,
    /// Length in bytes of each datagram of the run, except the last; `len` if there is only one.
    segment: u32,
    /// Where the datagram of the run ends in which `at` lies.
    end: u32,
}

impl Datagram {
    fn new(len: usize, segment: usize) -> Self {
        Self { at: 0, len: len as u32, segment: segment as u32, end: segment.min(len) as u32 }
    }
}

/// A packet: `len` bytes at offset `at` in `buffers`. `name` is its index in `names` and `marks`.
#[derive(Clone, Copy, Default)]
struct Packet {
    at: u32,
    len: u32,
    name: u32,
}

/// I/O vectors, one per header.
struct Vectors(Box<[libc::iovec]>);

// SAFETY: the pointers are to `UdpRx::buffers`, which belong to the same queue and do not move with
// it. Only the kernel reads the pointers, in a receive call.
unsafe impl Send for Vectors {}

impl UdpRx {
    pub(super) fn new(
        socket: Arc<UdpSocket>,
        max_datagram: usize,
        member: Option<Member>,
        reports: Arc<Reports>,
    ) -> Self {
        // A coalesced run may be as long as any datagram.
        let stride = if socket.offload() { MAX_DATAGRAM } else { max_datagram };
        // An odd number of cache lines: with powers of two, all buffers would compete for the same
        // few sets of every cache.
        let stride = stride.next_multiple_of(64) | 64;
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let nowhere = UdpRoute::from(socket.address());
        Self {
            socket,
            buffers: vec![0; stride * DATAGRAMS].into_boxed_slice(),
            stride,
            max_datagram,
            names: Box::new([Name::EMPTY; DATAGRAMS]),
            controls: Box::new([Controls::default(); DATAGRAMS]),
            control_len: 0,
            vectors: Vectors(vec![vector; DATAGRAMS].into_boxed_slice()),
            headers: Headers::new(DATAGRAMS),
            used: DATAGRAMS,
            routes: [nowhere; DATAGRAMS],
            datagrams: [Datagram::default(); DATAGRAMS],
            marks: [false; DATAGRAMS],
            received: 0,
            next: 0,
            emptied: false,
            failed: false,
            reports,
            packets: [Packet::default(); MAX_BURST],
            count: 0,
            member,
            strays: false,
            run: 0,
            run_packets: 0,
            expect_many: false,
            many: DATAGRAMS,
            coalescing: false,
            ecn: false,
            singles: 0,
            counters: RxCounters::default(),
        }
    }

    /// Whether there are received packets that no burst has handed out.
    pub(super) fn has_pending(&self) -> bool {
        self.next < self.received && !mutant!(PendingForgotten)
            || self.member.as_ref().is_some_and(Member::has_pending)
    }

    #[cfg(test)]
    pub(super) fn is_coalescing(&self) -> bool {
        self.coalescing
    }

    /// Number of datagrams of the last call that received any.
    #[cfg(test)]
    pub(super) fn datagrams(&self) -> usize {
        self.received
    }

    /// Strays count at the member that they name.
    pub(super) fn counters(&self) -> RxCounters {
        let strays = self.member.as_ref().map_or((0, 0), Member::taken);
        let RxCounters { packets, bytes, .. } = self.counters;
        RxCounters { packets: packets + strays.0, bytes: bytes + strays.1, ..self.counters }
    }

    /// Makes the kernel report marks, also those of packets that are already queued.
    pub(super) fn enable_ecn(&mut self) -> Result<(), Errno> {
        self.socket.enable_ecn()?;
        self.ecn = true;
        self.expect_controls();
        Ok(())
    }

    /// Makes the kernel coalesce, or stop. Has no effect if the kernel refuses.
    fn coalesce(&mut self, on: bool) {
        if self.socket.coalesce(on) {
            self.coalescing = on;
            self.expect_controls();
        }
    }

    fn expect_controls(&mut self) {
        self.control_len = Controls::bytes(usize::from(self.coalescing) + usize::from(self.ecn));
        self.used = DATAGRAMS;
    }

    /// Handles the failure of a receive call. Every error except "nothing queued" reports an
    /// earlier packet sent by this socket, and is cleared by the call. Datagrams may be queued all
    /// the same.
    #[cold]
    fn fail(&mut self) -> usize {
        self.failed = true;
        self.reports.raise();
        0
    }

    /// Repeats a receive call that has taken the error of an earlier packet: datagrams may be
    /// queued, and would wait for the next turn. Repeats it once only, so that a flood of ICMP
    /// messages does not hold the loop.
    #[cold]
    fn receive_again(&mut self, asked: usize) -> usize {
        self.failed = false;
        if asked > 1 { self.receive_many() } else { self.receive_one() }
    }

    /// Receives one datagram in the cheapest way.
    #[inline]
    fn receive_one(&mut self) -> usize {
        if self.control_len > 0 {
            self.prepare();
            // SAFETY: `prepare` has pointed all headers to `buffers`, `names` and `controls`, with
            // their lengths. The queue owns these as boxes, which do not move with it.
            return match unsafe { self.headers.receive_first(self.socket.fd()) } {
                Ok(len) => {
                    self.used = 1;
                    self.accept(0, len);
                    1
                }
                Err(Errno::AGAIN) => 0,
                Err(_) => self.fail(),
            };
        }
        match sys::receive_one(
            self.socket.fd(),
            &mut self.buffers[..self.stride],
            &mut self.names[0],
        ) {
            Ok(len) => {
                self.datagrams[0] = Datagram::new(len, len);
                self.routes[0] = self.names[0].route();
                1
            }
            Err(Errno::AGAIN) => 0,
            Err(_) => self.fail(),
        }
    }

    /// Receives up to `many` datagrams.
    fn receive_many(&mut self) -> usize {
        self.prepare();
        // SAFETY: as in `receive_one`.
        let received = match unsafe { self.headers.receive(self.socket.fd(), self.many) } {
            Ok(received) => received,
            Err(Errno::AGAIN) => 0,
            Err(_) => self.fail(),
        };
        self.used = received;
        let mut bytes = 0;
        for index in 0..received {
            let len = self.headers.get(index).msg_len as usize;
            self.accept(index, len);
            bytes += len;
        }
        if received > 0 {
            self.many = if bytes > received * LONG { LONG_DATAGRAMS } else { DATAGRAMS };
        }
        received
    }

    /// Points the headers that the kernel has changed to their buffers, names and controls. A call
    /// that receives nothing changes none.
    #[inline]
    fn prepare(&mut self) {
        let count = std::mem::take(&mut self.used);
        let control_len = self.control_len;
        let buffers = self.buffers.chunks_exact_mut(self.stride);
        let rest = self.names.iter_mut().zip(&mut *self.controls).zip(&mut self.vectors.0);
        for (index, (buffer, ((name, control), vector))) in
            buffers.zip(rest).take(count).enumerate()
        {
            *vector = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
            let header = self.headers.get_mut(index);
            header.msg_name = name.as_mut_ptr().cast();
            header.msg_namelen = Name::CAPACITY;
            header.msg_iov = vector;
            header.msg_iovlen = 1;
            if control_len > 0 {
                header.msg_control = (&raw mut *control).cast();
                header.msg_controllen = control_len as _;
            } else {
                header.msg_control = std::ptr::null_mut();
                header.msg_controllen = 0;
            }
        }
    }

    /// Records that header `index` has received `len` bytes.
    #[inline]
    fn accept(&mut self, index: usize, len: usize) {
        self.routes[index] = self.names[index].route();
        let header = &self.headers.get(index).msg_hdr;
        let segment = match self.coalescing {
            true => self.controls[index].coalesced(header).filter(|&len| len > 0).unwrap_or(len),
            false => len,
        };
        if self.ecn {
            self.marks[index] = self.controls[index].traffic_class(header) & CE == CE;
        }
        // A truncated datagram gets a length above `stride`, so that `hand_out` drops it.
        let cut = header.msg_flags & libc::MSG_TRUNC != 0 && !mutant!(CutTaken);
        let len = if cut { self.stride + 1 } else { len };
        self.datagrams[index] = Datagram::new(len, segment);
    }

    /// Lends out packets that other members have passed on.
    #[cold]
    fn hand_out_strays(&mut self) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        self.count = member.burst();
        self.strays = self.count > 0;
        self.count
    }

    /// Called at an empty poll, if datagrams arrived since the previous one: chooses how to receive
    /// from now on.
    #[inline]
    fn end_run(&mut self) {
        self.expect_many = self.run > 1;
        self.singles = if self.run_packets > 1 { 0 } else { self.singles + 1 };
        if self.coalescing && self.singles >= SINGLES {
            self.stop_coalescing();
        }
        (self.run, self.run_packets) = (0, 0);
    }

    /// Stops coalescing. If packets are queued at that moment, starts again, because they may be
    /// coalesced, and the kernel reports the lengths of their packets only while it coalesces. (A
    /// coalesced run that another processor is just queuing can slip through. It is treated as one
    /// long packet, which this queue or the protocol drops.)
    #[cold]
    fn stop_coalescing(&mut self) {
        self.singles = 0;
        self.coalesce(false);
        if !self.coalescing && !self.socket.is_empty() {
            self.coalesce(true);
        }
    }

    /// Returns whether another member must receive a datagram, which lies at `range` in the
    /// buffers. If so, passes it on. If that member's inbox is full, the datagram is lost and
    /// counted as overflow.
    fn passed_on(&mut self, range: Range<usize>, name: usize) -> bool {
        let Some(member) = &self.member else { return false };
        let datagram = &self.buffers[range];
        let Some(to) = member.stray(datagram) else { return false };
        if !member.pass_on(to, &self.names[name], self.marks[name], datagram) {
            self.counters.overflow += 1;
        }
        true
    }

    /// Fills the burst from the received datagrams.
    #[inline]
    fn hand_out(&mut self) -> usize {
        let (mut count, before) = (0, self.counters.packets);
        while count < MAX_BURST && self.next < self.received {
            count = self.hand_out_datagram(count);
        }
        let packets = (self.counters.packets - before) as u32;
        self.run_packets = self.run_packets.saturating_add(packets);
        self.count = count;
        count
    }

    /// Adds packets of the next datagram to the `count` packets of the burst. Returns their new
    /// number.
    #[inline]
    fn hand_out_datagram(&mut self, mut count: usize) -> usize {
        let name = self.next;
        let Datagram { mut at, len, segment, mut end } = self.datagrams[name];
        let start = name * self.stride;
        let checks_strays = segment < len && self.member.is_some();
        let is_long = segment as usize > self.max_datagram;
        if len as usize > self.stride {
            self.counters.truncated += 1;
            self.next += 1;
            return count;
        }
        // A datagram without a byte is a packet too.
        loop {
            let range = start + at as usize..start + end as usize;
            if is_long && range.len() > self.max_datagram {
                self.counters.truncated += 1;
                at = end;
            } else if checks_strays
                && at.is_multiple_of(segment)
                && self.passed_on(range.clone(), name)
            {
                at = end;
            } else {
                let mut rest = &self.buffers[range];
                let first = at;
                loop {
                    let (len, others) = bundle::split_first(rest);
                    let place = start as u32 + end - rest.len() as u32;
                    self.packets[count] = Packet { at: place, len: len as u32, name: name as u32 };
                    (rest, count) = (others, count + 1);
                    if rest.is_empty() || count == MAX_BURST {
                        break;
                    }
                }
                at = end - rest.len() as u32;
                self.counters.bytes += u64::from(at - first);
                self.counters.packets += u64::from(at == end);
            }
            if at == end {
                end = len.min(end + segment);
            }
            if at == len || count == MAX_BURST {
                break;
            }
        }
        self.datagrams[name].at = at;
        self.datagrams[name].end = end;
        self.next += usize::from(at == len);
        count
    }
}

impl RxQueue for UdpRx {
    type Route = UdpRoute;

    const IS_SYSTEM_CALL: bool = true;

    #[inline]
    fn burst(&mut self) -> usize {
        self.strays = false;
        self.emptied = false;
        if self.member.as_ref().is_some_and(Member::has_pending) && self.hand_out_strays() > 0 {
            return self.count;
        }
        if self.next < self.received {
            return self.hand_out();
        }
        let (asked, mut received) = if self.expect_many {
            (self.many, self.receive_many())
        } else {
            (1, self.receive_one())
        };
        if received == 0 && self.failed {
            received = self.receive_again(asked);
        }
        self.emptied = received < asked;
        if received == 0 {
            if std::mem::take(&mut self.failed) {
                self.emptied = false;
            } else if self.run_packets > 0 {
                self.end_run();
            }
            self.count = 0;
            return 0;
        }
        if asked > 1 && received == 1 && self.coalescing {
            // A run of packets is one datagram. The cheaper call receives it as well.
            (self.run, self.expect_many) = (0, false);
        } else {
            self.run = self.run.saturating_add(received as u32);
            self.expect_many |= self.run > 1;
        }
        (self.received, self.next) = (received, 0);
        let count = self.hand_out();
        if !self.coalescing && self.run_packets >= COALESCE_FROM && self.socket.offload() {
            self.coalesce(true);
        }
        count
    }

    #[inline]
    fn is_drained(&self) -> bool {
        self.emptied && self.next == self.received
    }

    #[inline]
    fn has_more(&self) -> bool {
        self.next < self.received
    }

    #[inline(always)]
    fn packet(&self, index: usize) -> RxPacket<'_, UdpRoute> {
        if let (true, Some(member)) = (self.strays, &self.member) {
            return member.packet(index);
        }
        let packet = &self.packets[..self.count][index];
        let (at, len) = (packet.at as usize, packet.len as usize);
        RxPacket {
            route: self.routes[packet.name as usize],
            bytes: &self.buffers[at..at + len],
            marked: self.marks[packet.name as usize],
        }
    }
}

impl std::fmt::Debug for UdpRx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpRx").field("socket", &self.socket.address()).finish_non_exhaustive()
    }
}
