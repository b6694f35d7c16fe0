//! A transport between two injectors.

use std::fmt;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::FaultPlan;
use super::handle::{FaultHandle, FaultState, lock};
use super::line::Line;
use super::packets::{Lent, Outgoing};
use crate::transport::{
    Arena, Capabilities, NoMarks, Path, RxPacket, RxQueue, Transport, TransportStats, TxPacket,
    TxQueue, Undelivered, Waker,
};

/// A transport whose packets suffer from a [`FaultPlan`]. All sessions over it have checksums,
/// because the plan may damage packets.
///
/// Each received packet is copied once more, and each sent packet costs an uncontended lock. If the
/// plan has no faults, only the checksums cost more than that, and no clock is read.
///
/// Delays and outages use the system's monotonic clock, which is read once per burst and doorbell,
/// and twice per wait. A delayed packet is held back until it is due. Then the next burst delivers
/// it, or the next doorbell sends it. A wait ends when a packet is due. At most 65,536 packets are
/// held back in each direction. Further ones are lost, and counted in
/// [`TransportStats::rx_overflow`] or [`TransportStats::tx_dropped`]. Received packets that grow
/// beyond the largest datagram are lost, too, and counted in [`TransportStats::rx_truncated`].
pub struct Faulty<T: Transport> {
    /// Shared with `rx` and `tx`, because `split` lends both at the same time. Only one thread at a
    /// time can use the transport or a half, so the lock is uncontended.
    line: Arc<Mutex<Line<T>>>,
    rx: FaultyRx<T>,
    tx: FaultyTx<T>,
    shared: Arc<FaultState>,
}

impl<T: Transport> Faulty<T> {
    /// Wraps `inner`. The plan takes effect now.
    #[must_use]
    pub fn new(inner: T, plan: FaultPlan) -> Self {
        let shared = Arc::new(FaultState::new(plan));
        let line = Arc::new(Mutex::new(Line::new(inner, Arc::clone(&shared))));
        let rx = FaultyRx { line: Arc::clone(&line), lent: Lent::new(), is_drained: false };
        let tx = FaultyTx { line: Arc::clone(&line) };
        Self { line, rx, tx, shared }
    }

    /// A handle to the plan and its counters.
    #[must_use]
    pub fn handle(&self) -> FaultHandle {
        FaultHandle(Arc::clone(&self.shared))
    }

    /// Calls `look` with the wrapped transport.
    pub(crate) fn with_inner<R>(&self, look: impl FnOnce(&T) -> R) -> R {
        look(&lock(&self.line).inner)
    }
}

impl<T: Transport> Transport for Faulty<T> {
    type Route = T::Route;
    type Rx = FaultyRx<T>;
    type Tx = FaultyTx<T>;

    const WAKES_FOR_PACKETS: bool = T::WAKES_FOR_PACKETS;
    const OVERFLOW_HINT: Option<&'static str> = T::OVERFLOW_HINT;

    fn split(&mut self) -> (&mut FaultyRx<T>, &mut FaultyTx<T>) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        // The wrapper damages packets before the inner transport protects them, or after it has
        // checked them.
        Capabilities { integrity: false, ..lock(&self.line).inner.capabilities() }
    }

    fn local_route(&self) -> T::Route {
        lock(&self.line).inner.local_route()
    }

    fn arena(&self) -> Option<Arc<dyn Arena>> {
        lock(&self.line).inner.arena()
    }

    fn path(&mut self, peer: &T::Route) -> Path {
        lock(&self.line).inner.path(peer)
    }

    fn knows_path(&self, peer: &T::Route) -> bool {
        lock(&self.line).inner.knows_path(peer)
    }

    fn enable_ecn(&mut self) -> Result<(), NoMarks> {
        lock(&self.line).inner.enable_ecn()
    }

    fn has_undelivered(&self) -> bool {
        lock(&self.line).inner.has_undelivered()
    }

    fn next_undelivered(&mut self) -> Option<Undelivered<T::Route>> {
        lock(&self.line).inner.next_undelivered()
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        lock(&self.line).wait(timeout);
    }

    fn waker(&self) -> Waker {
        lock(&self.line).inner.waker()
    }

    fn stats(&self) -> TransportStats {
        lock(&self.line).stats()
    }
}

impl<T: Transport> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("plan", &self.shared.plan().0).finish_non_exhaustive()
    }
}

/// The receiving half of a [`Faulty`] transport.
pub struct FaultyRx<T: Transport> {
    line: Arc<Mutex<Line<T>>>,
    lent: Lent<T::Route>,
    is_drained: bool,
}

impl<T: Transport> RxQueue for FaultyRx<T> {
    type Route = T::Route;

    const IS_SYSTEM_CALL: bool = T::Rx::IS_SYSTEM_CALL;

    fn burst(&mut self) -> usize {
        self.is_drained = lock(&self.line).receive(&mut self.lent);
        self.lent.len()
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    #[inline]
    fn packet(&self, index: usize) -> RxPacket<'_, T::Route> {
        self.lent.packet(index)
    }
}

impl<T: Transport> fmt::Debug for FaultyRx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyRx").field("lent", &self.lent.len()).finish_non_exhaustive()
    }
}

/// The sending half of a [`Faulty`] transport.
pub struct FaultyTx<T: Transport> {
    line: Arc<Mutex<Line<T>>>,
}

impl<T: Transport> TxQueue for FaultyTx<T> {
    type Route = T::Route;

    #[inline]
    fn push_bytes(&mut self, route: &T::Route, bytes: &[u8]) {
        lock(&self.line).send(route, Outgoing::Bytes(bytes));
    }

    #[inline]
    fn push(&mut self, route: &T::Route, packet: TxPacket<'_>) {
        lock(&self.line).send(route, Outgoing::Message(packet));
    }

    fn flush(&mut self) {
        lock(&self.line).end_turn(TxQueue::flush);
    }

    fn doorbell(&mut self) {
        lock(&self.line).end_turn(TxQueue::doorbell);
    }

    fn reclaim(&mut self) {
        lock(&self.line).inner.split().1.reclaim();
    }
}

impl<T: Transport> fmt::Debug for FaultyTx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyTx").finish_non_exhaustive()
    }
}
