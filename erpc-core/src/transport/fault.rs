//! A transport that misbehaves on purpose.
//!
//! [`Faulty`] wraps any transport and loses, doubles, delays and damages packets in both directions,
//! by chance but repeatably: decisions depend on the plan's seed and on the packets' order, on nothing
//! else. Each fault that acted is counted, so that a test can tell a protocol that survived from a
//! fault that never happened.
//!
//! ```
//! use erpc_core::transport::Transport;
//! use erpc_core::transport::fault::{FaultPlan, Faults, Faulty};
//! use erpc_core::transport::udp::{UdpConfig, UdpTransport};
//!
//! let plan = FaultPlan::new(7).both(Faults::none().drop(0.01).reorder(0.05, 3));
//! let transport = Faulty::new(UdpTransport::bind(&UdpConfig::new())?, plan);
//! let handle = transport.handle();
//! // .. run something over the transport, then heal the network and look back:
//! handle.set_plan(FaultPlan::new(7));
//! assert_eq!(handle.stats().rx.dropped, 0);
//! # Ok::<(), erpc_core::transport::udp::UdpError>(())
//! ```

mod dice;
mod late;
mod plan;

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::BufMut;
use dice::{Dice, Verdict};
use late::{Late, Owned};
pub use plan::{FaultCounts, FaultHandle, FaultPlan, FaultStats, Faults};
use plan::{Shared, count};

use super::{
    Capabilities, MAX_BURST, MIN_DATAGRAM, RxPacket, RxQueue, Transport, TransportStats, TxPacket,
    TxQueue, Waker,
};
use crate::buf::MsgBuf;

/// A transport whose packets suffer from a [`FaultPlan`].
///
/// Packets are copied once more on their way in; everything else costs a lock that is never contended.
/// A plan without faults changes nothing else.
pub struct Faulty<T: Transport> {
    inner: Arc<Mutex<T>>,
    rx: FaultyRx<T>,
    tx: FaultyTx<T>,
    shared: Arc<Shared>,
}

impl<T: Transport> Faulty<T> {
    /// Wraps `inner`.
    #[must_use]
    pub fn new(inner: T, plan: FaultPlan) -> Self {
        let inner = Arc::new(Mutex::new(inner));
        let shared = Arc::new(Shared::new(plan));
        let rx = FaultyRx {
            inner: Arc::clone(&inner),
            dice: Dice::new(&shared, true),
            late: Late::new(),
            ready: VecDeque::new(),
            lent: Vec::with_capacity(MAX_BURST),
            spare: Vec::new(),
        };
        let tx = FaultyTx {
            inner: Arc::clone(&inner),
            dice: Dice::new(&shared, false),
            late: Late::new(),
        };
        Self { inner, rx, tx, shared }
    }

    /// A handle to the plan and its counters.
    #[must_use]
    pub fn handle(&self) -> FaultHandle {
        FaultHandle(Arc::clone(&self.shared))
    }
}

impl<T: Transport> Transport for Faulty<T> {
    type Route = T::Route;
    type Rx = FaultyRx<T>;
    type Tx = FaultyTx<T>;

    fn split(&mut self) -> (&mut FaultyRx<T>, &mut FaultyTx<T>) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        lock(&self.inner).capabilities()
    }

    fn local_route(&self) -> T::Route {
        lock(&self.inner).local_route()
    }

    fn path_datagram(&mut self, peer: &T::Route) -> usize {
        lock(&self.inner).path_datagram(peer)
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.tx.late.release_all();
        self.tx.flush();
        if self.rx.ready.is_empty() && self.rx.late.is_empty() {
            lock(&self.inner).wait(timeout);
        } else {
            self.rx.late.release_all();
        }
    }

    fn waker(&self) -> Waker {
        lock(&self.inner).waker()
    }

    fn stats(&self) -> TransportStats {
        lock(&self.inner).stats()
    }
}

impl<T: Transport> fmt::Debug for Faulty<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Faulty").field("plan", &*lock(&self.shared.plan)).finish_non_exhaustive()
    }
}

/// The receiving half of a [`Faulty`] transport.
pub struct FaultyRx<T: Transport> {
    inner: Arc<Mutex<T>>,
    dice: Dice,
    late: Late<T::Route>,
    /// Packets that no burst has taken yet.
    ready: VecDeque<Owned<T::Route>>,
    lent: Vec<Owned<T::Route>>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
}

impl<T: Transport> FaultyRx<T> {
    fn receive(&mut self, packet: RxPacket<'_, T::Route>) {
        self.late.packets += 1;
        if let Some(verdict) = self.dice.roll() {
            let mut bytes = self.spare.pop().unwrap_or_default();
            bytes.clear();
            bytes.extend_from_slice(packet.bytes);
            let counters = self.dice.counters();
            if let Some(damage) = &verdict.damage {
                damage.inflict(&mut bytes, counters);
            }
            let packet = Owned { route: packet.route, bytes };
            if verdict.duplicate {
                self.ready.push_back(packet.clone());
                count(&counters.duplicated);
            }
            match verdict.overtaken_by {
                Some(overtakers) => {
                    count(&counters.reordered);
                    self.late.hold(overtakers, packet);
                }
                None => self.ready.push_back(packet),
            }
        }
        self.ready.extend(std::iter::from_fn(|| self.late.take_due()));
    }
}

