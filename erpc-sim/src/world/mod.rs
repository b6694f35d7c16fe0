//! One run: endpoints, a network, and the clock that moves them.

mod chaos;
mod checks;
mod ending;
mod report;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use erpc_core::protocol::ListenGroup;
use erpc_core::time::Instant;
use erpc_core::transport::MAX_BURST;
use erpc_core::transport::fault::{Fate, FaultCounts, PacketCopy};
use erpc_core::wire::{CANCEL, HEADER_LEN, Header, Kind, checksum};

use crate::agenda::Agenda;
use crate::net::{Network, Packet};
use crate::node::Node;
use crate::oracle::{Hardships, Oracle, Outcomes};
use crate::party::{Answer, Turn};
use crate::plan::Plan;
use crate::shelf::Shelf;
use crate::transport::Sent;
use crate::{Feature, Random, SimRoute, pattern};

pub use report::{Happened, Report};

#[derive(Clone, Copy)]
enum Event {
    /// A turn of an endpoint may be due.
    Alarm(u32),
    /// A packet goes on that was held back.
    GoOn(u32),
    /// An answer that was put off is given.
    Answer(u32),
    /// A caller has waited long enough.
    Cancel(u32),
    Round(u32, u32),
    Happens(u32),
    Restart(u32),
    Unstall(u32),
    Unhoard(u32),
    /// Packets of the past that an endpoint sent or received come again.
    ReplayOf(u32),
    /// Everybody has rested.
    Rested,
    Heal,
}

/// Where a packet is held back: between an endpoint and the network.
#[derive(Clone, Copy)]
enum Way {
    Out,
    In,
}

/// Where a run is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Faults,
    /// Nothing new happens; calls end.
    Draining {
        until: Instant,
        since: Instant,
    },
    /// Calls have ended and sessions are idle.
    Resting {
        until: Instant,
        leave_by: Instant,
    },
    /// Sessions close.
    Leaving {
        until: Instant,
    },
}

/// A world in motion.
pub struct World<'p> {
    plan: &'p Plan,
    now: Instant,
    network: Network,
    nodes: Vec<Node>,
    /// Endpoints by address.
    places: BTreeMap<SimRoute, usize>,
    /// What the endpoints of a host listen as, by host and life.
    groups: BTreeMap<(u32, u32), Arc<ListenGroup>>,
    agenda: Agenda<Event>,
    /// Endpoints whose turn is now.
    ready: VecDeque<u32>,
    waiting: Shelf<(Packet, Way)>,
    answers: Shelf<(usize, u32, Answer)>,
    /// Calls to be cancelled: whose, in which life, which.
    cancels: Shelf<(usize, u32, u32)>,
    /// Requests that servers have accepted: whose, to whom, and the session and the number there.
    accepted: BTreeSet<(SimRoute, SimRoute, u64, u32)>,
    oracle: Oracle,
    phase: Phase,
    chances: chaos::Chances,
    /// Sessions carry checksums.
    has_checksums: bool,
    /// Packets of the past.
    recorded: Vec<Packet>,
    sent: Vec<Sent>,
    later: Vec<(u64, Answer)>,
    trace: u64,
    faults: FaultCounts,
    happened: Happened,
    bound_used: u64,
}

/// Where a request's first packet says how much time is left.
const DEADLINE_AT: usize = HEADER_LEN + 4;

/// Packets of the past that are remembered.
const RECORDED: usize = 512;
/// One in so many packets is.
const RECORD_ONE_IN: u64 = 8;

