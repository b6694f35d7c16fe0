//! What the kernel says about packets that were not delivered.
//!
//! A socket learns of an undelivered packet in two ways:
//!
//! * The call that sends it fails: no route, a firewall rule. `UdpTx` reports such packets.
//! * An ICMP message comes back later. The kernel finds the socket by the packet's ports, puts the
//!   error and the first bytes of the packet into the socket's *error queue*, and makes the next
//!   call on the socket fail, whatever that call is for (`sk_err`). `UdpRx` and `UdpTx` then raise
//!   the flag of [`Reports`], and repeat the call. The error queue is read in the cold part of the
//!   turn.
//!
//! In a group, the kernel selects the socket for an ICMP message by a hash of the addresses, not by
//! the program that steers packets. So the error of one member's packet arrives at any member. The
//! quoted packet names the member that sent it only if it is a handshake message. The reports of
//! all other packets go to all members; the protocol of each member ignores a report of a packet
//! that it has not sent.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::route::UdpRoute;
use super::sys;
use crate::transport::{NetworkError, Obstacle, QUOTE_LEN, Undelivered, Waker};
use crate::wire::{ConnectionId, HEADER_LEN};

/// The most reports that wait for one endpoint. Further ones are dropped: a peer that cannot be
/// reached causes more.
const MOST_WAITING: usize = 32;
/// The most entries of the error queue that are read at once.
const READ_AT_ONCE: usize = 16;

/// The reports that wait for one endpoint.
#[derive(Default)]
pub(super) struct Reports {
    /// True if there may be reports, here or in the socket's error queue.
    raised: AtomicBool,
    waiting: Mutex<VecDeque<Undelivered<UdpRoute>>>,
    /// Wakes the endpoint's thread. Set in a group, whose other threads leave reports here.
    waker: OnceLock<Waker>,
}

impl Reports {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Undelivered<UdpRoute>>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether [`ErrorQueue::next`] may return a report.
    #[inline]
    pub(super) fn is_raised(&self) -> bool {
        self.raised.load(Ordering::Relaxed)
    }

    /// Raises the flag. Called, for example, after a call on the socket has failed, because the
    /// socket's error queue may then have an entry.
    #[cold]
    pub(super) fn raise(&self) {
        self.raised.store(true, Ordering::Release);
    }

    /// Adds a report of the endpoint's own thread.
    #[cold]
    pub(super) fn add(&self, report: Undelivered<UdpRoute>) {
        self.keep(report);
    }

    /// Keeps a report, unless too many wait. Returns whether this has raised the flag.
    fn keep(&self, report: Undelivered<UdpRoute>) -> bool {
        let mut waiting = self.lock();
        if waiting.len() >= MOST_WAITING {
            return false;
        }
        waiting.push_back(report);
        drop(waiting);
        !self.raised.swap(true, Ordering::AcqRel)
    }

    /// Adds a report of another thread, and wakes the endpoint's. While the flag is up, that thread
    /// does not sleep and needs no wake: a flood of ICMP messages to one member of a group does
    /// not wake the others with each message.
    fn pass_on(&self, report: Undelivered<UdpRoute>) {
        if self.keep(report)
            && let Some(waker) = self.waker.get()
        {
            waker.wake();
        }
    }
}

/// An endpoint's access to its socket's error queue, and to the reports of the other members of its
/// group.
pub(super) struct ErrorQueue {
    group: Arc<[Arc<Reports>]>,
    index: u8,
}

impl ErrorQueue {
    /// The reports of a group of this many members.
    pub(super) fn group(members: usize) -> Arc<[Arc<Reports>]> {
        (0..members).map(|_| Arc::default()).collect()
    }

    /// The queue of member `index` of a group.
    pub(super) fn new(group: &Arc<[Arc<Reports>]>, index: u8, waker: Waker) -> Self {
        if group.len() > 1 {
            // Each member is created once, so the cell is empty.
            let _ = group[usize::from(index)].waker.set(waker);
        }
        Self { group: Arc::clone(group), index }
    }

    pub(super) fn reports(&self) -> &Arc<Reports> {
        &self.group[usize::from(self.index)]
    }

