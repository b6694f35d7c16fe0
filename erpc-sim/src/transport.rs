//! The network interface of a simulated endpoint: a [`Transport`] whose other end is the world.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;
use std::time::Duration;

use erpc_core::buf::MsgBuf;
use erpc_core::time::Instant;
use erpc_core::transport::{
    Capabilities, ChargeModel, Link, MAX_BURST, NoMarks, Path, RxPacket, RxQueue, Transport,
    TransportStats, TxPacket, TxQueue, Undelivered, Waker,
};
use erpc_core::wire::HEADER_LEN;
use erpc_core::wire::checksum::{TRAILER_LEN, trailer_of};

use crate::SimRoute;

/// The properties of an interface.
#[derive(Clone, Copy, Debug)]
pub struct Nic {
    /// Largest datagram, in bytes.
    pub max_datagram: usize,
    /// Packets up to this length, in bytes, are copied when they are pushed. The device reads
    /// longer packets some time later.
    pub inline: usize,
    /// How the receive queue charges packets.
    pub charge: ChargeModel,
    /// Capacity of the receive queue, in units of `charge`.
    pub rx_capacity: u32,
    /// The most packets in one receive burst, 1 to [`MAX_BURST`].
    pub burst: usize,
    /// Time from the doorbell until the device has read a packet, in ns.
    pub dma_nanos: u64,
    /// Floor of the retransmission timeout.
    pub min_rto: Duration,
    /// Random variation of the RTT when no packet waits in the network.
    pub rtt_noise: Duration,
    /// What the endpoint knows of its link's rate.
    pub link: Link,
    /// Whether the interface drops every damaged packet.
    pub integrity: bool,
}

impl Nic {
    /// An interface with a ring of `packets` packets that copies pushed packets. The endpoint does
    /// not know the rate of its link.
    #[must_use]
    pub fn ring(max_datagram: usize, packets: u32) -> Self {
        Self {
            max_datagram,
            inline: max_datagram,
            charge: ChargeModel::Ring,
            rx_capacity: packets * ChargeModel::Ring.charge(max_datagram),
            burst: MAX_BURST,
            dma_nanos: 0,
            min_rto: Duration::from_millis(5),
            rtt_noise: Duration::from_micros(5),
            link: Link::Unknown,
            integrity: true,
        }
    }
}

/// The most buffers that an interface keeps for reuse.
const MOST_SPARE: usize = 64;
/// When the next burst begins, one in this many lent packets is overwritten as a whole.
const POISONED_ONE_IN: u32 = 64;
/// One in this many packets that the device reads late is compared with its state when pushed.
const COMPARED_ONE_IN: u32 = 16;

/// A packet in a receive queue.
#[derive(Clone, Debug)]
struct Arrived {
    at: Instant,
    from: SimRoute,
    bytes: Vec<u8>,
    marked: bool,
}

/// A sent packet.
#[derive(Clone, Debug)]
pub struct Sent {
    /// The receiver.
    pub to: SimRoute,
    /// The datagram.
    pub bytes: Vec<u8>,
}

/// The state that the world's end and the endpoint's end of an interface share.
pub struct Port {
    route: SimRoute,
    nic: Nic,
    now: Cell<Instant>,
    ring: RefCell<VecDeque<Arrived>>,
    /// Charge units of the packets in the ring.
    held: Cell<u32>,
    sent: RefCell<Vec<Sent>>,
    /// Reports of undelivered packets.
    reports: RefCell<VecDeque<Undelivered<SimRoute>>>,
    spare: RefCell<Vec<Vec<u8>>>,
    stats: Cell<TransportStats>,
    /// Counts lent and held packets, to select one in N.
    turn: Cell<u32>,
    /// The rule of [`TxQueue`] that the endpoint broke, if any.
    misuse: Cell<Option<&'static str>>,
}

impl Port {
    /// The interface of `route`, with an empty receive queue.
    #[must_use]
    pub fn new(route: SimRoute, nic: Nic) -> Rc<Self> {
        Rc::new(Self {
            route,
            nic,
            now: Cell::new(Instant::ZERO),
            ring: RefCell::default(),
            held: Cell::new(0),
            sent: RefCell::default(),
            reports: RefCell::default(),
            spare: RefCell::default(),
            stats: Cell::default(),
            turn: Cell::new(0),
            misuse: Cell::new(None),
        })
    }

    /// The properties of the interface.
    #[must_use]
    pub fn nic(&self) -> &Nic {
        &self.nic
    }

    /// Sets the device's time.
    pub fn set_now(&self, now: Instant) {
        self.now.set(now);
    }

