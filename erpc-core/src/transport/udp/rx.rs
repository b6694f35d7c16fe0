//! Receiving in bursts.
//!
//! Three ways lead to the kernel, and what is cheapest depends on how many packets are there:
//!
//! * One call for one datagram, without ancillary data. An empty poll costs the least this way.
//! * One call for many. With a single packet there it costs half as much again.
//! * Runs of packets from one peer, coalesced by the kernel (`UDP_GRO`) into one datagram that passes
//!   through its stack once. Ten times the rate under load; but their length comes as ancillary data,
//!   which makes every single packet dearer.
//!
//! Marks of congested switches (ECN) are ancillary data, too. An endpoint that asks for them has no use for
//! the cheapest way: a single packet then costs what one costs while the kernel coalesces.
//!
//! The queue watches its *runs*, the packets from one empty poll to the next, and expects the next run
//! to be like the last. Coalesced packets are handed out like any others, a burst at a time, without
//! asking the kernel again.

use std::sync::Arc;

use rustix::io::Errno;

use super::route::{Name, UdpRoute};
use super::socket::UdpSocket;
use super::stray::Member;
use super::sys::{Controls, Headers};
use super::{MAX_DATAGRAM, sys};
use crate::transport::{MAX_BURST, RxPacket, RxQueue};

/// The receiving half of a [`UdpTransport`](super::UdpTransport).
pub struct UdpRx {
    socket: Arc<UdpSocket>,
    /// `MAX_BURST` buffers of `stride` bytes. Fresh zeroed memory, so that pages which no datagram
    /// reached take no space.
    buffers: Box<[u8]>,
    stride: usize,
    max_datagram: usize,
    names: [Name; MAX_BURST],
    controls: [Controls; MAX_BURST],
    /// Bytes of `controls[_]` that the kernel may write; 0 if it has nothing to tell.
    control_len: usize,
    vectors: Vectors,
    headers: Headers,
    /// What the last system call delivered, and how far it was handed out.
    datagrams: [Datagram; MAX_BURST],
    /// Which of them came marked.
    marks: [bool; MAX_BURST],
    received: usize,
    next: usize,
    /// This burst's system call found less than it asked for.
    emptied: bool,
    /// The burst that is lent out.
    packets: [Packet; MAX_BURST],
    count: usize,
    /// In a group: the way to the other members.
    member: Option<Member>,
    /// The burst is of strays that other members have passed on.
    strays: bool,
    /// Datagrams and packets since the last empty poll.
    run: u32,
    run_packets: u32,
    /// The last run had several datagrams.
    expect_many: bool,
    /// The kernel coalesces.
    coalescing: bool,
    /// The kernel tells marks.
    ecn: bool,
    /// Runs of a single packet, one after the other.
    singles: u32,
    counters: RxCounters,
}

/// The mark of a congested switch (RFC 3168), in the low bits of the traffic class. Other values of the two
/// bits say whether the sender takes notice of marks.
const CE: u8 = 0b11;
/// A run of this many packets is worth coalescing.
const COALESCE_FROM: u32 = 4;
/// After so many runs of a single packet it no longer is.
const SINGLES: u32 = 64;

/// What was counted.
#[derive(Clone, Copy, Default)]
pub(super) struct RxCounters {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) truncated: u64,
    /// Strays that their member had no room for.
    pub(super) overflow: u64,
}

/// A datagram in its buffer, or a run of packets that the kernel coalesced.
#[derive(Clone, Copy, Default)]
struct Datagram {
    /// Bytes not yet handed out lie from `at` to `len`.
    at: u32,
    len: u32,
    /// Length of each packet but the last; `len` if there is only one.
    segment: u32,
}

/// A packet: `len` bytes at `at` of all buffers.
#[derive(Clone, Copy, Default)]
struct Packet {
    at: u32,
    len: u32,
    name: u32,
}

/// I/O vectors, one per header.
struct Vectors(Box<[libc::iovec]>);

// SAFETY: as for `Headers`: the pointers are written right before each call and never read between.
unsafe impl Send for Vectors {}

