//! One run: endpoints, a network, and the clock that moves them.

mod chaos;
mod checks;
mod ending;
mod packets;
mod report;
mod turns;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use erpc_core::protocol::ListenGroup;
use erpc_core::time::Instant;
use erpc_core::transport::fault::FaultCounts;
use erpc_test_tools::random::mix;

use crate::event_queue::Agenda;
use crate::net::{Network, Packet};
use crate::node::Node;
use crate::oracle::{Hardships, Oracle, Outcomes};
use crate::party::{Answer, Wake};
use crate::plan::Plan;
use crate::shelf::Shelf;
use crate::transport::Sent;
use crate::{Feature, Random, SimRoute};

use self::packets::Way;
pub use self::report::{Happened, Report};

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
    /// A user of a stream goes on.
    Wake(u32),
    Round(u32, u32),
    StreamRound(u32, u32),
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
    /// Users of streams who have paused: whose, in which life, which.
    wakes: Shelf<(usize, u32, Wake)>,
    /// Requests that servers have accepted: whose, to whom, and the session and the number there.
    accepted: BTreeSet<(SimRoute, SimRoute, u64, u32)>,
    /// The long requests under way.
    requests: packets::Requests,
    /// Response packets that servers were asked for.
    pulls: packets::Pulls,
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
            wakes: Shelf::new(),
            accepted: BTreeSet::new(),
            requests: packets::Requests::default(),
            pulls: packets::Pulls::default(),
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
            for &(at, streams) in &plan.endpoints[index].stream_rounds {
                world.agenda.put(at, Event::StreamRound(index as u32, streams));
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
                self.happened.departures += stats.departures;
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
        self.happened.streams = self.oracle.stream_counts().begun;
        let outcomes = self.oracle.outcomes();
        let Outcomes { responses, statuses, not_executed, maybe_executed, .. } = outcomes;
        let others = [outcomes.responses_lost, outcomes.rejected, outcomes.abandoned];
        let counts = [responses, statuses, not_executed, maybe_executed].into_iter().chain(others);
        for count in counts {
            self.trace = mix(self.trace ^ count);
        }
        Report {
            violation: self.oracle.violation().cloned(),
            packets: self.network.stats().sent,
            calls: self.oracle.calls(),
            outcomes,
            streams: self.oracle.stream_counts(),
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
            Event::Wake(place) => self.wake(place),
            Event::StreamRound(index, streams) => self.begin_streams(index as usize, streams),
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
                let catch_up = mix(host ^ self.now.as_nanos()) & 1 == 0;
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
}
