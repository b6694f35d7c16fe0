//! One run: endpoints, a network, and the events that drive them.

mod chaos;
mod checks;
mod ending;
mod first_timeouts;
mod flights;
mod packets;
mod paths;
mod report;
mod shares;
mod turns;
mod unread;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;

use erpc_core::protocol::ListenGroup;
use erpc_core::time::Instant;
use erpc_core::transport::Undelivered;
use erpc_core::transport::fault::FaultCounts;
use erpc_test_tools::random::mix;

use crate::driver::{Driver, Step};
use crate::net::Packet;
use crate::node::Node;
use crate::oracle::{HandlerEvents, Incarnation, Oracle, Outcomes};
use crate::party::{Answer, Wake};
use crate::plan::Plan;
use crate::transport::Sent;
use crate::{Feature, Random, SimRoute, trace};

use self::packets::Way;
pub(crate) use self::report::Progress;
pub use self::report::{Happened, RunReport};

enum Event {
    /// A delayed packet continues.
    GoOn(Packet, Way),
    /// A handler gives an answer that it put off.
    Answer(Incarnation, Answer),
    /// The caller cancels this call.
    Cancel(Incarnation, u32),
    /// A user of a stream continues after a pause.
    Wake(Incarnation, Wake),
    /// An endpoint begins this number of calls.
    Round(usize, u32),
    /// An endpoint begins this number of streams.
    StreamRound(usize, u32),
    /// An event of the plan, by its index there.
    Planned(usize),
    Restart(usize),
    Unstall(usize),
    Unhoard(usize),
    /// Recorded packets that an endpoint sent or received are replayed.
    ReplayOf(usize),
    /// A report that a packet of an endpoint was not delivered.
    Report(usize, Undelivered<SimRoute>, Truth),
    /// All endpoints were idle long enough.
    Rested,
    Heal,
}

/// Whether a report of an undelivered packet is true.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Truth {
    True,
    Forged,
}

/// The phases of a run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Faults,
    /// Nothing new starts; calls end.
    Draining {
        until: Instant,
        since: Instant,
    },
    /// Calls have ended, and sessions are idle.
    Resting {
        until: Instant,
        leave_by: Instant,
    },
    /// Sessions close.
    Leaving {
        until: Instant,
    },
}

/// A world in a run.
pub struct World<'p> {
    plan: &'p Plan,
    driver: Driver<Event>,
    nodes: Vec<Node>,
    /// Endpoints by address.
    places: BTreeMap<SimRoute, usize>,
    /// The listening group of a host, by host and life.
    groups: BTreeMap<(u32, u32), Arc<ListenGroup>>,
    /// Requests that servers have accepted: server, client, session id, request number.
    accepted: BTreeSet<(SimRoute, SimRoute, u64, u32)>,
    /// The long requests in flight.
    requests: packets::Requests,
    /// For each endpoint, the number of server endpoints that its sessions may be with.
    peers: Vec<u64>,
    /// Response packets that servers were asked for.
    pulls: packets::Pulls,
    /// The last request of each slot.
    last_requests: unread::LastRequests,
    /// First timeouts of sessions that were just opened.
    first_timeouts: first_timeouts::FirstTimeouts,
    /// Packets that clients send after pauses. `None` if packets may be lost, calls may end early,
    /// or loops may pause.
    flights: Option<flights::Flights>,
    /// Packets in flight of each session. `None` unless the scenario is
    /// [`Scenario::Path`](crate::Scenario::Path).
    paths: Option<paths::Paths>,
    /// Whether to check that clients wait for slow methods. True if some methods are slow and
    /// sessions stay alive. False with streams: each stream is a method of its own, and often slow,
    /// so clients forget other methods.
    follows_methods: bool,
    /// The responses of servers, to notice when a server sends one again too early.
    repeats: packets::Repeats,
    oracle: Oracle,
    phase: Phase,
    chances: chaos::Chances,
    /// Sessions carry checksums.
    has_checksums: bool,
    /// Recorded packets, for replay and forgery.
    recorded: Vec<Packet>,
    /// The packets that were sent last, with their senders, for forged reports.
    shown: VecDeque<(SimRoute, Undelivered<SimRoute>)>,
    sent: Vec<Sent>,
    later: Vec<(u64, Answer)>,
    trace: u64,
    faults: FaultCounts,
    happened: Happened,
    bound_used: u64,
}

