//! Sending in bursts.
//!
//! Packets of at most [`COPY_LIMIT`] bytes are copied one after the other into a staging area;
//! larger ones are held and sent in place. A flush makes one kernel message of each run of packets
//! of one length to one peer, if the kernel can split such a run (`UDP_SEGMENT`), and one of every
//! other packet.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::reports::Reports;
use super::route::{Name, UdpRoute};
use super::socket::UdpSocket;
use super::sys::{Control, Headers};
use super::{MAX_DATAGRAM, steer, sys};
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::transport::{MAX_BURST, MIN_DATAGRAM, NetworkError, TxPacket, TxQueue, Undelivered};
use crate::wire::checksum::TRAILER_LEN;

/// Longest packet that is copied, in bytes. Copying and holding cost the same at 4,000 bytes;
/// below that length, copying keeps a burst together in the cache.
pub(super) const COPY_LIMIT: usize = 2_048;
/// Size of the staging area in bytes: a whole burst fits.
const STAGING: usize = MAX_BURST * COPY_LIMIT;
/// How often one flush waits for room in the send buffer, and how long each time, at most. Packets
/// that still do not fit are dropped: the link is slower than the sender, which must learn this
/// through loss.
const STALLS: u32 = 4;
const STALL: Duration = Duration::from_micros(500);

/// How often, at most, a call that sends is repeated because it has returned the error of another
/// packet.
const REPEATS: u32 = 4;

// The kernel splits a message into at most 64 packets (`UDP_MAX_SEGMENTS`, 128 since Linux 6.9).
const _: () = assert!(MIN_DATAGRAM <= COPY_LIMIT && MAX_BURST <= 64);

/// The sending half of a [`UdpTransport`](super::UdpTransport).
pub struct UdpTx {
    socket: Arc<UdpSocket>,
    staging: Box<[u8]>,
    /// Bytes of `staging` in use.
    used: usize,
    staged: [Staged; MAX_BURST],
    count: usize,
    /// References to held msgbufs: their memory does not change until they are sent.
    held: Vec<MsgBuf>,
    batch: Batch,
    /// Whether the kernel splits runs. Cleared if the network card turns out not to support
    /// checksum offload.
    segment: bool,
    /// Where packets are reported that the system does not send.
    reports: Arc<Reports>,
    counters: TxCounters,
}

/// Counters since the queue was created.
#[derive(Clone, Copy, Default)]
pub(super) struct TxCounters {
    pub(super) packets: u64,
    pub(super) bytes: u64,
    pub(super) dropped: u64,
}

/// A packet in the staging area or in a held msgbuf.
#[derive(Clone, Copy)]
struct Staged {
    route: UdpRoute,
    name: Name,
    len: u32,
    /// The member that the packet names, if the peer is a group.
    member: Option<u8>,
    place: Place,
}

#[derive(Clone, Copy)]
enum Place {
    /// At this offset of the staging area.
    Copied(u32),
    /// In the held msgbufs: header and data; and the trailer, if there is one.
    Held(Piece, Piece, Option<[u8; TRAILER_LEN]>),
}

/// A range of memory in a held msgbuf.
#[derive(Clone, Copy)]
struct Piece {
    base: *const u8,
    len: u32,
}

// SAFETY: a piece lies in a msgbuf to which the queue holds a reference (`UdpTx::held`) as long as
// the piece is staged, and msgbufs can be read from any thread.
unsafe impl Send for Piece {}

impl Piece {
    fn new(bytes: &[u8]) -> Self {
        Self { base: bytes.as_ptr(), len: bytes.len() as u32 }
    }
}

/// The kernel's view of a flush. Pointers are written right before they are used.
struct Batch {
    headers: Headers,
    /// The I/O vectors of all messages, at most three per packet.
    vectors: Box<[libc::iovec]>,
    controls: [Control; MAX_BURST],
    /// Number of packets in each message.
    packets: [u8; MAX_BURST],
}

// SAFETY: as for `Headers`: the kernel reads the pointers only in `Headers::send`, and `build` sets
// them before each such call.
unsafe impl Send for Batch {}

