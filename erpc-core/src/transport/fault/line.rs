//! A transport with an injector in each direction.

use std::sync::Arc;
use std::time::Duration;

use super::handle::FaultState;
use super::late::Late;
use super::packets::{Lent, Outgoing, Owned, push_owned};
use super::{FaultStats, Injector, PacketCopy};
use crate::clock;
use crate::mutants::mutant;
use crate::time::Instant;
use crate::transport::{Capabilities, RxPacket, RxQueue, Transport, TransportStats};

/// The inner transport between two injectors.
pub(super) struct Line<T: Transport> {
    pub(super) inner: T,
    limits: Capabilities,
    rx: Way<T::Route>,
    tx: Way<T::Route>,
    /// Time of the last burst, doorbell or wait at which the clock was needed.
    now: Instant,
    shared: Arc<FaultState>,
    version: u64,
    /// Counts under earlier plans.
    past: FaultStats,
    /// The counts that handles see.
    published: FaultStats,
}

/// The state of one direction.
struct Way<R> {
    injector: Injector,
    late: Late<R>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    /// Packets lost because too many were held back already.
    crowded_out: u64,
    /// Packets that damage made longer than the largest datagram.
    too_long: u64,
}

/// Maximum number of buffers that are kept for reuse.
const SPARE: usize = 256;

impl<R> Way<R> {
    fn new(injector: Injector) -> Self {
        Self { injector, late: Late::new(), spare: Vec::new(), crowded_out: 0, too_long: 0 }
    }

    /// Whether packets pass unchanged and none are held back.
    fn is_quiet(&self) -> bool {
        self.injector.is_idle() && (self.late.is_empty() || mutant!(LateLeftBehind))
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(bytes);
        }
    }

    /// The bytes of a copy, with its damage. `write` appends the bytes of the packet itself.
    fn bytes_of(&mut self, copy: &PacketCopy, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
        let mut bytes = self.spare.pop().unwrap_or_default();
        bytes.clear();
        write(&mut bytes);
        if let Some(damage) = &copy.damage {
            damage.inflict(&mut bytes);
        }
        bytes
    }

    fn hold(&mut self, due: Instant, packet: Owned<R>) {
        if let Err(packet) = self.late.hold(due, packet) {
            self.crowded_out += 1;
            self.recycle(packet.bytes);
        }
    }
}

impl<T: Transport> Line<T> {
    pub(super) fn new(inner: T, shared: Arc<FaultState>) -> Self {
        let (plan, start) = shared.plan();
        Self {
            limits: inner.capabilities(),
            inner,
            rx: Way::new(plan.rx_injector(start)),
            tx: Way::new(plan.tx_injector(start)),
            now: start,
            version: shared.version(),
            shared,
            past: FaultStats::default(),
            published: FaultStats::default(),
        }
    }

    /// Whether both directions are quiet.
    fn is_quiet(&self) -> bool {
        self.rx.is_quiet() && self.tx.is_quiet()
    }

    /// Applies the newest plan.
    #[inline]
    fn follow_plan(&mut self) {
        if self.shared.version() != self.version {
            self.change_plan();
        }
    }

    #[cold]
    fn change_plan(&mut self) {
        // Read the version before the plan: a plan set in between is then read twice, not missed.
        self.version = self.shared.version();
        let (plan, start) = self.shared.plan();
        self.publish();
        if !mutant!(PastForgotten) {
            self.past = self.published;
        }
        self.rx.injector = plan.rx_injector(start);
        self.tx.injector = plan.tx_injector(start);
        self.now = start;
    }

    /// Applies the newest plan and, if a fault needs it, reads the clock.
    fn look_up(&mut self) {
        self.follow_plan();
        if !self.is_quiet() {
            self.now = clock::now();
        }
    }

    /// Updates the counts that handles see, if they can have changed.
    fn publish(&mut self) {
        if self.rx.injector.is_idle() && self.tx.injector.is_idle() {
            return;
        }
        let mut counted = self.past;
        counted.rx += self.rx.injector.counts();
        counted.tx += self.tx.injector.counts();
        if counted != self.published {
            self.published = counted;
            self.shared.publish(counted);
        }
    }