/// Attackers see this number of the packets that were sent last.
const SHOWN: usize = 64;
/// The most recorded packets.
const RECORDED: usize = 512;
/// One in this many packets is recorded. Of the packets from the beginning of a session, half are
/// recorded.
const RECORD_ONE_IN: u64 = 8;

impl<'p> World<'p> {
    /// The world of a plan, before its first event.
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
            driver: Driver::new(&plan.topology, start),
            nodes,
            places,
            groups: BTreeMap::new(),
            accepted: BTreeSet::new(),
            requests: packets::Requests::default(),
            peers: plan.endpoints.iter().map(|endpoint| plan.peers_of(endpoint)).collect(),
            pulls: packets::Pulls::default(),
            last_requests: unread::LastRequests::default(),
            first_timeouts: first_timeouts::FirstTimeouts::new(plan),
            // Runs with `Absence` are not checked: after a pause of its loop, a client reads the
            // answers that arrived during the pause, and continues.
            flights: (plan.spares_packets()
                && !plan.features.has_any(&[
                    Feature::Cancels,
                    Feature::Deadlines,
                    Feature::Absence,
                ]))
            .then(flights::Flights::default),
            paths: paths::Paths::of(plan),
            follows_methods: plan.spares_sessions()
                && plan.handlers.has_slow_methods()
                && !plan.has_streams(),
            repeats: packets::Repeats::default(),
            oracle: Oracle::new(plan),
            phase: Phase::Faults,
            chances: chaos::Chances::new(&Random::new(plan.seed).fork(7)),
            has_checksums: plan.features.has(Feature::Checksums),
            recorded: Vec::new(),
            shown: VecDeque::new(),
            sent: Vec::new(),
            later: Vec::new(),
            trace: plan.seed,
            faults: FaultCounts::default(),
            happened: Happened::default(),
            bound_used: 0,
        };
        world.oracle.set_now(start);
        if plan.prints {
            world.driver.network_mut().print_drops();
        }
        for index in 0..plan.endpoints.len() {
            world.driver.add_endpoint();
            world.start(index);
            for &(at, calls) in &plan.endpoints[index].rounds {
                world.driver.schedule(at, Event::Round(index, calls));
            }
            for &(at, streams) in &plan.endpoints[index].stream_rounds {
                world.driver.schedule(at, Event::StreamRound(index, streams));
            }
        }
        for (at, (when, _)) in plan.events.iter().enumerate() {
            world.driver.schedule(*when, Event::Planned(at));
        }
        world.driver.schedule(plan.heal_at, Event::Heal);
        world
    }

    /// Runs to the end or to the first violation.
    pub(crate) fn go_on_to_the_end(&mut self) {
        while self.oracle.violation().is_none() && self.step() {}
    }

    /// The progress of a run that a panic ended.
    pub(crate) fn progress(&self) -> Progress {
        Progress {
            at: self.driver.now(),
            place: self.oracle.acting_place(),
            packets: self.driver.network().stats().sent,
            calls: self.oracle.calls(),
        }
    }

    pub(crate) fn report(mut self) -> RunReport {
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
                self.happened.refused += stats.refused;
                self.happened.late_responses += stats.late_responses;
            }
        }
        let network = self.driver.network().stats();
        self.happened.nic_drops = network.dropped_full_nic;
        self.happened.switch_drops = network.dropped_full_port + network.dropped_full_buffer;
        self.happened.marks = network.marked;
        let HandlerEvents { panics, allocations_refused, extended, late } =
            self.oracle.handler_events();
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
        RunReport {
            violation: self.oracle.violation().cloned(),
            packets: self.driver.network().stats().sent,
            calls: self.oracle.calls(),
            outcomes,
            streams: self.oracle.stream_counts(),
            sessions_opened: self.oracle.sessions_opened(),
            faults: self.faults,
            happened: self.happened,
            trace_hash: self.trace,
            nanos: self.driver.now().as_nanos(),
            bound_used: self.bound_used,
        }
    }

    /// Takes the next step. Returns false when the run is over.
    fn step(&mut self) -> bool {
        self.oracle.set_acting(None);
        if self.phase != Phase::Faults && !self.next_phase() {
            return false;
        }
        // If a phase has begun, users have acted in `next_phase`. Between steps, no endpoint acts.
        self.oracle.set_acting(None);
        let Some(step) = self.driver.step(Instant::NEVER) else {
            self.oracle.blame("no event is scheduled, but calls or sessions remain");
            return false;
        };
        self.oracle.set_now(self.driver.now());
        match step {
            Step::Turn(index) => self.turn(index),
            Step::Arrival(packet) => self.arrive(packet),
            Step::Event(event) => self.happen(event),
            Step::Nothing => {}
        }
        true
    }

    /// Prints an event, if the plan prints packets.
    #[inline]
    fn tell<W: fmt::Display>(&self, what: impl FnOnce() -> W) {
        if self.plan.prints {
            trace::event(self.driver.now(), what());
        }
    }

    /// Prints an event of endpoint `index`, if the plan prints packets.
    fn tell_of(&self, index: usize, what: &str) {
        self.tell(|| format!("{} {what}", self.plan.endpoints[index].route));
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::GoOn(packet, way) => self.go_on(packet, way),
            Event::Answer(of, answer) => {
                self.act_in_life(of, |party, cx, oracle, _| {
                    party.answer_late(cx, answer, oracle);
                });
            }
            Event::Cancel(of, id) => {
                self.act_in_life(of, |party, cx, oracle, _| party.cancel(cx, id, oracle));
            }
            Event::Wake(of, wake) => {
                self.act_in_life(of, |party, cx, oracle, plan| party.wake(cx, wake, oracle, plan));
            }
            Event::StreamRound(index, streams) => {
                self.act(index, |party, cx, oracle, plan| {
                    party.begin_streams(cx, streams, oracle, plan);
                });
            }
            Event::Round(index, calls) => {
                self.act(index, |party, cx, oracle, plan| {
                    party.begin_round(cx, calls, oracle, plan);
                });
            }
            Event::Planned(at) => {
                let plan = self.plan;
                self.tell(|| plan.event_in_words(at));
                self.planned(&plan.events[at].1);
            }
            Event::Restart(index) => {
                self.tell_of(index, "restarts");
                self.start(index);
                self.replay_past(index);
            }
            Event::Unstall(index) => {
                // The choice is the same for all endpoints of a host, because they share the host's
                // clock.
                let host = u64::from(self.plan.endpoints[index].route.host);
                let catch_up = mix(host ^ self.driver.now().as_nanos()) & 1 == 0;
                self.tell_of(index, "has a running clock again");
                self.nodes[index].clock.go_on(self.driver.now(), catch_up);
                self.driver.plan_turn_now(index);
            }
            Event::Unhoard(index) => {
                self.tell_of(index, "has memory again");
                self.nodes[index].party.drop_hoard();
            }
            Event::ReplayOf(index) => {
                self.tell_of(index, "has recorded packets of its own replayed");
                self.replay_of(index);
            }
            Event::Report(index, report, truth) => self.deliver_report(index, report, truth),
            // `next_phase` looks at the clock after this event.
            Event::Rested => {}
            Event::Heal => self.heal(),
        }
    }
}
