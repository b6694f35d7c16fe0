//! Sending in bursts.
//!
//! Packets of at most [`COPY_LIMIT`] bytes are copied one after the other into a staging area;
//! larger ones are held and sent in place. Packets of one length to one peer form a [`Run`], if the
//! kernel can split such a run (`UDP_SEGMENT`). A flush makes one kernel message of each run. A
//! call costs as much for a long run as for a short one, so the queue collects packets until a run
//! is full or the loop rings the doorbell.
//!
//! Short messages to a peer that takes [bundles](crate::wire::bundle) share a datagram. It is open
//! until a short message has no room in it, another peer needs its place, a control message to its
//! peer follows, or the loop rings the doorbell. So most messages
//! of a busy endpoint take a short way: a comparison with the message before, and a copy. A bundle
//! that is closed is staged as one packet.
//!
//! Whole messages and bundles of similar lengths form a run, too:
//! [zeros](crate::wire::PADDING) follow the shorter ones. That costs less than another message of
//! the kernel.

use std::sync::Arc;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;

use super::bundle::{Destination, OpenBundle};
use super::pieces::Pieces;
use super::reports::Reports;
use super::route::{Name, UdpRoute};
use super::run::{PacketShape, Run};
use super::socket::UdpSocket;
use super::sys::{Control, Headers};
use super::{MAX_DATAGRAM, steer, sys};
use crate::buf::MsgBuf;
use crate::mutants::mutant;
use crate::transport::bundles::{BUNDLES, OPENS, OpenBundles};
use crate::transport::{Link, MIN_DATAGRAM, NetworkError, TxPacket, TxQueue, Undelivered};
use crate::wire::bundle::MAX_BUNDLE;
use crate::wire::checksum::TRAILER_LEN;
use crate::wire::{HEADER_LEN, HeaderWords};

/// Longest packet that is copied, in bytes. Copying and holding cost the same at 4,000 bytes;
/// below that length, copying keeps a burst together in the cache.
pub(super) const COPY_LIMIT: usize = 2_048;
/// Size of the staging area in bytes.
const STAGING: usize = 64 * COPY_LIMIT;
/// Most packets in a run: the kernel refuses to split a message into more (`UDP_MAX_SEGMENTS`).
const RUN: usize = 128;
/// The same before Linux 6.9.
const OLD_RUN: usize = 64;
/// Most packets that are staged, with those that the open bundles become.
const PACKETS: usize = 2 * RUN + BUNDLES;
/// Most runs that are staged, likewise.
pub(super) const RUNS: usize = 64 + BUNDLES;
/// Most pieces of memory of a packet: header, data, and trailer or padding.
const PIECES: usize = 3;

/// The slowest link on which packets are padded, in bytes per second: 10 Gbit/s. On slower ones, zeros
/// cost more than the messages of the kernel that they save.
const PADDED_RATE: u64 = 1_250_000_000;

/// How often one flush waits for room in the send buffer, and how long each time, at most. Packets
/// that still do not fit are dropped: the link is slower than the sender, which must learn this
/// through loss.
const STALLS: u32 = 4;
const STALL: Duration = Duration::from_micros(500);

/// How often, at most, a call that sends is repeated because it has returned the error of another
/// packet.
const REPEATS: u32 = 4;

// Linux reads at most 1,024 pieces of memory of a message (`UIO_MAXIOV`). A staged packet fits
// the staging area.
const _: () = assert!(RUN * PIECES <= 1_024 && MIN_DATAGRAM <= COPY_LIMIT);