    /// A packet arrives; `marked` is a switch's ECN mark. Returns false if the receive queue is
    /// full and the packet is lost. The buffer of a lost packet is kept for reuse.
    pub fn deliver(&self, from: SimRoute, bytes: Vec<u8>, marked: bool) -> bool {
        let held = self.held_with(bytes.len());
        if held > self.nic.rx_capacity {
            self.count(|stats| stats.rx_overflow += 1);
            self.give_spare(bytes);
            return false;
        }
        self.held.set(held);
        self.ring.borrow_mut().push_back(Arrived { at: self.now.get(), from, bytes, marked });
        true
    }

    /// Whether the receive queue has room for a packet of `len` bytes.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.held_with(len) <= self.nic.rx_capacity
    }

    /// Charge units in the receive queue with another packet of `len` bytes.
    fn held_with(&self, len: usize) -> u32 {
        self.held.get().saturating_add(self.nic.charge.charge(len))
    }

    /// Packets in the receive queue.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.ring.borrow().len()
    }

    /// Whether the receive queue holds a packet for which `is` holds. `is` gets its arrival time
    /// and its bytes.
    #[must_use]
    pub fn has_waiting(&self, is: impl Fn(Instant, &[u8]) -> bool) -> bool {
        self.ring.borrow().iter().any(|packet| is(packet.at, &packet.bytes))
    }

    /// Adds a report that a packet of the endpoint was not delivered.
    pub fn report(&self, report: Undelivered<SimRoute>) {
        self.reports.borrow_mut().push_back(report);
    }

    /// Whether the endpoint has not taken all reports.
    #[must_use]
    pub fn has_reports(&self) -> bool {
        !self.reports.borrow().is_empty()
    }

    /// Moves the packets that the endpoint has sent to the end of `out`.
    pub fn take_sent(&self, out: &mut Vec<Sent>) {
        out.append(&mut self.sent.borrow_mut());
    }

    /// Sent packets that [`take_sent`](Self::take_sent) has not taken yet.
    #[must_use]
    pub fn pushed(&self) -> usize {
        self.sent.borrow().len()
    }

    /// Gives back a buffer that is no longer in use.
    pub fn give_spare(&self, bytes: Vec<u8>) {
        let mut spare = self.spare.borrow_mut();
        if spare.len() < MOST_SPARE {
            spare.push(bytes);
        }
    }

    /// Takes the rule of [`TxQueue`] that the endpoint broke, if any.
    pub fn take_misuse(&self) -> Option<&'static str> {
        self.misuse.take()
    }

    /// The interface's counters.
    #[must_use]
    pub fn stats(&self) -> TransportStats {
        self.stats.get()
    }

    fn count(&self, change: impl FnOnce(&mut TransportStats)) {
        let mut stats = self.stats.get();
        change(&mut stats);
        self.stats.set(stats);
    }

    /// Returns true in one of `many` calls of this function.
    fn is_one_of(&self, many: u32) -> bool {
        let turn = self.turn.get().wrapping_add(1);
        self.turn.set(turn);
        turn.is_multiple_of(many)
    }

    fn buffer(&self) -> Vec<u8> {
        let mut buffer = self.spare.borrow_mut().pop().unwrap_or_default();
        buffer.clear();
        buffer
    }
}

/// The queue pair of a simulated endpoint.
pub struct SimTransport {
    port: Rc<Port>,
    rx: SimRx,
    tx: SimTx,
}

impl SimTransport {
    /// The endpoint's end of an interface.
    #[must_use]
    pub fn new(port: Rc<Port>) -> Self {
        let rx = SimRx { port: Rc::clone(&port), lent: Vec::with_capacity(MAX_BURST) };
        let tx = SimTx { port: Rc::clone(&port), held: Vec::new(), rung: 0 };
        Self { port, rx, tx }
    }
}

impl Transport for SimTransport {
    type Route = SimRoute;
    type Rx = SimRx;
    type Tx = SimTx;

    #[inline]
    fn split(&mut self) -> (&mut SimRx, &mut SimTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        let nic = &self.port.nic;
        Capabilities {
            max_datagram: nic.max_datagram,
            burst: nic.burst,
            inline: nic.inline,
            charge: nic.charge,
            rx_capacity: nic.rx_capacity,
            min_rto: nic.min_rto,
            rtt_noise: nic.rtt_noise,
            steer: 0,
            integrity: nic.integrity,
            bundles: false,
        }
    }

    fn local_route(&self) -> SimRoute {
        self.port.route
    }

    fn path(&mut self, _: &SimRoute) -> Path {
        Path { datagram: self.port.nic.max_datagram, link: self.port.nic.link }
    }