impl UdpRx {
    pub(super) fn new(socket: Arc<UdpSocket>, max_datagram: usize, member: Option<Member>) -> Self {
        // A coalesced run may have any length.
        let stride = if socket.offload() { MAX_DATAGRAM } else { max_datagram };
        // An odd number of cache lines: at powers of two, all buffers would compete for the same few
        // sets of every cache.
        let stride = stride.next_multiple_of(64) | 64;
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        Self {
            socket,
            buffers: vec![0; stride * MAX_BURST].into_boxed_slice(),
            stride,
            max_datagram,
            names: [Name::EMPTY; MAX_BURST],
            controls: [Controls::default(); MAX_BURST],
            control_len: 0,
            vectors: Vectors(vec![vector; MAX_BURST].into_boxed_slice()),
            headers: Headers::new(MAX_BURST),
            datagrams: [Datagram::default(); MAX_BURST],
            marks: [false; MAX_BURST],
            received: 0,
            next: 0,
            emptied: false,
            packets: [Packet::default(); MAX_BURST],
            count: 0,
            member,
            strays: false,
            run: 0,
            run_packets: 0,
            expect_many: false,
            coalescing: false,
            ecn: false,
            singles: 0,
            counters: RxCounters::default(),
        }
    }

    /// Whether packets are here that no burst has handed out yet.
    pub(super) fn has_pending(&self) -> bool {
        self.next < self.received || self.member.as_ref().is_some_and(Member::has_pending)
    }

    #[cfg(test)]
    pub(super) fn is_coalescing(&self) -> bool {
        self.coalescing
    }

    pub(super) fn counters(&self) -> RxCounters {
        self.counters
    }

    /// Makes the kernel tell marks. Those of packets that wait already are told, too.
    pub(super) fn enable_ecn(&mut self) -> Result<(), Errno> {
        self.socket.enable_ecn()?;
        self.ecn = true;
        self.expect_controls();
        Ok(())
    }

    /// Makes the kernel coalesce, or not, if it obeys.
    fn coalesce(&mut self, on: bool) {
        if self.socket.coalesce(on) {
            self.coalescing = on;
            self.expect_controls();
        }
    }

    fn expect_controls(&mut self) {
        self.control_len = Controls::bytes(usize::from(self.coalescing) + usize::from(self.ecn));
    }

    /// Receives one datagram, the cheapest way. Every error but "nothing there" is a report about some
    /// earlier packet of ours and passes with the call.
    #[inline]
    fn receive_one(&mut self) -> usize {
        if self.control_len > 0 {
            self.prepare(1);
            // SAFETY: `prepare` has pointed the first header to our buffers.
            return match unsafe { self.headers.receive_first(self.socket.fd()) } {
                Ok(len) => {
                    self.accept(0, len);
                    1
                }
                Err(_) => 0,
            };
        }
        match sys::receive_one(
            self.socket.fd(),
            &mut self.buffers[..self.stride],
            &mut self.names[0],
        ) {
            Ok(len) => {
                self.datagrams[0] = Datagram { at: 0, len: len as u32, segment: len as u32 };
                1
            }
            Err(_) => 0,
        }
    }

    /// Receives up to [`MAX_BURST`] datagrams.
    fn receive_many(&mut self) -> usize {
        self.prepare(MAX_BURST);
        // SAFETY: `prepare` has pointed all headers to our buffers.
        let received = unsafe { self.headers.receive(self.socket.fd(), MAX_BURST) }.unwrap_or(0);
        for index in 0..received {
            self.accept(index, self.headers.get(index).msg_len as usize);
        }
        received
    }