impl<'p> World<'p> {
    /// The world of a plan, at its beginning.
    #[must_use]
    pub fn new(plan: &'p Plan) -> Self {
        let start = Instant::from_nanos(1_000_000_000);
        let nodes: Vec<_> = (0..plan.endpoints.len())
            .map(|index| Node::new(index, &plan.endpoints[index], plan.seed, start))
            .collect();
        let places =
            plan.endpoints.iter().enumerate().map(|(at, endpoint)| (endpoint.route, at)).collect();
        let mut world = Self {
            plan,
            now: start,
            network: Network::new(&plan.topology),
            nodes,
            places,
            groups: BTreeMap::new(),
            agenda: Agenda::new(),
            ready: VecDeque::new(),
            waiting: Shelf::new(),
            answers: Shelf::new(),
            cancels: Shelf::new(),
            accepted: BTreeSet::new(),
            oracle: Oracle::new(plan),
            phase: Phase::Faults,
            chances: chaos::Chances::new(&Random::new(plan.seed).fork(7)),
            has_checksums: plan.features.has(Feature::Checksums),
            recorded: Vec::new(),
            sent: Vec::new(),
            later: Vec::new(),
            trace: plan.seed,
            faults: FaultCounts::default(),
            happened: Happened::default(),
            bound_used: 0,
        };
        for index in 0..plan.endpoints.len() {
            world.start(index);
            for &(at, calls) in &plan.endpoints[index].rounds {
                world.agenda.put(at, Event::Round(index as u32, calls));
            }
        }
        for (at, (when, _)) in plan.events.iter().enumerate() {
            world.agenda.put(*when, Event::Happens(at as u32));
        }
        world.agenda.put(plan.heal_at, Event::Heal);
        world
    }

    /// Lets everything happen, to the end or the first violation.
    pub(crate) fn go_on_to_the_end(&mut self) {
        while self.oracle.violation().is_none() && self.step() {}
    }

    /// How far the run has come, if an assertion ends it: the time, packets and calls.
    pub(crate) fn progress(&self) -> (Instant, u64, u64) {
        (self.now, self.network.stats().sent, self.oracle.calls())
    }

    pub(crate) fn report(mut self) -> Report {
        for node in &mut self.nodes {
            self.faults += node.heal();
            self.happened.overflows += node.port.stats().rx_overflow;
            self.happened.responses_refused += node.party.responses_refused;
            self.happened.cancels += node.party.cancelled;
            if let Some(rpc) = &mut node.rpc {
                let stats = rpc.stats().protocol;
                self.happened.turned_down += stats.turned_down;
                self.happened.given_up += stats.given_up;
                self.happened.cancelled += stats.cancelled;
                self.happened.late_responses += stats.late_responses;
            }
        }
        let network = self.network.stats();
        self.happened.nic_drops = network.dropped_full_nic;
        self.happened.switch_drops = network.dropped_full_port + network.dropped_full_buffer;
        self.happened.marks = network.marked;
        let Hardships { panics, allocations_refused, extended, late } = self.oracle.hardships();
        (self.happened.panics, self.happened.allocations_refused) = (panics, allocations_refused);
        (self.happened.extended, self.happened.late) = (extended, late);
        let outcomes = self.oracle.outcomes();
        let Outcomes { responses, statuses, not_executed, maybe_executed, .. } = outcomes;
        let others = [outcomes.responses_lost, outcomes.rejected, outcomes.abandoned];
        let counts = [responses, statuses, not_executed, maybe_executed].into_iter().chain(others);
        for count in counts {
            self.trace = pattern::mix(self.trace ^ count);
        }
        Report {
            violation: self.oracle.violation().cloned(),
            packets: self.network.stats().sent,
            calls: self.oracle.calls(),
            outcomes,
            sessions_opened: self.oracle.sessions_opened(),
            faults: self.faults,
            happened: self.happened,
            trace_hash: self.trace,
            nanos: self.now.as_nanos(),
            bound_used: self.bound_used,
        }
    }

    /// The next event; false when the run is over.
    fn step(&mut self) -> bool {
        if self.phase != Phase::Faults && !self.next_phase() {
            return false;
        }
        if let Some(index) = self.ready.pop_front() {
            self.turn(index as usize);
            return true;
        }
        let due = self.agenda.next_at();
        match self.network.next_event() {
            Some(at) if due.is_none_or(|due| at <= due) => {
                self.set_now(at);
                if let Some(packet) = self.network.step() {
                    self.arrive(packet);
                }
            }
            _ => {
                let Some((at, event)) = self.agenda.take() else {
                    self.oracle
                        .blame("nothing will ever happen again, and calls or sessions remain");
                    return false;
                };
                self.set_now(at);
                self.happen(event);
            }
        }
        true
    }