impl UdpTx {
    pub(super) fn new(socket: Arc<UdpSocket>, reports: Arc<Reports>) -> Self {
        let vector = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 0 };
        let nowhere = UdpRoute::from(socket.address());
        let empty = Staged {
            route: nowhere,
            name: Name::EMPTY,
            len: 0,
            member: None,
            place: Place::Copied(0),
        };
        Self {
            segment: socket.offload(),
            socket,
            reports,
            staging: vec![0; STAGING].into_boxed_slice(),
            used: 0,
            staged: [empty; MAX_BURST],
            count: 0,
            held: Vec::with_capacity(MAX_BURST),
            batch: Batch {
                headers: Headers::new(MAX_BURST),
                vectors: vec![vector; 3 * MAX_BURST].into_boxed_slice(),
                controls: [Control::default(); MAX_BURST],
                packets: [0; MAX_BURST],
            },
            counters: TxCounters::default(),
        }
    }

    pub(super) fn counters(&self) -> TxCounters {
        self.counters
    }

    /// Stages a packet, or drops it if this socket's family cannot reach `route`.
    #[inline]
    fn stage(&mut self, route: &UdpRoute, len: usize, member: Option<u8>, place: Place) {
        let name = match self.count.checked_sub(1).map(|last| &self.staged[last]) {
            Some(last) if last.route == *route => last.name,
            _ => match Name::new(*route, self.socket.family()) {
                Some(name) => name,
                None => return self.unstage(route, place),
            },
        };
        self.staged[self.count] = Staged { route: *route, name, len: len as u32, member, place };
        self.count += 1;
        if self.count == MAX_BURST {
            self.flush();
        }
    }

    /// Drops the packet for which `place` was created.
    #[cold]
    fn unstage(&mut self, route: &UdpRoute, place: Place) {
        match place {
            Place::Copied(at) => {
                let error = NetworkError::NotSent(libc::EAFNOSUPPORT);
                let packet = &self.staging[at as usize..self.used];
                self.reports.add(Undelivered::new(*route, error, packet));
                self.used = at as usize;
            }
            Place::Held(..) => drop(self.held.pop()),
        }
        self.counters.dropped += 1;
    }

    /// Drops staged packet `at`, which the system does not send. Reports it, unless the system may
    /// send the next copy. A held packet is never reported. The protocol still learns that a peer
    /// cannot be reached, because handshake messages and pings are always copied.
    #[cold]
    fn refused(&mut self, at: usize, errno: Errno) {
        self.counters.dropped += 1;
        let Staged { route, len, place, .. } = self.staged[at];
        let is_passing = matches!(errno, Errno::NOBUFS | Errno::NOMEM | Errno::MSGSIZE | Errno::IO);
        let Place::Copied(start) = place else { return };
        if is_passing || is_answer(errno) {
            return;
        }
        let packet = &self.staging[start as usize..(start + len) as usize];
        let error = NetworkError::NotSent(errno.raw_os_error());
        self.reports.add(Undelivered::new(route, error, packet));
    }

    /// Reserves staging space for a copy of `len` bytes.
    #[inline]
    fn room(&mut self, len: usize) -> (Place, &mut [u8]) {
        let at = self.used;
        self.used += len;
        (Place::Copied(at as u32), &mut self.staging[at..at + len])
    }

    /// Sends the only staged packet.
    #[inline]
    fn send_single(&mut self) {
        let Staged { name, len, place, .. } = self.staged[0];
        let Place::Copied(at) = place else {
            return self.send_batch(false);
        };
        let bytes = &self.staging[at as usize..(at + len) as usize];
        match sys::send_one(self.socket.fd(), bytes, &name) {
            Ok(_) => self.sent(0, 1),
            Err(Errno::NOBUFS) => self.counters.dropped += 1,
            Err(errno) => self.send_again(errno),
        }
    }

    /// Repeats the call of [`Self::send_single`], which has failed.
    #[cold]
    fn send_again(&mut self, errno: Errno) {
        // If the error is that of an earlier packet, the call has cleared it. Only the flag leads
        // the loop to the error queue then.
        if !matches!(errno, Errno::INTR | Errno::AGAIN) {
            self.reports.raise();
        }
        self.send_batch(false);
    }

    /// Sends all staged packets; with `segment`, each run as a single message.
    fn send_batch(&mut self, segment: bool) {
        let mut messages = self.build(0, segment);
        let (mut at, mut packet, mut stalls, mut repeats) = (0, 0, 0, 0);
        while at < messages {
            // SAFETY: `build` has pointed the headers to the staging area, to `staged` and to held
            // msgbufs. None of these has been changed, moved or released since.
            match unsafe { self.batch.headers.send(self.socket.fd(), at, messages) } {
                Ok(sent) => {
                    let packets: usize =
                        self.batch.packets[at..at + sent].iter().map(|&n| usize::from(n)).sum();
                    self.sent(packet, packets);
                    (at, packet, repeats) = (at + sent, packet + packets, 0);
                    if at < messages {
                        // The call has ended early because of an error, and does not say which.
                        self.reports.raise();
                    }
                }
                Err(Errno::INTR) => {}
                // The error may be that of an earlier packet to any peer, which an ICMP message has
                // reported meanwhile. The call has cleared it and has sent nothing.
                Err(errno)
                    if repeats < REPEATS
                        && may_be_anothers(errno)
                        && !mutant!(OthersErrorTaken) =>
                {
                    repeats += 1;
                    self.reports.raise();
                }
                Err(Errno::AGAIN) if stalls < STALLS => {
                    stalls += 1;
                    self.await_room();
                }
                Err(Errno::AGAIN) => {
                    self.counters.dropped += (self.count - packet) as u64;
                    return;
                }
                // The queue of the network card is full.
                Err(Errno::NOBUFS) => {
                    let packets = usize::from(self.batch.packets[at]);
                    self.counters.dropped += packets as u64;
                    (at, packet, repeats) = (at + 1, packet + packets, 0);
                }
                // The error may concern the run, not its packets: send all remaining packets one by
                // one.
                Err(errno) if self.batch.packets[at] > 1 => {
                    // A network card without checksum offload gives this error for every run.
                    self.segment &= errno != Errno::IO;
                    (messages, at) = (self.build(packet, false), 0);
                }
                // The error concerns this packet: it has no route, a firewall refuses it, or it is too
                // long. The next packet may be sent.
                Err(errno) => {
                    self.refused(packet, errno);
                    (at, packet, repeats) = (at + 1, packet + 1, 0);
                }
            }
        }
    }

    /// Points one header per message to the packets from `first` on; returns the number of
    /// messages.
    #[inline]
    fn build(&mut self, first: usize, segment: bool) -> usize {
        let (staged, batch) = (&mut self.staged[first..self.count], &mut self.batch);
        let staging = self.staging.as_mut_ptr();
        let (mut messages, mut at, mut vectors) = (0, 0, 0);
        while at < staged.len() {
            let packets = if segment { run_length(&staged[at..]) } else { 1 };
            let first_vector = vectors;
            let mut end = None;
            for packet in &mut staged[at..at + packets] {
                match &mut packet.place {
                    // This packet follows the previous packet in the staging area, so the previous
                    // packet's vector is extended.
                    Place::Copied(offset) if end == Some(*offset) => {
                        batch.vectors[vectors - 1].iov_len += packet.len as usize;
                    }
                    Place::Copied(offset) => {
                        let base = staging.wrapping_add(*offset as usize);
                        batch.vectors[vectors] = vector(base, packet.len);
                        vectors += 1;
                    }
                    Place::Held(head, data, trailer) => {
                        for piece in [head, data].into_iter().filter(|piece| piece.len > 0) {
                            batch.vectors[vectors] = vector(piece.base.cast_mut(), piece.len);
                            vectors += 1;
                        }
                        if let Some(trailer) = trailer {
                            batch.vectors[vectors] =
                                vector(trailer.as_mut_ptr(), TRAILER_LEN as u32);
                            vectors += 1;
                        }
                    }
                }
                end = match packet.place {
                    Place::Copied(offset) => Some(offset + packet.len),
                    Place::Held(..) => None,
                };
            }
            let first = &mut staged[at];
            let header = batch.headers.get_mut(messages);
            header.msg_namelen = first.name.len();
            header.msg_name = first.name.as_mut_ptr().cast();
            header.msg_iov = batch.vectors[first_vector..].as_mut_ptr();
            header.msg_iovlen = (vectors - first_vector) as _;
            if packets > 1 {
                batch.controls[messages] = Control::segment(first.len as u16);
                header.msg_control = (&raw mut batch.controls[messages]).cast();
                header.msg_controllen = size_of::<Control>() as _;
            } else {
                header.msg_control = std::ptr::null_mut();
                header.msg_controllen = 0;
            }
            batch.packets[messages] = packets as u8;
            messages += 1;
            at += packets;
        }
        messages
    }

    /// Counts `packets` packets from `first` on as sent.
    #[inline]
    fn sent(&mut self, first: usize, packets: usize) {
        self.counters.packets += packets as u64;
        self.counters.bytes +=
            self.staged[first..first + packets].iter().map(|p| u64::from(p.len)).sum::<u64>();
    }

    /// Waits up to [`STALL`] for room in the send buffer. Ends early if the socket has an error.
    #[cold]
    fn await_room(&self) {
        let timeout = Timespec { tv_sec: 0, tv_nsec: i64::from(STALL.subsec_nanos()) as _ };
        let mut fds = [PollFd::from_borrowed_fd(self.socket.fd(), PollFlags::OUT)];
        let _ = poll(&mut fds, Some(&timeout));
    }
}