    /// Points the first `count` headers to where datagrams shall go.
    #[inline]
    fn prepare(&mut self, count: usize) {
        let control_len = self.control_len;
        let buffers = self.buffers.chunks_exact_mut(self.stride);
        let rest = self.names.iter_mut().zip(&mut self.controls).zip(&mut self.vectors.0);
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

    /// Notes that header `index` has received `len` bytes.
    #[inline]
    fn accept(&mut self, index: usize, len: usize) {
        let header = &self.headers.get(index).msg_hdr;
        let segment = match self.coalescing {
            true => self.controls[index].coalesced(header).unwrap_or(len),
            false => len,
        };
        if self.ecn {
            self.marks[index] = self.controls[index].traffic_class(header) & CE == CE;
        }
        // What the kernel cut off counts towards the length, so that it is seen to be too long.
        let cut = header.msg_flags & libc::MSG_TRUNC != 0;
        let len = if cut { self.stride + 1 } else { len };
        self.datagrams[index] = Datagram { at: 0, len: len as u32, segment: segment as u32 };
    }

    /// Lends out what other members have passed on.
    #[cold]
    fn hand_out_strays(&mut self) -> usize {
        let Some(member) = &mut self.member else { return 0 };
        self.count = member.burst();
        self.counters.packets += self.count as u64;
        self.counters.bytes += member.burst_bytes();
        self.strays = self.count > 0;
        self.count
    }

    /// An empty poll ends a run: decides how to go on.
    #[inline]
    fn end_run(&mut self) {
        self.expect_many = self.run > 1;
        self.singles = if self.run_packets > 1 { 0 } else { self.singles + 1 };
        if self.coalescing && self.singles >= SINGLES {
            self.stop_coalescing();
        }
        (self.run, self.run_packets) = (0, 0);
    }

    /// Stops coalescing, unless a run may have come meanwhile: the kernel tells lengths only while it
    /// coalesces. (A packet that another processor is just queuing can slip through. A run would then
    /// be taken for one long packet, which the protocol drops.)
    #[cold]
    fn stop_coalescing(&mut self) {
        self.singles = 0;
        self.coalesce(false);
        if !self.coalescing && !self.socket.is_empty() {
            self.coalesce(true);
        }
    }

    /// Passes a packet on if it is another member's.
    fn passed_on(&mut self, packet: Packet) -> bool {
        let bytes = &self.buffers[packet.at as usize..(packet.at + packet.len) as usize];
        let Some(member) = &self.member else { return false };
        let Some(to) = member.stray(bytes) else { return false };
        let name = packet.name as usize;
        if !member.pass_on(to, &self.names[name], self.marks[name], bytes) {
            self.counters.overflow += 1;
        }
        true
    }

    /// Fills the burst from what was received.
    #[inline]
    fn hand_out(&mut self) -> usize {
        let mut count = 0;
        while count < MAX_BURST && self.next < self.received {
            let datagram = &mut self.datagrams[self.next];
            let len = datagram.segment.min(datagram.len - datagram.at);
            let packet = Packet {
                at: (self.next * self.stride) as u32 + datagram.at,
                len,
                name: self.next as u32,
            };
            let cut = datagram.len as usize > self.stride;
            let coalesced = datagram.segment < datagram.len;
            datagram.at = if cut { datagram.len } else { datagram.at + len };
            if datagram.at == datagram.len {
                self.next += 1;
            }
            if cut || len as usize > self.max_datagram {
                self.counters.truncated += 1;
            } else if !(coalesced && self.passed_on(packet)) {
                self.packets[count] = packet;
                self.counters.bytes += u64::from(len);
                count += 1;
            }
        }
        self.counters.packets += count as u64;
        self.run_packets = self.run_packets.saturating_add(count as u32);
        self.count = count;
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
        let (asked, received) = if self.expect_many {
            (MAX_BURST, self.receive_many())
        } else {
            (1, self.receive_one())
        };
        self.emptied = received < asked;
        if received == 0 {
            if self.run > 0 {
                self.end_run();
            }
            self.count = 0;
            return 0;
        }
        self.run = self.run.saturating_add(received as u32);
        self.expect_many |= self.run > 1;
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
    fn packet(&self, index: usize) -> RxPacket<'_, UdpRoute> {
        if let (true, Some(member)) = (self.strays, &self.member) {
            return member.packet(index);
        }
        let packet = &self.packets[..self.count][index];
        let (at, len) = (packet.at as usize, packet.len as usize);
        RxPacket {
            route: self.names[packet.name as usize].route(),
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