    /// Fills `lent` with a burst: first held-back packets that are due, then new ones. Returns
    /// whether the queue is empty.
    pub(super) fn receive(&mut self, lent: &mut Lent<T::Route>) -> bool {
        lent.clear();
        self.look_up();
        let Self { inner, limits, rx: way, now, .. } = self;
        while lent.len() < limits.burst
            && let Some(packet) = way.late.take_due(*now)
        {
            lent.push(packet.lend());
            way.recycle(packet.bytes);
        }
        // While due packets are left over, no new ones are received. Otherwise the number of
        // held-back packets would grow without bound.
        if lent.len() < limits.burst {
            let (rx, _) = inner.split();
            for index in 0..rx.burst() {
                way.receive(rx.packet(index), *now, limits, lent);
            }
        }
        let is_drained = lent.len() < limits.burst && inner.split().0.is_drained();
        self.publish();
        is_drained
    }

    #[inline]
    pub(super) fn send(&mut self, route: &T::Route, packet: Outgoing<'_>) {
        self.follow_plan();
        let (_, tx) = self.inner.split();
        let fate = self.tx.injector.judge(self.now, packet.len());
        if fate.is_intact() {
            return packet.push(tx, route);
        }
        for copy in fate.copies() {
            if copy.is_intact() {
                packet.push(tx, route);
                continue;
            }
            let bytes = self.tx.bytes_of(&copy, |out| packet.write(out));
            if copy.delay.is_zero() {
                push_owned(tx, route, &bytes);
                self.tx.recycle(bytes);
            } else {
                self.tx.hold(self.now + copy.delay, Owned { route: *route, bytes, marked: false });
            }
        }
    }

    /// Passes on the packets that are due and ends the turn with `end`.
    pub(super) fn end_turn(&mut self, end: impl FnOnce(&mut T::Tx)) {
        self.look_up();
        let (_, tx) = self.inner.split();
        while let Some(packet) = self.tx.late.take_due(self.now) {
            push_owned(tx, &packet.route, &packet.bytes);
            self.tx.recycle(packet.bytes);
        }
        end(tx);
        self.publish();
    }

    /// Waits at most until a packet that is held back is due.
    pub(super) fn wait(&mut self, timeout: Option<Duration>) {
        self.look_up();
        let due = [self.rx.late.next_due(), self.tx.late.next_due()].into_iter().flatten().min();
        let until_due = due.map(|due| due - self.now);
        self.inner.wait(timeout.into_iter().chain(until_due).min());
        self.look_up();
    }

    pub(super) fn stats(&self) -> TransportStats {
        let mut stats = self.inner.stats();
        stats.rx_overflow += self.rx.crowded_out;
        stats.rx_truncated += self.rx.too_long;
        stats.tx_dropped += self.tx.crowded_out;
        stats
    }
}

impl<R: Copy> Way<R> {
    fn receive(
        &mut self,
        packet: RxPacket<'_, R>,
        now: Instant,
        limits: &Capabilities,
        lent: &mut Lent<R>,
    ) {
        for copy in self.injector.judge(now, packet.bytes.len()).copies() {
            if copy.is_intact() && lent.len() < limits.burst {
                lent.push(packet);
                continue;
            }
            let bytes = self.bytes_of(&copy, |out| out.extend_from_slice(packet.bytes));
            if bytes.len() > limits.max_datagram && !mutant!(LongPacketPassed) {
                self.too_long += 1;
                self.recycle(bytes);
            } else if copy.delay.is_zero() && lent.len() < limits.burst {
                lent.push(RxPacket { bytes: &bytes, ..packet });
                self.recycle(bytes);
            } else {
                // Packets that do not fit into this burst come first in the next one.
                let RxPacket { route, marked, .. } = packet;
                self.hold(now + copy.delay, Owned { route, bytes, marked });
            }
        }
    }
}