    fn set_now(&mut self, now: Instant) {
        debug_assert!(now >= self.now);
        self.now = now;
        self.oracle.set_now(now);
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Alarm(index) => {
                let node = &mut self.nodes[index as usize];
                if node.alarm_at == Some(self.now) {
                    node.alarm_at = None;
                    match node.turn_at {
                        Some(at) if at > self.now => self.set_alarm(index as usize, at),
                        _ => self.turn(index as usize),
                    }
                }
            }
            Event::GoOn(place) => {
                let (packet, way) = self.waiting.take(place);
                self.go_on(packet, way);
            }
            Event::Answer(place) => self.answer(place),
            Event::Cancel(place) => self.cancel(place),
            Event::Round(index, calls) => {
                let (oracle, plan) = (&mut self.oracle, self.plan);
                let node = &mut self.nodes[index as usize];
                let now = node.clock.at(self.now);
                if let Some(rpc) = &mut node.rpc {
                    node.party.begin_round(&mut rpc.context_at(now), calls, oracle, plan);
                    self.between_turns(index as usize);
                }
            }
            Event::Happens(at) => {
                let plan = self.plan;
                self.happens(&plan.events[at as usize].1);
            }
            Event::Restart(index) => {
                self.start(index as usize);
                self.replay_past(index as usize);
            }
            Event::Unstall(index) => {
                // The same for all endpoints of a host.
                let host = u64::from(self.plan.endpoints[index as usize].route.host);
                let catch_up = pattern::mix(host ^ self.now.as_nanos()) & 1 == 0;
                self.nodes[index as usize].clock.go_on(self.now, catch_up);
                self.plan_turn(index as usize, self.now);
            }
            Event::Unhoard(index) => self.nodes[index as usize].party.drop_hoard(),
            Event::ReplayOf(index) => self.replay_of(index as usize),
            // The phase looks at the clock.
            Event::Rested => {}
            Event::Heal => self.heal(),
        }
    }

    /// An endpoint is born and opens its sessions.
    fn start(&mut self, index: usize) {
        let plan = &self.plan.endpoints[index];
        let life = self.nodes[index].party.incarnation().1;
        let host = u64::from(plan.route.host);
        // The endpoints of a host live and die together, and share what listening groups share.
        let group = self.groups.entry((plan.route.host, life)).or_insert_with(|| {
            let secret = pattern::mix(self.plan.seed ^ host << 16 ^ u64::from(life) << 48);
            let ports =
                if plan.group.is_empty() { vec![plan.route.port] } else { plan.group.clone() };
            Arc::new(ListenGroup::new((u128::from(secret) << 32).to_le_bytes(), ports))
        });
        self.nodes[index].start(plan, group);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        let Some(rpc) = &mut node.rpc else { return };
        let mut cx = rpc.context_at(now);
        if self.phase == Phase::Faults {
            for &server in &plan.servers {
                node.party.connect(&mut cx, server, &mut self.oracle);
            }
        } else {
            node.party.retire();
        }
        self.between_turns(index);
    }

    /// One turn of an endpoint's loop, if it is due.
    fn turn(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        if node.turn_at != Some(self.now) {
            return;
        }
        node.turn_at = None;
        let Some(rpc) = &mut node.rpc else { return };
        let waiting = node.port.waiting().min(MAX_BURST);
        node.port.set_now(self.now);
        node.turns += 1;
        node.party.handed_over = 0;
        let mut turn = Turn {
            party: &mut node.party,
            oracle: &mut self.oracle,
            plan: self.plan,
            later: &mut self.later,
        };
        rpc.run_once_at(node.clock.at(self.now), &mut turn);
        let (per_turn, per_packet) = self.plan.turn_nanos;
        node.busy_until = self.now.plus_nanos(per_turn + per_packet * waiting as u64);
        self.check(index, waiting);
        self.after_turn(index);
    }

    /// What was done at an endpoint outside of a turn goes out.
    fn between_turns(&mut self, index: usize) {
        let node = &mut self.nodes[index];
        node.port.set_now(self.now);
        if let Some(rpc) = &mut node.rpc {
            rpc.ring_doorbell();
        }
        self.plan_cancels(index);
        self.plan_turn(index, self.now);
        self.send_all(index);
    }

    fn after_turn(&mut self, index: usize) {
        if std::mem::take(&mut self.nodes[index].party.begins_anew) {
            self.replay_past(index);
        }
        let (_, life) = self.nodes[index].party.incarnation();
        for (nanos, answer) in self.later.drain(..) {
            self.happened.late_answers += 1;
            let place = self.answers.put((index, life, answer));
            self.agenda.put(self.now.plus_nanos(nanos), Event::Answer(place));
        }
        self.plan_cancels(index);
        self.send_all(index);
        let node = &self.nodes[index];
        let next = if node.port.waiting() > 0 {
            Some(node.busy_until)
        } else {
            let deadline = node.rpc.as_ref().and_then(|rpc| rpc.next_deadline());
            deadline.and_then(|deadline| node.clock.when(deadline))
        };
        if let Some(next) = next {
            self.plan_turn(index, next);
        }
    }

    /// Plans a turn for `at`, or earlier if one is planned.
    fn plan_turn(&mut self, index: usize, at: Instant) {
        let node = &mut self.nodes[index];
        let at = at.max(node.busy_until).max(self.now);
        if node.turn_at.is_some_and(|planned| planned <= at) {
            return;
        }
        node.turn_at = Some(at);
        if at == self.now {
            self.ready.push_back(index as u32);
        } else {
            self.set_alarm(index, at);
        }
    }

    /// Sees to it that somebody looks after an endpoint at `at` or earlier: most turns come before their
    /// timers, and an event for each would be too many.
    fn set_alarm(&mut self, index: usize, at: Instant) {
        let node = &mut self.nodes[index];
        if node.alarm_at.is_none_or(|alarm| at < alarm) {
            node.alarm_at = Some(at);
            self.agenda.put(at, Event::Alarm(index as u32));
        }
    }

    /// What an endpoint has pushed meets the faults of its way out.
    fn send_all(&mut self, index: usize) {
        let mut sent = std::mem::take(&mut self.sent);
        self.nodes[index].port.take_sent(&mut sent);
        let from = self.plan.endpoints[index].route;
        for Sent { to, bytes } in sent.drain(..) {
            if let Ok(header) = Header::parse(&bytes) {
                let Header { kind, aux: method, flags, .. } = header;
                let trailer = flags.trailer();
                self.nodes[index].answers.sent += u64::from(kind != Kind::Control);
                // Whoever asks for them, all have them.
                if trailer != (kind == Kind::Control || self.has_checksums) {
                    let with = if trailer { "with" } else { "without" };
                    self.oracle.blame(format!("a {kind:?} is sent {with} a checksum"));
                }
                if kind == Kind::Request {
                    self.oracle.sent(method, bytes.len() - checksum::overhead(trailer));
                    if flags.extended()
                        && header.packet.get() == 0
                        && let Some(field) = bytes.get(DEADLINE_AT..DEADLINE_AT + 4)
                    {
                        let micros =
                            field.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
                        self.oracle.sent_deadline(method, micros);
                    }
                }
                self.check_announced(from, to, &header);
            }
            let fate = self.nodes[index].tx.judge(self.now, bytes.len());
            let packet = Packet { from, to, bytes, marked: false, forged: false };
            if fate.is_intact() {
                self.send(packet);
            } else {
                self.suffer(packet, &fate, Way::Out);
            }
        }
        self.sent = sent;
        self.oracle.all_is_sent();
        self.check_answers(index);
    }

    /// A packet has come to its host.
    fn arrive(&mut self, packet: Packet) {
        let Some(&index) = self.places.get(&packet.to) else {
            // Forged packets bring answers to addresses that nobody has.
            return self.network.recycle(packet.bytes);
        };
        let fate = self.nodes[index].rx.judge(self.now, packet.bytes.len());
        if fate.is_intact() {
            self.deliver(packet);
        } else {
            self.suffer(packet, &fate, Way::In);
        }
    }

    /// The copies of a packet that there will be go on, now or later.
    fn suffer(&mut self, packet: Packet, fate: &Fate, way: Way) {
        let count = fate.copies().len();
        let mut original = Some(packet);
        for (at, PacketCopy { delay, damage }) in fate.copies().enumerate() {
            let copy = if at + 1 == count { original.take() } else { original.clone() };
            let Some(mut copy) = copy else { return };
            if let Some(damage) = damage {
                damage.inflict(&mut copy.bytes);
            }
            if delay.is_zero() {
                self.go_on(copy, way);
            } else {
                let place = self.waiting.put((copy, way));
                self.agenda.put(self.now + delay, Event::GoOn(place));
            }
        }
        if let Some(lost) = original {
            self.network.recycle(lost.bytes);
        }
    }

    fn go_on(&mut self, packet: Packet, way: Way) {
        match way {
            Way::Out => self.send(packet),
            Way::In => self.deliver(packet),
        }
    }

    fn send(&mut self, packet: Packet) {
        let host = packet.from.host;
        self.send_from(host, packet);
    }

    /// Puts a packet on the network at a host, whoever it says that it is from.
    fn send_from(&mut self, host: u32, packet: Packet) {
        self.note_packet(&packet, "sent");
        self.record(&packet);
        self.network.send(self.now, host, packet);
    }

    /// A packet goes into its receiver's queue, if there is one and it has room.
    fn deliver(&mut self, packet: Packet) {
        self.note_packet(&packet, "delivered");
        let Some(&index) = self.places.get(&packet.to) else { return };
        let node = &mut self.nodes[index];
        if node.rpc.is_none() {
            self.network.recycle(packet.bytes);
            return;
        }
        let asks_for = answers_asked_for(&packet.bytes);
        if node.port.deliver(packet.from, packet.bytes) {
            node.forged += u64::from(packet.forged);
            node.answers.asked_for += asks_for;
            self.plan_turn(index, self.now);
        }
    }

    /// Mixes a packet into the trace.
    #[inline]
    fn note_packet(&mut self, packet: &Packet, what: &str) {
        if self.plan.prints {
            print(self.now, what, packet);
        }
        let word = |at: usize| {
            let chunk = packet.bytes.get(at..at + 8).and_then(|bytes| bytes.first_chunk());
            chunk.map_or(at as u64, |chunk| u64::from_le_bytes(*chunk))
        };
        let ends = u64::from(packet.from.host) << 32 | u64::from(packet.to.host);
        let what = word(0) ^ word(8).rotate_left(17) ^ word(16).rotate_left(34);
        let header = self.now.as_nanos() ^ (packet.bytes.len() as u64) << 48;
        self.trace = pattern::mix(self.trace ^ header).wrapping_add(what ^ ends.rotate_left(7));
    }

    /// The cancels that an endpoint's user has thought of.
    fn plan_cancels(&mut self, index: usize) {
        let party = &mut self.nodes[index].party;
        let (_, life) = party.incarnation();
        for (nanos, id) in party.to_cancel.drain(..) {
            let place = self.cancels.put((index, life, id));
            self.agenda.put(self.now.plus_nanos(nanos), Event::Cancel(place));
        }
    }

    fn cancel(&mut self, place: u32) {
        let (index, life, id) = self.cancels.take(place);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        if node.party.incarnation().1 != life {
            return;
        }
        if let Some(rpc) = &mut node.rpc {
            node.party.cancel(&mut rpc.context_at(now), id, &mut self.oracle);
            self.between_turns(index);
        }
    }

    fn answer(&mut self, place: u32) {
        let (index, life, answer) = self.answers.take(place);
        let node = &mut self.nodes[index];
        let now = node.clock.at(self.now);
        // Who has died since has nothing to answer.
        if node.party.incarnation().1 != life {
            return;
        }
        if let Some(rpc) = &mut node.rpc {
            node.party.answer_late(&mut rpc.context_at(now), answer);
            self.between_turns(index);
        }
    }
}