/// The sending half of a [`UdpTransport`](super::UdpTransport).
pub struct UdpTx {
    socket: Arc<UdpSocket>,
    staging: Box<[u8]>,
    /// Bytes of `staging` in use.
    used: usize,
    /// The first `open` of these are staged. They are sent in this order.
    runs: Box<[Run; RUNS]>,
    open: usize,
    /// The run that the last packet joined.
    last: usize,
    /// Number of staged packets.
    packets: usize,
    /// Bundles that are not staged yet, because more messages may join them.
    bundles: OpenBundles<Destination, OpenBundle>,
    pieces: Pieces,
    /// References to held msgbufs: their memory does not change until they are sent.
    held: Vec<MsgBuf>,
    headers: Headers,
    controls: Box<[Control; RUNS]>,
    /// Most packets in a run: [`OLD_RUN`] after the kernel has refused more, 1 if the kernel does
    /// not split runs, or if the network card turned out not to support checksum offload.
    run: usize,
    /// Whether packets may be padded. False once a path has a slow link.
    pads: bool,
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

impl UdpTx {
    pub(super) fn new(socket: Arc<UdpSocket>, reports: Arc<Reports>) -> Self {
        let nothing = PacketShape::in_order(None, 0);
        let empty = Run::of(UdpRoute::from(socket.address()), Name::EMPTY, nothing);
        Self {
            run: if socket.offload() { RUN } else { 1 },
            socket,
            reports,
            pads: true,
            staging: vec![0; STAGING].into_boxed_slice(),
            used: 0,
            runs: Box::new([empty; RUNS]),
            open: 0,
            last: 0,
            packets: 0,
            bundles: OpenBundles::new(),
            pieces: Pieces::with_capacity(PACKETS * PIECES),
            held: Vec::with_capacity(PACKETS),
            headers: Headers::new(RUNS),
            controls: Box::new([Control::default(); RUNS]),
            counters: TxCounters::default(),
        }
    }

    /// Sends the staged packets as if the system had refused their runs.
    #[cfg(test)]
    pub(super) fn send_all_apart(&mut self) {
        self.close_bundles(|_| !mutant!(BundleForgotten));
        self.build();
        for run in 0..self.open {
            assert!(self.send_apart(run, &mut Patience::default()));
        }
        self.clear();
    }

    #[cfg(test)]
    pub(super) fn set_run(&mut self, run: usize) {
        self.run = run;
    }

    #[cfg(test)]
    pub(super) fn run(&self) -> usize {
        self.run
    }

    /// Adapts to the link of a path over which this queue will send.
    pub(super) fn learn(&mut self, link: Link) {
        if link.rate().is_some_and(|rate| rate < PADDED_RATE) {
            self.pads = false;
        }
    }

    pub(super) fn counters(&self) -> TxCounters {
        self.counters
    }

    /// The run that a packet joins: the newest one if that admits the packet. A packet of whole
    /// messages may also join an older run, before packets that were staged earlier: packets of
    /// different messages may arrive in any order. If no run admits the packet as it is, it may be
    /// padded. Otherwise it begins a new run. `None` if this socket's family cannot reach `route`.
    #[inline]
    fn join(&mut self, route: &UdpRoute, shape: PacketShape) -> Option<usize> {
        let most = self.run;
        let admits = |run: &Run| {
            (run.member == shape.member || mutant!(RunMixesMembers))
                && run.admits(shape, most)
                && run.route == *route
        };
        let is_newest = self.last == self.open.wrapping_sub(1);
        if self.open > 0 && (shape.may_overtake || is_newest) && admits(&self.runs[self.last]) {
            return Some(self.last);
        }
        self.join_another(route, shape)
    }

    fn join_another(&mut self, route: &UdpRoute, shape: PacketShape) -> Option<usize> {
        let most = self.run;
        let newest = self.open.saturating_sub(1);
        let is_free = shape.may_overtake || mutant!(LongMessageMixed);
        let candidates = if is_free && most > 1 { 0..self.open } else { newest..self.open };
        let mut padded = None;
        for at in candidates.rev() {
            let run = &self.runs[at];
            let is_same = run.member == shape.member && run.route == *route;
            if is_same && run.admits(shape, most) {
                self.pieces.is_mixed |= at != newest;
                self.last = at;
                return Some(at);
            }
            if padded.is_none() && (is_same || mutant!(PaddedRunMixesMembers)) {
                padded = run.padded_with(shape, most).map(|lengths| (at, lengths));
            }
        }
        if let Some((at, lengths)) = padded {
            self.runs[at].pad(lengths);
            self.pieces.is_mixed = true;
            self.last = at;
            return Some(at);
        }
        let known = self.runs[..self.open].last().filter(|run| run.route == *route);
        let name = match known {
            Some(run) => run.name,
            None => Name::new(*route, self.socket.family())?,
        };
        self.runs[self.open] = Run::of(*route, name, shape);
        self.last = self.open;
        self.open += 1;
        Some(self.last)
    }