/// Whether an ICMP message may have caused this error of a call on the socket, for a packet that
/// was sent earlier, to any peer. The kernel also uses some of these numbers for the packet of the
/// call itself.
#[cold]
fn may_be_anothers(errno: Errno) -> bool {
    is_answer(errno)
        || matches!(
            errno,
            Errno::HOSTUNREACH
                | Errno::NETUNREACH
                | Errno::ACCESS
                | Errno::MSGSIZE
                | Errno::OPNOTSUPP
        )
}

/// Whether only an ICMP message can have caused this error.
fn is_answer(errno: Errno) -> bool {
    let raw = errno.raw_os_error();
    matches!(errno, Errno::CONNREFUSED | Errno::PROTO | Errno::NOPROTOOPT | Errno::HOSTDOWN)
        || raw == libc::ENONET
}

fn vector(base: *mut u8, len: u32) -> libc::iovec {
    libc::iovec { iov_base: base.cast(), iov_len: len as usize }
}

/// How many of the first packets of `staged` can form one message: packets to one member of one
/// peer, none empty, all of one length except the last, which may be shorter.
#[inline]
fn run_length(staged: &[Staged]) -> usize {
    let first = &staged[0];
    let (mut packets, mut bytes) = (1, first.len as usize);
    for next in &staged[1..] {
        let fits = (1..=first.len).contains(&next.len) && bytes + next.len as usize <= MAX_DATAGRAM;
        let is_same = next.member == first.member || mutant!(RunMixesMembers);
        if !fits || !is_same || next.route != first.route {
            break;
        }
        packets += 1;
        bytes += next.len as usize;
        if next.len < first.len && !mutant!(RunGoesOn) {
            break;
        }
    }
    packets
}