/// Packets of its sessions that a server may send because of this one: a part of a request, or its end before
/// its time, has one answer, if any, and a request for response says how many it wants.
#[inline]
fn answers_asked_for(bytes: &[u8]) -> u64 {
    /// The most that a session's credits may be.
    const MOST: u32 = 1_024;
    match Header::parse(bytes) {
        Ok(Header { kind: Kind::Request, .. }) => 1,
        Ok(Header { kind: Kind::Done, packet, .. }) if packet.get() == CANCEL => 1,
        Ok(Header { kind: Kind::RequestForResponse, size, .. }) => size.min(MOST).into(),
        _ => 0,
    }
}

/// Prints a packet on a line.
#[cold]
fn print(now: Instant, what: &str, packet: &Packet) {
    let Packet { from, to, bytes, .. } = packet;
    let len = bytes.len();
    match Header::parse(bytes) {
        Ok(Header { connection, kind, packet, request, aux, size, .. }) => crate::say!(
            "{:>13} {from} -> {to} {what:9} {kind:?} {:x} packet {} request {} aux {aux} size {size}, {len} bytes",
            now.as_nanos(),
            connection.to_u64(),
            packet.get(),
            request.to_u32(),
        ),
        Err(error) => {
            crate::say!("{:>13} {from} -> {to} {what:9} {error:?}, {len} bytes", now.as_nanos())
        }
    }
}