    /// Counts a packet that has joined run `at`.
    #[inline]
    fn joined(&mut self, at: usize, len: usize) {
        let run = &mut self.runs[at];
        run.packets += 1;
        run.bytes += len as u32;
        self.packets += 1;
    }

    /// Sends all packets if run `at` is full, or if the queue has room only for the open bundles.
    #[inline]
    fn flush_if_full(&mut self, at: usize) {
        let run = &self.runs[at];
        let is_full = run.packets > 1
            && (run.packets as usize == self.run
                || run.len() + run.segment as usize > MAX_DATAGRAM);
        if is_full || self.open + BUNDLES >= RUNS || self.packets + BUNDLES >= PACKETS {
            self.flush();
        }
    }

    /// Puts a message into another bundle than the last message. Opens one, unless the message is so
    /// long that few others would have room.
    #[inline(never)]
    fn bundle(&mut self, route: &UdpRoute, header: HeaderWords, message: &mut MsgBuf) {
        let data = message.as_slice();
        let own = self.bundles.find(|to| to.gets(route, header));
        let has_one = own.is_some();
        if let Some(bundle) = own
            && bundle.append(header, data, &mut self.staging)
        {
            return;
        }
        if HEADER_LEN + data.len() > OPENS {
            return self.push(route, message.single_packet(header));
        }
        if let Some((to, bundle)) = self.bundles.make_room(has_one)
            && let Some(run) = self.stage_bundle(&to, &bundle, false)
        {
            self.flush_if_full(run);
        }
        self.make_room(MAX_BUNDLE);
        let bundle = OpenBundle::new(header, data, &mut self.staging, self.used);
        self.bundles.open(Destination::of(route, header), bundle);
        self.used += MAX_BUNDLE;
    }

    /// Stages a bundle. Returns its run. `None` if this socket's family cannot reach the peer.
    /// `is_last`: no other bundle for this peer may follow soon, so this one may end a run.
    fn stage_bundle(
        &mut self,
        to: &Destination,
        bundle: &OpenBundle,
        is_last: bool,
    ) -> Option<usize> {
        let &OpenBundle { at, len, messages } = bundle;
        // The rest of its room, if nothing lies behind.
        if self.used == at + MAX_BUNDLE {
            self.used = at + len;
        }
        let shape = PacketShape {
            member: Some(to.member),
            len,
            may_overtake: true,
            may_end_run: messages > 1 && (is_last || !self.pads),
            may_be_padded: self.pads,
        };
        self.stage_written(&to.route, at, shape)
    }

    /// Stages the open bundles whose destinations end them.
    #[inline]
    fn close_bundles(&mut self, ends: impl Fn(&Destination) -> bool) {
        while let Some((to, bundle)) = self.bundles.take_if(&ends) {
            self.stage_bundle(&to, &bundle, true);
        }
    }

    /// Reports a packet that this socket's family cannot send. `bytes`: a copied packet.
    #[cold]
    fn unreachable(&mut self, route: &UdpRoute, bytes: Option<&[u8]>) {
        if let Some(bytes) = bytes {
            let error = NetworkError::NotSent(libc::EAFNOSUPPORT);
            self.reports.add(Undelivered::new(*route, error, bytes));
        }
        self.counters.dropped += 1;
    }

    /// Makes room for `len` bytes in the staging area.
    #[inline]
    fn make_room(&mut self, len: usize) {
        if STAGING - self.used < len {
            self.flush();
        }
    }

    /// Writes a packet with `write`, and stages it.
    #[inline]
    fn stage_copy(&mut self, route: &UdpRoute, shape: PacketShape, write: impl FnOnce(&mut [u8])) {
        self.make_room(shape.len);
        let at = self.used;
        write(&mut self.staging[at..][..shape.len]);
        self.used += shape.len;
        if let Some(run) = self.stage_written(route, at, shape) {
            self.flush_if_full(run);
        }
    }

    /// Stages the packet that lies at offset `at` in the staging area. Returns its run. `None` if this
    /// socket's family cannot reach `route`.
    #[inline]
    fn stage_written(&mut self, route: &UdpRoute, at: usize, shape: PacketShape) -> Option<usize> {
        let run = self.join(route, shape);
        let bytes = &self.staging[at..at + shape.len];
        match run {
            Some(run) => {
                self.pieces.add(run, bytes, shape.len, &mut self.runs);
                self.joined(run, shape.len);
            }
            None => {
                let copied = bytes.to_vec();
                self.unreachable(route, Some(&copied));
            }
        }
        run
    }