    /// Takes the next report. If none waits, first reads up to [`READ_AT_ONCE`] entries of the
    /// socket's error queue. `None`: nothing to report now; [`Reports::is_raised`] says whether the
    /// error queue may have more.
    pub(super) fn next(&self, socket: BorrowedFd<'_>) -> Option<Undelivered<UdpRoute>> {
        let reports = self.reports();
        let next = reports.lock().pop_front();
        if next.is_some() {
            return next;
        }
        // The flag is lowered before the error queue is read. If an entry comes after the last
        // read, the flag is raised again.
        if !reports.raised.swap(false, Ordering::AcqRel) {
            return None;
        }
        for count in 1.. {
            let Ok(error) = sys::receive_error(socket) else { break };
            if let Some(reason) = reason(&error) {
                self.deliver(Undelivered::new(error.name.route(), reason, error.bytes()));
            }
            if count == READ_AT_ONCE {
                reports.raise();
                break;
            }
        }
        let next = reports.lock().pop_front();
        if next.is_some() {
            reports.raise();
        }
        next
    }

    /// Gives a report from this socket's error queue to the members that may have sent the packet.
    fn deliver(&self, report: Undelivered<UdpRoute>) {
        match sender(report.quote()) {
            Sender::Nobody => {}
            Sender::Member(index) => {
                if index == self.index || self.group.len() == 1 {
                    self.reports().add(report);
                } else if let Some(member) = self.group.get(usize::from(index)) {
                    member.pass_on(report);
                }
            }
            Sender::Any => {
                for (index, member) in self.group.iter().enumerate() {
                    if index == usize::from(self.index) {
                        member.add(report);
                    } else {
                        member.pass_on(report);
                    }
                }
            }
        }
    }
}

/// The member of a group that may have sent a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sender {
    /// No client: a server has sent it, or too little is known of it.
    Nobody,
    Member(u8),
    Any,
}

/// Who may have sent the packet that begins with `quote`.
fn sender(quote: &[u8]) -> Sender {
    let id = |at: usize| {
        let bytes = quote.get(at..)?.first_chunk()?;
        Some(ConnectionId::from_u64(u64::from_le_bytes(*bytes)))
    };
    match id(0) {
        // A handshake message: its body begins with the client's id.
        Some(to) if to.is_endpoint() => {
            id(HEADER_LEN).map_or(Sender::Nobody, |client| Sender::Member(client.steer()))
        }
        // The id is the server's, so it does not name the member that has sent the packet.
        Some(to) if to.is_server_role() => Sender::Any,
        _ => Sender::Nobody,
    }
}

const _: () = assert!(QUOTE_LEN >= HEADER_LEN + size_of::<u64>());