impl TxQueue for UdpTx {
    type Route = UdpRoute;

    #[inline]
    fn push_bytes(&mut self, route: &UdpRoute, bytes: &[u8]) {
        assert!(bytes.len() <= MIN_DATAGRAM, "push_bytes: {} bytes are too long", bytes.len());
        let (place, room) = self.room(bytes.len());
        room.copy_from_slice(bytes);
        self.stage(route, bytes.len(), steer::member_of(bytes), place);
    }

    #[inline]
    fn push(&mut self, route: &UdpRoute, packet: TxPacket<'_>) {
        let (len, ([head, data], trailer)) = (packet.len(), packet.pieces());
        let member = steer::member_of(head);
        if len <= COPY_LIMIT {
            let (place, room) = self.room(len);
            packet.copy_to(room);
            self.stage(route, len, member, place);
        } else {
            self.held.push(packet.hold());
            let place = Place::Held(Piece::new(head), Piece::new(data), trailer);
            self.stage(route, len, member, place);
        }
    }

    #[inline]
    fn flush(&mut self) {
        match self.count {
            0 => return,
            1 => self.send_single(),
            _ => self.send_batch(self.segment),
        }
        (self.count, self.used) = (0, 0);
        self.held.clear();
    }
}

impl std::fmt::Debug for UdpTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpTx").field("staged", &self.count).finish_non_exhaustive()
    }
}