impl<T: Transport> RxQueue for FaultyRx<T> {
    type Route = T::Route;

    fn burst(&mut self) -> usize {
        self.spare.extend(self.lent.drain(..).map(|packet| packet.bytes));
        self.late.turns += 1;
        // Without this, duplicates would make the queue grow without bound.
        if self.ready.len() < MAX_BURST {
            let inner = Arc::clone(&self.inner);
            let mut inner = lock(&inner);
            let (rx, _) = inner.split();
            for index in 0..rx.burst() {
                self.receive(rx.packet(index));
            }
        }
        self.ready.extend(std::iter::from_fn(|| self.late.take_due()));
        let count = self.ready.len().min(MAX_BURST);
        self.lent.extend(self.ready.drain(..count));
        count
    }

    fn packet(&self, index: usize) -> RxPacket<'_, T::Route> {
        let packet = &self.lent[index];
        RxPacket { route: packet.route, bytes: &packet.bytes }
    }
}

impl<T: Transport> fmt::Debug for FaultyRx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyRx").field("late", &!self.late.is_empty()).finish_non_exhaustive()
    }
}

/// The sending half of a [`Faulty`] transport.
pub struct FaultyTx<T: Transport> {
    inner: Arc<Mutex<T>>,
    dice: Dice,
    late: Late<T::Route>,
}

/// A packet on its way out, in either form.
enum Outgoing<'a> {
    Bytes(&'a [u8]),
    Message(TxPacket<'a>),
}

impl<T: Transport> FaultyTx<T> {
    fn send(&mut self, route: &T::Route, packet: &Outgoing<'_>) {
        self.late.packets += 1;
        let inner = Arc::clone(&self.inner);
        let mut inner = lock(&inner);
        let (_, tx) = inner.split();
        if let Some(verdict) = self.dice.roll() {
            let copies = 1 + usize::from(verdict.duplicate);
            if verdict.duplicate {
                count(&self.dice.counters().duplicated);
            }
            let harmed = verdict.damage.is_some() || verdict.overtaken_by.is_some();
            match harmed {
                true => self.send_harmed(route, packet.to_vec(), &verdict, tx),
                false => (0..copies).for_each(|_| packet.push(tx, route)),
            }
        }
        self.send_due(tx);
    }

    fn send_harmed(
        &mut self,
        route: &T::Route,
        mut bytes: Vec<u8>,
        verdict: &Verdict,
        tx: &mut T::Tx,
    ) {
        let counters = self.dice.counters();
        if let Some(damage) = &verdict.damage {
            damage.inflict(&mut bytes, counters);
        }
        if verdict.duplicate {
            push_owned(tx, route, &bytes);
        }
        match verdict.overtaken_by {
            Some(overtakers) => {
                count(&counters.reordered);
                self.late.hold(overtakers, Owned { route: *route, bytes });
            }
            None => push_owned(tx, route, &bytes),
        }
    }

    fn send_due(&mut self, tx: &mut T::Tx) {
        while let Some(packet) = self.late.take_due() {
            push_owned(tx, &packet.route, &packet.bytes);
        }
    }

    fn end_turn(&mut self, end: impl FnOnce(&mut T::Tx)) {
        self.late.turns += 1;
        let inner = Arc::clone(&self.inner);
        let mut inner = lock(&inner);
        let (_, tx) = inner.split();
        self.send_due(tx);
        end(tx);
    }
}

/// Pushes bytes of any length: beyond what can be pushed as such, as a message that is all header.
fn push_owned<Q: TxQueue>(tx: &mut Q, route: &Q::Route, bytes: &[u8]) {
    if bytes.len() <= MIN_DATAGRAM {
        tx.push_bytes(route, bytes);
    } else if let Some(mut message) = MsgBuf::detached(bytes.len()) {
        message.put_slice(bytes);
        tx.push(route, TxPacket::new(&message, message.as_slice(), &[]));
    }
}

impl Outgoing<'_> {
    fn to_vec(&self) -> Vec<u8> {
        match self {
            Self::Bytes(bytes) => bytes.to_vec(),
            Self::Message(packet) => {
                let mut bytes = vec![0; packet.len()];
                packet.copy_to(&mut bytes);
                bytes
            }
        }
    }

    fn push<Q: TxQueue>(&self, tx: &mut Q, route: &Q::Route) {
        match self {
            Self::Bytes(bytes) => tx.push_bytes(route, bytes),
            Self::Message(packet) => tx.push(route, *packet),
        }
    }
}

impl<T: Transport> TxQueue for FaultyTx<T> {
    type Route = T::Route;

    fn push_bytes(&mut self, route: &T::Route, bytes: &[u8]) {
        self.send(route, &Outgoing::Bytes(bytes));
    }

    fn push(&mut self, route: &T::Route, packet: TxPacket<'_>) {
        self.send(route, &Outgoing::Message(packet));
    }

    fn flush(&mut self) {
        self.end_turn(TxQueue::flush);
    }

    fn doorbell(&mut self) {
        self.end_turn(TxQueue::doorbell);
    }
}

impl<T: Transport> fmt::Debug for FaultyTx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FaultyTx").field("late", &!self.late.is_empty()).finish_non_exhaustive()
    }
}

/// A lock that only one thread at a time has a use for; a panic elsewhere does not spoil it.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