    /// Marks are always reported.
    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        Ok(())
    }

    fn has_undelivered(&self) -> bool {
        self.port.has_reports()
    }

    fn next_undelivered(&mut self) -> Option<Undelivered<SimRoute>> {
        self.port.reports.borrow_mut().pop_front()
    }

    fn wait(&mut self, _: Option<Duration>) {
        unreachable!("simulated endpoints do not sleep: the world turns their loops");
    }

    fn waker(&self) -> Waker {
        Waker::new(|| {})
    }

    fn stats(&self) -> TransportStats {
        self.port.stats()
    }
}

/// The receiving half.
pub struct SimRx {
    port: Rc<Port>,
    lent: Vec<Arrived>,
}

impl RxQueue for SimRx {
    type Route = SimRoute;

    fn burst(&mut self) -> usize {
        let mut spare = self.port.spare.borrow_mut();
        for packet in self.lent.drain(..) {
            let mut bytes = packet.bytes;
            // If the endpoint still reads a packet of the previous burst, it reads garbage. Usually
            // the garbage covers the first 64 bytes, now and then the whole packet.
            let all = self.port.is_one_of(POISONED_ONE_IN);
            let head = if all { bytes.len() } else { bytes.len().min(64) };
            bytes[..head].fill(0xDD);
            if spare.len() < MOST_SPARE {
                spare.push(bytes);
            }
        }
        let mut ring = self.port.ring.borrow_mut();
        let count = ring.len().min(self.port.nic.burst);
        let (mut units, mut bytes) = (0, 0);
        for packet in ring.drain(..count) {
            units += self.port.nic.charge.charge(packet.bytes.len());
            bytes += packet.bytes.len() as u64;
            self.lent.push(packet);
        }
        self.port.held.set(self.port.held.get() - units);
        self.port.count(|stats| {
            stats.rx_packets += count as u64;
            stats.rx_bytes += bytes;
        });
        count
    }

    /// A full burst may have left packets in the queue, as with a real device.
    fn is_drained(&self) -> bool {
        self.lent.len() < self.port.nic.burst
    }

    #[inline]
    fn packet(&self, index: usize) -> RxPacket<'_, SimRoute> {
        let packet = &self.lent[index];
        RxPacket { route: packet.from, bytes: &packet.bytes, marked: packet.marked }
    }
}

/// A packet that the device has not read yet.
struct Held {
    msgbuf: MsgBuf,
    /// Offset in the message of the data that this packet carries.
    offset: usize,
    /// When the device has read the packet. [`Instant::NEVER`] until the doorbell has rung.
    read_at: Instant,
    /// Length and checksum of the data when it was pushed, if this packet is compared.
    was: Option<(usize, [u8; TRAILER_LEN])>,
}

impl Held {
    /// Whether the device reads the bytes that were pushed.
    fn is_as_it_was(&self) -> bool {
        self.was.is_none_or(|(len, sum)| {
            let piece = self.msgbuf.as_slice().get(self.offset..self.offset + len);
            piece.is_some_and(|piece| trailer_of(&[], piece) == sum)
        })
    }
}

/// The sending half: a device that reads long packets some time after the doorbell.
///
/// The bytes of a packet are copied when it is pushed. This is correct, because by the rules of
/// [`TxQueue`] they do not change before the device reads them. Three checks enforce those rules.
/// The reference in `held` makes an early write to a msgbuf panic. A second push of the same data
/// is misuse, because it overwrites the header that the device may still read. The data of some
/// packets is compared when the device has read it.
pub struct SimTx {
    port: Rc<Port>,
    held: Vec<Held>,
    /// The number of packets in `held` that the doorbell has rung for.
    rung: usize,
}

impl SimTx {
    fn send(&mut self, to: SimRoute, fill: impl FnOnce(&mut Vec<u8>)) {
        let mut bytes = self.port.buffer();
        fill(&mut bytes);
        let nic = &self.port.nic;
        if bytes.len() > nic.max_datagram {
            self.port.misuse.set(Some("a packet is longer than the largest datagram"));
        }
        self.port.count(|stats| {
            stats.tx_packets += 1;
            stats.tx_bytes += bytes.len() as u64;
        });
        self.port.sent.borrow_mut().push(Sent { to, bytes });
    }

    /// The device has read the first `count` packets.
    fn complete(&mut self, count: usize) {
        if !self.held.drain(..count).all(|held| held.is_as_it_was()) {
            self.port.misuse.set(Some("a packet has changed before the device read it"));
        }
    }
}

impl TxQueue for SimTx {
    type Route = SimRoute;

    fn push_bytes(&mut self, route: &SimRoute, bytes: &[u8]) {
        self.send(*route, |packet| packet.extend_from_slice(bytes));
    }