    /// Stages a packet in place.
    fn stage_held(&mut self, route: &UdpRoute, packet: &TxPacket<'_>, shape: PacketShape) {
        let (len, ([head, data], trailer)) = (shape.len, packet.pieces());
        self.make_room(TRAILER_LEN);
        let Some(run) = self.join(route, shape) else {
            return self.unreachable(route, None);
        };
        self.held.push(packet.hold());
        self.pieces.add(run, head, if data.is_empty() { len } else { 0 }, &mut self.runs);
        if !data.is_empty() {
            self.pieces.add(run, data, len, &mut self.runs);
        }
        if let Some(trailer) = trailer {
            let room = &mut self.staging[self.used..self.used + TRAILER_LEN];
            room.copy_from_slice(&trailer);
            self.pieces.add(run, room, 0, &mut self.runs);
            self.used += TRAILER_LEN;
        }
        self.joined(run, len);
        self.flush_if_full(run);
    }

    /// Drops a packet to `route` that the system does not send. Reports it, unless the system may
    /// send the next copy. A packet of more than one piece is never reported. The protocol still
    /// learns that a peer cannot be reached, because handshake messages and pings are one piece.
    #[cold]
    fn refused(&mut self, route: UdpRoute, bytes: Option<&[u8]>, errno: Errno) {
        self.counters.dropped += 1;
        let is_passing = matches!(errno, Errno::NOBUFS | Errno::NOMEM | Errno::MSGSIZE | Errno::IO);
        let Some(bytes) = bytes else { return };
        if is_passing || is_answer(errno) {
            return;
        }
        let error = NetworkError::NotSent(errno.raw_os_error());
        self.reports.add(Undelivered::new(route, error, bytes));
    }

