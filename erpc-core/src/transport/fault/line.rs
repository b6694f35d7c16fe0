//! A transport and what is done to its packets, in both directions.

use std::sync::Arc;
use std::time::Duration;

use super::handle::FaultState;
use super::late::Late;
use super::packets::{Lent, Outgoing, Owned, push_owned};
use super::{FaultStats, Injector, PacketCopy};
use crate::clock;
use crate::time::Instant;
use crate::transport::{Capabilities, RxPacket, RxQueue, Transport, TransportStats};

/// The inner transport between two injectors.
pub(super) struct Line<T: Transport> {
    pub(super) inner: T,
    limits: Capabilities,
    rx: Way<T::Route>,
    tx: Way<T::Route>,
    /// When the last burst, doorbell or wait was, if anything wanted to know.
    now: Instant,
    shared: Arc<FaultState>,
    version: u64,
    /// What acted under earlier plans.
    past: FaultStats,
    /// What others see.
    published: FaultStats,
}

/// One direction.
struct Way<R> {
    injector: Injector,
    late: Late<R>,
    /// Buffers for reuse.
    spare: Vec<Vec<u8>>,
    /// Packets that should have been held back, for whom there was no room.
    crowded_out: u64,
    /// Packets that were longer, as damaged, than can be received.
    too_long: u64,
}

/// Most buffers that are kept for reuse.
const SPARE: usize = 256;

impl<R> Way<R> {
    fn new(injector: Injector) -> Self {
        Self { injector, late: Late::new(), spare: Vec::new(), crowded_out: 0, too_long: 0 }
    }

    /// Nothing is done to packets and none are held back.
    fn is_quiet(&self) -> bool {
        self.injector.is_idle() && self.late.is_empty()
    }

    fn recycle(&mut self, bytes: Vec<u8>) {
        if self.spare.len() < SPARE {
            self.spare.push(bytes);
        }
    }

    /// A packet's bytes as `copy` has them: `write` appends those of the packet itself.
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

    /// Whether both directions let everything pass.
    fn is_quiet(&self) -> bool {
        self.rx.is_quiet() && self.tx.is_quiet()
    }

    /// Puts the newest plan into effect.
    #[inline]
    fn follow_plan(&mut self) {
        if self.shared.version() != self.version {
            self.change_plan();
        }
    }

    #[cold]
    fn change_plan(&mut self) {
        // Before the plan: one that comes meanwhile is then read twice rather than not at all.
        self.version = self.shared.version();
        let (plan, start) = self.shared.plan();
        self.publish();
        self.past = self.published;
        self.rx.injector = plan.rx_injector(start);
        self.tx.injector = plan.tx_injector(start);
        self.now = start;
    }

    /// Looks at the plan and, if there is a use for it, at the clock.
    fn look_up(&mut self) {
        self.follow_plan();
        if !self.is_quiet() {
            self.now = clock::now();
        }
    }

    /// Lets others see what has acted, if anything can have.
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

    /// Fills `lent` with a burst: first what is due, then what has come. Returns whether nothing is left.
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
        // Not while copies of earlier packets wait, or they would become ever more.
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

    /// Passes on what is due and ends the turn with `end`.
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

    /// Waits no longer than until a packet that was held back is due.
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
            if bytes.len() > limits.max_datagram {
                self.too_long += 1;
                self.recycle(bytes);
            } else if copy.delay.is_zero() && lent.len() < limits.burst {
                lent.push(RxPacket { bytes: &bytes, ..packet });
                self.recycle(bytes);
            } else {
                // What this burst has no room for comes first in the next.
                let RxPacket { route, marked, .. } = packet;
                self.hold(now + copy.delay, Owned { route, bytes, marked });
            }
        }
    }
}