/// What an entry of the error queue means for its packet; `None` if nothing. A packet that was too
/// large for the path means nothing: the kernel has noted the path's size, and the protocol finds
/// it out on its own.
fn reason(error: &sys::QueuedError) -> Option<NetworkError> {
    if error.errno == libc::EMSGSIZE {
        return None;
    }
    let obstacle = match (error.origin, error.kind, error.code) {
        (libc::SO_EE_ORIGIN_ICMP, 3, 3) | (libc::SO_EE_ORIGIN_ICMP6, 1, 4) => {
            return Some(NetworkError::NothingListens);
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, 0 | 6 | 11) | (libc::SO_EE_ORIGIN_ICMP6, 1, 0) => {
            Obstacle::Network
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, 1 | 7 | 12) | (libc::SO_EE_ORIGIN_ICMP6, 1, 3) => {
            Obstacle::Host
        }
        (libc::SO_EE_ORIGIN_ICMP, 3, 9 | 10 | 13) | (libc::SO_EE_ORIGIN_ICMP6, 1, 1 | 5 | 6) => {
            Obstacle::Prohibited
        }
        (libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6, kind, code) => {
            Obstacle::Other(kind, code)
        }
        // The system's own errors are reported when the call that sends fails.
        _ => return None,
    };
    Some(NetworkError::Returned(obstacle))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::control::Control;
    use crate::wire::{ReplyInfo, VERSION};

    fn queued(origin: u8, kind: u8, code: u8, errno: i32) -> sys::QueuedError {
        let mut error = sys::QueuedError::EMPTY;
        (error.origin, error.kind, error.code, error.errno) = (origin, kind, code, errno);
        error
    }

    #[test]
    fn icmp_messages_have_the_same_meaning_in_both_families() {
        let (v4, v6) = (libc::SO_EE_ORIGIN_ICMP, libc::SO_EE_ORIGIN_ICMP6);
        let means = |origin, kind, code| reason(&queued(origin, kind, code, libc::EHOSTUNREACH));
        let returned = |obstacle| Some(NetworkError::Returned(obstacle));
        for (in_v4, in_v6, expected) in [
            (3, 4, Some(NetworkError::NothingListens)),
            (0, 0, returned(Obstacle::Network)),
            (1, 3, returned(Obstacle::Host)),
            (13, 1, returned(Obstacle::Prohibited)),
        ] {
            assert_eq!(means(v4, 3, in_v4), expected);
            assert_eq!(means(v6, 1, in_v6), expected);
        }
        assert_eq!(means(v4, 11, 0), returned(Obstacle::Other(11, 0)), "too many hops");
    }

    #[test]
    fn a_packet_that_is_too_large_for_the_path_is_not_reported() {
        assert_eq!(reason(&queued(libc::SO_EE_ORIGIN_ICMP, 3, 4, libc::EMSGSIZE)), None);
        assert_eq!(reason(&queued(libc::SO_EE_ORIGIN_ICMP6, 2, 0, libc::EMSGSIZE)), None);
        assert_eq!(reason(&queued(libc::SO_EE_ORIGIN_LOCAL, 0, 0, libc::EMSGSIZE)), None);
    }

    #[test]
    fn a_handshake_message_names_its_member_and_a_packet_of_a_session_does_not() {
        let client = ConnectionId::new(7, false, 3, 0x1234_5678);
        let hello = Control::Hello { client, low: VERSION.into(), high: VERSION.into() };
        let hello = hello.emit(ConnectionId::endpoint(2), 0, ReplyInfo::default());
        assert_eq!(sender(hello.as_bytes()), Sender::Member(7));
        assert_eq!(sender(&hello.as_bytes()[..HEADER_LEN + 7]), Sender::Nobody, "too short");
        let ping = |to| Control::Ping { sender: client }.emit(to, 1, ReplyInfo::default());
        let to_server = ConnectionId::new(2, true, 9, 0x8765_4321);
        assert_eq!(sender(ping(to_server).as_bytes()), Sender::Any);
        assert_eq!(sender(ping(client).as_bytes()), Sender::Nobody, "a server's packet");
        assert_eq!(sender(&[]), Sender::Nobody);
    }

    #[test]
    fn members_get_the_reports_of_packets_that_they_may_have_sent() {
        let group = ErrorQueue::group(3);
        let woken = Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let waker = || {
            let woken = Arc::clone(&woken);
            Waker::new(move || {
                woken.fetch_add(1, Ordering::Relaxed);
            })
        };
        let queues: Vec<_> = (0..3).map(|index| ErrorQueue::new(&group, index, waker())).collect();
        let route = UdpRoute::from(std::net::SocketAddr::from(([10, 0, 0, 7], 31_850)));
        let report = |packet: &[u8]| Undelivered::new(route, NetworkError::NothingListens, packet);
        // As the members' threads do.
        let waiting = || {
            let take = |queue: &ErrorQueue| {
                queue.reports().raised.store(false, Ordering::Relaxed);
                queue.reports().lock().drain(..).count()
            };
            queues.iter().map(take).collect()
        };

        let client = ConnectionId::new(2, false, 3, 0x1234_5678);
        let hello = Control::Hello { client, low: 1, high: 1 };
        let hello = hello.emit(ConnectionId::endpoint(0), 0, ReplyInfo::default());
        queues[1].deliver(report(hello.as_bytes()));
        assert!(queues[2].reports().is_raised() && !queues[0].reports().is_raised());
        let counts: Vec<usize> = waiting();
        assert_eq!(counts, [0, 0, 1]);
        assert_eq!(woken.swap(0, Ordering::Relaxed), 1);

        let to_server = ConnectionId::new(2, true, 9, 0x8765_4321);
        let ping = Control::Ping { sender: client }.emit(to_server, 1, ReplyInfo::default());
        queues[1].deliver(report(ping.as_bytes()));
        let counts: Vec<usize> = waiting();
        assert_eq!(counts, [1, 1, 1]);
        assert_eq!(woken.swap(0, Ordering::Relaxed), 2, "the own thread is awake");

        for _ in 0..2 * MOST_WAITING {
            queues[1].deliver(report(ping.as_bytes()));
        }
        let counts: Vec<usize> = waiting();
        assert_eq!(counts, [MOST_WAITING; 3], "a flood of ICMP messages takes no more memory");
        assert_eq!(woken.swap(0, Ordering::Relaxed), 2, "a flood wakes each other thread once");
    }
}