    fn push(&mut self, route: &SimRoute, packet: TxPacket<'_>) {
        let (pieces, trailer) = packet.pieces();
        if packet.len() > self.port.nic.inline {
            let msgbuf = packet.hold();
            let message = msgbuf.as_slice();
            // In the first packet, header and message are contiguous: the header stands right in
            // front.
            let offset = (pieces[1].as_ptr() as usize).saturating_sub(message.as_ptr() as usize);
            let offset = if pieces[1].is_empty() { 0 } else { offset };
            let again = self.held.iter().any(|held| {
                held.offset == offset && held.msgbuf.as_slice().as_ptr() == message.as_ptr()
            });
            if again {
                let what = "a packet is sent again, its header written, while the device reads the first copy";
                self.port.misuse.set(Some(what));
            }
            // The first packet's first piece is the header and the data.
            let data = if pieces[1].is_empty() { &pieces[0][HEADER_LEN..] } else { pieces[1] };
            let compared = self.port.is_one_of(COMPARED_ONE_IN);
            let was = compared.then(|| (data.len(), trailer_of(&[], data)));
            self.held.push(Held { msgbuf, offset, read_at: Instant::NEVER, was });
        }
        self.send(*route, |bytes| {
            pieces.iter().for_each(|piece| bytes.extend_from_slice(piece));
            bytes.extend(trailer.into_iter().flatten());
        });
    }

    fn flush(&mut self) {
        self.complete(self.held.len());
        self.rung = 0;
    }

    fn doorbell(&mut self) {
        let read_at = self.port.now.get().plus_nanos(self.port.nic.dma_nanos);
        for held in &mut self.held[self.rung..] {
            held.read_at = read_at;
        }
        self.rung = self.held.len();
        self.reclaim();
    }

    fn reclaim(&mut self) {
        let now = self.port.now.get();
        let read = self.held[..self.rung].iter().take_while(|held| held.read_at <= now).count();
        self.complete(read);
        self.rung -= read;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn msgbuf(bytes: &[u8]) -> MsgBuf {
        let mut msgbuf = MsgBuf::detached(bytes.len()).expect("memory is available");
        msgbuf.resize(bytes.len());
        msgbuf.as_mut_slice().copy_from_slice(bytes);
        msgbuf
    }

    fn held(bytes: &[u8], was: Option<&[u8]>) -> Held {
        let was = was.map(|was| (was.len(), trailer_of(&[], was)));
        Held { msgbuf: msgbuf(bytes), offset: 2, read_at: Instant::ZERO, was }
    }

    fn nic() -> Nic {
        Nic::ring(1_472, 256)
    }

    #[test]
    fn a_packet_keeps_its_mark() {
        let port = Port::new(SimRoute::new(0, 1), nic());
        for marked in [true, false, true] {
            assert!(port.deliver(SimRoute::new(1, 1), vec![0; 24], marked));
        }
        let mut transport = SimTransport::new(port);
        assert_eq!(transport.rx.burst(), 3);
        let marks: Vec<bool> = (0..3).map(|at| transport.rx.packet(at).marked).collect();
        assert_eq!(marks, [true, false, true]);
    }

    #[test]
    fn an_endpoint_knows_the_rate_of_its_link() {
        let nic = Nic { link: Link::Rate(3_125_000_000), ..nic() };
        let mut transport = SimTransport::new(Port::new(SimRoute::new(0, 1), nic));
        let path = transport.path(&SimRoute::new(1, 1));
        assert_eq!((path.datagram, path.link), (nic.max_datagram, nic.link));
        assert_eq!(transport.capabilities().rtt_noise, nic.rtt_noise);
    }

    #[test]
    fn a_packet_that_changed_after_the_push_is_detected() {
        assert!(held(b"..data..", Some(b"data")).is_as_it_was());
        assert!(held(b"..data..", Some(b"")).is_as_it_was());
        assert!(!held(b"..dada..", Some(b"data")).is_as_it_was(), "the data was overwritten");
        assert!(!held(b"..dat", Some(b"data")).is_as_it_was(), "the message is shorter");
        assert!(held(b"..dada..", None).is_as_it_was(), "this packet is not compared");
    }

    #[test]
    fn a_change_is_misuse_when_the_device_releases_the_packet() {
        let nic = nic();
        for (changed, flushed) in [(false, true), (true, true), (false, false), (true, false)] {
            let mut transport = SimTransport::new(Port::new(SimRoute::new(0, 1), nic));
            let bytes: &[u8] = if changed { b"..dada.." } else { b"..data.." };
            let tx = &mut transport.tx;
            tx.held = vec![held(b"..data..", Some(b"data")), held(bytes, Some(b"data"))];
            tx.rung = 2;
            if flushed {
                tx.flush()
            } else {
                tx.reclaim()
            }
            assert!(tx.held.is_empty());
            assert_eq!(transport.port.take_misuse().is_some(), changed);
        }
    }
}