    /// Sends the only staged packet.
    #[inline]
    fn send_single(&mut self) {
        let Some(bytes) = self.pieces.first().and_then(|vector| self.staged(vector)) else {
            return self.send_runs();
        };
        match sys::send_one(self.socket.fd(), bytes, &self.runs[0].name) {
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
        self.send_runs();
    }

    /// Sends all staged packets, each run as a message.
    fn send_runs(&mut self) {
        self.build();
        let (mut at, mut patience) = (0, Patience::default());
        while at < self.open {
            // SAFETY: `build` has pointed the headers to `runs`, `controls` and the sorted pieces,
            // and these point to the staging area, to held msgbufs and to the static padding. None
            // of these has been changed, moved or released since.
            match unsafe { self.headers.send(self.socket.fd(), at, self.open) } {
                Ok(sent) => {
                    self.sent(at, sent);
                    at += sent;
                    patience.repeats = 0;
                    if at < self.open {
                        // The call has ended early because of an error, and does not say which.
                        self.reports.raise();
                    }
                }
                Err(errno) => match self.handle(errno, &mut patience) {
                    Verdict::Repeat => {}
                    Verdict::DropAll => {
                        let packets = self.runs[at..self.open].iter().map(|run| run.packets);
                        self.counters.dropped += u64::from(packets.sum::<u32>());
                        return;
                    }
                    Verdict::Refused if self.runs[at].packets > 1 && errno != Errno::NOBUFS => {
                        // The error may concern the run, not its packets. A network card without
                        // checksum offload gives this error for every run.
                        match errno {
                            Errno::IO => self.run = 1,
                            // A kernel gives this error for too long a run. Other errors, such as
                            // that of a peer without a route, say nothing about later runs.
                            Errno::INVAL if self.runs[at].packets as usize > OLD_RUN => {
                                self.run = self.run.min(OLD_RUN);
                            }
                            _ => {}
                        }
                        if !self.send_apart(at, &mut patience) {
                            return;
                        }
                        at += 1;
                    }
                    // The error concerns this packet: it has no route, a firewall refuses it, or it
                    // is too long. Or the queue of the network card is full. The next run may be
                    // sent.
                    Verdict::Refused => {
                        let Run { route, packets, .. } = self.runs[at];
                        let bytes = self.only_piece(at);
                        self.refused(route, bytes.as_deref(), errno);
                        self.counters.dropped += u64::from(packets - 1);
                        (at, patience.repeats) = (at + 1, 0);
                    }
                },
            }
        }
    }

    /// The start of the packets of a run, if they are one piece.
    #[cold]
    fn only_piece(&self, at: usize) -> Option<Vec<u8>> {
        let Run { first, pieces, .. } = self.runs[at];
        let bytes = self.staged(self.pieces.sorted[first as usize])?;
        (pieces == 1).then(|| bytes.to_vec())
    }

    /// The bytes of a piece, if it lies in the staging area.
    #[inline]
    fn staged(&self, piece: libc::iovec) -> Option<&[u8]> {
        let at = (piece.iov_base as usize).checked_sub(self.staging.as_ptr() as usize)?;
        self.staging.get(at..at.checked_add(piece.iov_len)?)
    }

    /// What to do about an error of a call that sends.
    #[cold]
    fn handle(&mut self, errno: Errno, patience: &mut Patience) -> Verdict {
        match errno {
            Errno::INTR => Verdict::Repeat,
            // The error may be that of an earlier packet to any peer, which an ICMP message has
            // reported meanwhile. The call has cleared it and has sent nothing.
            errno
                if patience.repeats < REPEATS
                    && may_be_anothers(errno)
                    && !mutant!(OthersErrorTaken) =>
            {
                patience.repeats += 1;
                self.reports.raise();
                Verdict::Repeat
            }
            Errno::AGAIN if patience.stalls < STALLS => {
                patience.stalls += 1;
                self.await_room();
                Verdict::Repeat
            }
            Errno::AGAIN => Verdict::DropAll,
            _ => Verdict::Refused,
        }
    }

    /// Sends the packets of run `at` one by one. Returns false if there is no room for the packets
    /// that are left, and drops them all.
    #[cold]
    fn send_apart(&mut self, at: usize, patience: &mut Patience) -> bool {
        let Run { route, name, segment, mut bytes, first, pieces, .. } = self.runs[at];
        let run = first as usize..(first + pieces) as usize;
        let mut rest = self.pieces.sorted[run].to_vec();
        let mut packet = Vec::with_capacity(PIECES);
        while bytes > 0 {
            let len = segment.min(bytes);
            bytes -= len;
            cut(&mut rest, &mut packet, len as usize);
            patience.repeats = 0;
            loop {
                let mut name = name;
                let header = self.headers.get_mut(at);
                header.msg_namelen = name.len();
                header.msg_name = name.as_mut_ptr().cast();
                header.msg_iov = packet.as_mut_ptr();
                header.msg_iovlen = packet.len() as _;
                header.msg_control = std::ptr::null_mut();
                header.msg_controllen = 0;
                // SAFETY: the header points to `name` and to `packet`, which points to the memory
                // of staged packets and to the static padding.
                match unsafe { self.headers.send(self.socket.fd(), at, at + 1) } {
                    Ok(_) => {
                        self.counters.packets += 1;
                        self.counters.bytes += u64::from(len);
                    }
                    Err(errno) => match self.handle(errno, patience) {
                        Verdict::Repeat => continue,
                        Verdict::DropAll => {
                            let later = self.runs[at + 1..self.open].iter().map(|run| run.packets);
                            let left = 1 + bytes.div_ceil(segment) + later.sum::<u32>();
                            self.counters.dropped += u64::from(left);
                            return false;
                        }
                        Verdict::Refused => {
                            let bytes = self.copy_of(&packet);
                            self.refused(route, bytes.as_deref(), errno);
                        }
                    },
                }
                break;
            }
        }
        true
    }

    /// The bytes of a packet that lies in the staging area, in one piece.
    #[cold]
    fn copy_of(&self, packet: &[libc::iovec]) -> Option<Vec<u8>> {
        let [piece] = packet else { return None };
        self.staged(*piece).map(<[u8]>::to_vec)
    }

    /// Points one header per run to its packets.
    #[inline]
    fn build(&mut self) {
        let runs = &mut self.runs[..self.open];
        self.pieces.sort(runs);
        let vectors = self.pieces.sorted.as_mut_ptr();
        for (at, (run, control)) in runs.iter_mut().zip(&mut *self.controls).enumerate() {
            let header = self.headers.get_mut(at);
            header.msg_namelen = run.name.len();
            header.msg_name = run.name.as_mut_ptr().cast();
            header.msg_iov = vectors.wrapping_add(run.first as usize);
            header.msg_iovlen = run.pieces as _;
            if run.packets > 1 {
                *control = Control::segment(run.segment as u16);
                header.msg_control = (&raw mut *control).cast();
                header.msg_controllen = size_of::<Control>() as _;
            } else {
                header.msg_control = std::ptr::null_mut();
                header.msg_controllen = 0;
            }
        }
    }

    /// Forgets the staged packets.
    #[inline]
    fn clear(&mut self) {
        (self.open, self.packets, self.used) = (0, 0, 0);
        self.pieces.clear();
        self.held.clear();
    }

    /// Counts the packets of `count` runs from `first` on as sent.
    #[inline]
    fn sent(&mut self, first: usize, count: usize) {
        for run in &self.runs[first..first + count] {
            self.counters.packets += u64::from(run.packets);
            self.counters.bytes += u64::from(run.bytes);
        }
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

/// How long a flush waits and repeats calls.
#[derive(Default)]
struct Patience {
    stalls: u32,
    /// Repeats of the call for the first run or packet that is not sent yet.
    repeats: u32,
}

/// What to do after a call that sends has failed.
enum Verdict {
    Repeat,
    /// There is no room in the send buffer.
    DropAll,
    /// The error is of the first run or packet that is not sent yet.
    Refused,
}

/// Moves the first `len` bytes of the memory that `rest` describes to `packet`.
#[cold]
fn cut(rest: &mut Vec<libc::iovec>, packet: &mut Vec<libc::iovec>, mut len: usize) {
    packet.clear();
    let mut taken = 0;
    while let Some(vector) = rest.get_mut(taken).filter(|_| len > 0) {
        let part = len.min(vector.iov_len);
        packet.push(libc::iovec { iov_base: vector.iov_base, iov_len: part });
        vector.iov_base = vector.iov_base.wrapping_byte_add(part);
        vector.iov_len -= part;
        len -= part;
        taken += usize::from(vector.iov_len == 0);
    }
    rest.drain(..taken);
}

impl TxQueue for UdpTx {
    type Route = UdpRoute;

    #[inline]
    fn push_bytes(&mut self, route: &UdpRoute, bytes: &[u8]) {
        assert!(bytes.len() <= MIN_DATAGRAM, "push_bytes: {} bytes are too long", bytes.len());
        // A control message must not overtake messages to the same peer.
        self.close_bundles(|to| to.route == *route);
        let member = steer::member_of(bytes);
        let shape = PacketShape::in_order(member, bytes.len());
        self.stage_copy(route, shape, |room| room.copy_from_slice(bytes));
    }

    #[inline(never)]
    fn push(&mut self, route: &UdpRoute, packet: TxPacket<'_>) {
        let (([head, _], trailer), is_whole) = (packet.pieces(), packet.is_whole());
        let shape = PacketShape {
            member: steer::member_of(head),
            len: packet.len(),
            may_overtake: is_whole,
            may_end_run: !is_whole,
            may_be_padded: self.pads && is_whole && trailer.is_none(),
        };
        if shape.len > COPY_LIMIT {
            return self.stage_held(route, &packet, shape);
        }
        self.stage_copy(route, shape, |room| {
            packet.copy_to(room);
        });
    }

    #[inline(always)]
    fn push_single(
        &mut self,
        route: &UdpRoute,
        header: HeaderWords,
        message: &mut MsgBuf,
        takes_bundles: bool,
    ) {
        if !takes_bundles || header.has_trailer() {
            self.push(route, message.single_packet(header));
            return;
        }
        if let Some(bundle) = self.bundles.last(|to| to.gets(route, header))
            && bundle.append(header, message.as_slice(), &mut self.staging)
        {
            return;
        }
        self.bundle(route, header, message);
    }

    #[inline]
    fn flush(&mut self) {
        self.close_bundles(|_| !mutant!(BundleForgotten));
        match self.packets {
            // Packets for peers that cannot be reached may have used memory.
            0 => return self.used = 0,
            1 => self.send_single(),
            _ => self.send_runs(),
        }
        self.clear();
    }
}

impl std::fmt::Debug for UdpTx {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("UdpTx")
            .field("staged", &self.packets)
            .field("bundles", &self.bundles.count())
            .finish_non_exhaustive()
    }
}
