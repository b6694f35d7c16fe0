//! Packets that reached the wrong member of a group.
//!
//! A network card's driver coalesces packets of one flow without looking at their first byte. So a
//! run from a client that sends to several members arrives as a whole at the member of its first
//! packet. That member puts the other members' packets into those members' inboxes. Senders of this
//! transport never mix members in a run, so this is rare. Without the inboxes, such packets would
//! be lost each time.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use super::route::{Name, UdpRoute};
use super::steer;
use crate::mutants::mutant;
use crate::transport::{MAX_BURST, RxPacket, Waker};
use crate::wire::bundle;

/// Capacity of an inbox, in bytes. When an inbox is full, strays are dropped, as by a full
/// socket.
const INBOX_BYTES: usize = 256 * 1_024;

/// The inboxes of a group.
pub(super) struct Inboxes(Box<[Inbox]>);

#[derive(Default)]
struct Inbox {
    /// Whether the inbox has packets. While it has none, the owner need not take the lock.
    pending: AtomicBool,
    strays: Mutex<Strays>,
    /// Wakes the owner.
    waker: OnceLock<Waker>,
}

/// A packet: its sender, the range of its bytes, and whether it was marked.
struct Stray {
    name: Name,
    bytes: Range<usize>,
    marked: bool,
}

/// Datagrams, stored one after the other, and their packets.
#[derive(Default)]
struct Strays {
    bytes: Vec<u8>,
    packets: Vec<Stray>,
    datagrams: u64,
}

impl Strays {
    fn clear(&mut self) {
        self.bytes.clear();
        self.packets.clear();
        self.datagrams = 0;
    }

    /// All packets of a datagram name the same member.
    fn add(&mut self, name: &Name, marked: bool, datagram: &[u8]) {
        let mut rest = datagram;
        loop {
            let (len, others) = bundle::split_first(rest);
            let at = self.bytes.len() + datagram.len() - rest.len();
            self.packets.push(Stray { name: *name, bytes: at..at + len, marked });
            rest = others;
            if rest.is_empty() {
                break;
            }
        }
        self.bytes.extend_from_slice(datagram);
        self.datagrams += 1;
    }
}

impl Inbox {
    fn lock(&self) -> MutexGuard<'_, Strays> {
        self.strays.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inboxes {
    pub(super) fn new(members: usize) -> Arc<Self> {
        Arc::new(Self((0..members).map(|_| Inbox::default()).collect()))
    }
}

/// A member's access to the inboxes: it empties its own and fills those of the others.
pub(super) struct Member {
    inboxes: Arc<Inboxes>,
    index: u8,
    /// Packets taken out of this member's inbox, and the part of them that is lent out.
    taken: Strays,
    lent: Range<usize>,
    /// Datagrams and bytes that were ever taken out of the inbox.
    total: (u64, u64),
}

impl Member {
    pub(super) fn new(inboxes: &Arc<Inboxes>, index: u8, waker: Waker) -> Self {
        // Each member is created once, so the cell is empty.
        let _ = inboxes.0[usize::from(index)].waker.set(waker);
        Self {
            inboxes: Arc::clone(inboxes),
            index,
            taken: Strays::default(),
            lent: 0..0,
            total: (0, 0),
        }
    }

    fn inbox(&self) -> &Inbox {
        &self.inboxes.0[usize::from(self.index)]
    }

    /// The other member that `datagram` names, `None` if this member may keep it.
    #[inline]
    pub(super) fn stray(&self, datagram: &[u8]) -> Option<u8> {
        steer::member_of(datagram)
            .filter(|&to| to != self.index && usize::from(to) < self.inboxes.0.len())
    }

    /// Passes a stray datagram on to member `to`; false if its inbox is full.
    #[cold]
    pub(super) fn pass_on(&self, to: u8, name: &Name, marked: bool, datagram: &[u8]) -> bool {
        let inbox = &self.inboxes.0[usize::from(to)];
        if mutant!(StrayFlagEarly) {
            inbox.pending.store(true, Ordering::Release);
        }
        let mut strays = inbox.lock();
        if strays.bytes.len() + datagram.len() > INBOX_BYTES {
            return false;
        }
        strays.add(name, marked, datagram);
        drop(strays);
        if !(mutant!(StrayFlagEarly) || inbox.pending.swap(true, Ordering::AcqRel))
            && let Some(waker) = inbox.waker.get()
        {
            waker.wake();
        }
        true
    }

    /// Whether there are packets that no burst has handed out.
    #[inline]
    pub(super) fn has_pending(&self) -> bool {
        self.lent.end < self.taken.packets.len() || self.inbox().pending.load(Ordering::Acquire)
    }

    /// Lends out the next burst of strays; returns their number.
    pub(super) fn burst(&mut self) -> usize {
        if self.lent.end == self.taken.packets.len() {
            self.taken.clear();
            self.lent = 0..0;
            let mut taken = std::mem::take(&mut self.taken);
            let inbox = self.inbox();
            if inbox.pending.swap(false, Ordering::AcqRel) {
                std::mem::swap(&mut taken, &mut *inbox.lock());
            }
            self.total.0 += taken.datagrams;
            self.total.1 += taken.bytes.len() as u64;
            self.taken = taken;
        }
        let end = self.taken.packets.len().min(self.lent.end + MAX_BURST);
        self.lent = self.lent.end..end;
        self.lent.len()
    }

    /// Packet `index` of the burst.
    pub(super) fn packet(&self, index: usize) -> RxPacket<'_, UdpRoute> {
        let stray = &self.taken.packets[self.lent.clone()][index];
        RxPacket {
            route: stray.name.route(),
            bytes: &self.taken.bytes[stray.bytes.clone()],
            marked: stray.marked,
        }
    }

    /// Datagrams and bytes that this member has taken out of its inbox.
    pub(super) fn taken(&self) -> (u64, u64) {
        self.total
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "members are on different threads")]
mod tests {
    use std::net::SocketAddr;
    use std::sync::mpsc::channel;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::transport::udp::route::Family;

    /// A packet must arrive within this time.
    const LIMIT: Duration = Duration::from_secs(20);

    #[test]
    fn no_stray_packet_is_stuck() {
        let inboxes = Inboxes::new(2);
        let [sender, mut receiver] =
            [0, 1].map(|index| Member::new(&inboxes, index, Waker::new(|| {})));
        let route = UdpRoute::from(SocketAddr::from(([127, 0, 0, 1], 9)));
        let name = Name::new(route, Family::V4).expect("a name of the same family");
        let (send, arrived) = channel();
        // The receiver takes packets as fast as it can, so it often looks while one is passed on.
        thread::spawn(move || {
            loop {
                if receiver.has_pending() {
                    for _ in 0..receiver.burst() {
                        if send.send(()).is_err() {
                            return;
                        }
                    }
                }
            }
        });
        for packet in 0..50_000 {
            assert!(sender.pass_on(1, &name, false, &[7; 24]));
            let got = arrived.recv_timeout(LIMIT);
            assert_eq!(got, Ok(()), "packet {packet} arrives without another packet after it");
        }
    }
}
