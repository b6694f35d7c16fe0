//! One run: moves the clock from event to event.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::{BackendStats, Call, Channel};
use erpc_core::endpoint::{Census, check_invariants};
use erpc_core::protocol::CallError;
use erpc_core::serving::TakenJob;
use erpc_core::time::Instant;
use erpc_core::transport::{NetworkError, Undelivered};

use super::node::{CONNECT, LIVENESS, Node};
use super::oracle::{Oracle, Outcomes, Shared, lock};
use super::plan::{CallPlan, Plan, PlannedEvent, START, Style, Weather};
use super::reach::Reach;
use super::resolver::{Book, SimResolver};
use super::service::{Ask, method};
use crate::driver::{Driver, Step};
use crate::net::{Link, Packet, SwitchConfig, Topology};
use crate::oracle::Violation;
use crate::transport::{Sent, SimTransport};
use crate::{Random, SimRoute};

/// The time of a turn.
const TURN_NANOS: u64 = 2_000;
/// The time between two looks at the channels.
const LOOK_NANOS: u64 = 10_000_000;
/// One turn in this many is followed by a check of the endpoint's invariants.
const CHECKED_ONE_IN: u64 = 8;

/// How much later than computed a channel may ask its resolver.
const SLACK: Duration = Duration::from_millis(20);

type Backend = BackendStats<SimRoute>;

/// An event of the world.
pub(super) enum Event {
    /// This event of the plan.
    Planned(usize),
    /// This call of the plan is made.
    Call(usize),
    /// The user of this call drops it.
    Drop(usize),
    /// A worker of this server finishes this job.
    Work(usize, u64),
    /// A drained server restarts.
    Restart(usize),
    /// A report arrives at this endpoint.
    Report(usize, Undelivered<SimRoute>),
    /// A look at the channels.
    Look,
}

/// A call whose user holds its future outside of the loop.
struct HeldCall {
    number: usize,
    call: Call<Vec<u8>, SimTransport>,
}

/// Numbers of a run.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) struct Counts {
    pub(super) packets: u64,
    pub(super) turns: u64,
}

/// A run in progress. The endpoints are the servers, then the clients; each is on its own host.
pub(super) struct World {
    pub(super) plan: Plan,
    pub(super) driver: Driver<Event>,
    pub(super) nodes: Vec<Node>,
    pub(super) channels: Vec<Option<Channel<SimTransport>>>,
    pub(super) oracle: Shared,
    pub(super) book: Rc<RefCell<Book>>,
    /// The calls that are held, by their index in the plan.
    held: BTreeMap<usize, HeldCall>,
    jobs: BTreeMap<u64, TakenJob>,
    next_job: u64,
    /// Pairs of hosts that no packet passes between.
    pub(super) parted: Vec<(usize, usize)>,
    pub(super) is_healed: bool,
    reach: Vec<Vec<Reach>>,
    chance: Random,
    work: Random,
    pub(super) counts: Counts,
    sent: Vec<Sent>,
}

impl World {
    pub(super) fn new(seed: u64, prints: bool) -> Self {
        let plan = Plan::draw(seed);
        let (servers, hosts) = (plan.servers.len(), plan.servers.len() + plan.clients);
        let link = Link { rate_mbps: 10_000, delay_nanos: 10_000 };
        let topology = Topology::star(hosts as u32, link, SwitchConfig::default());
        let nodes: Vec<_> = (0..hosts).map(|host| Node::new(host as u32, seed)).collect();
        let random = Random::new(seed);
        let book = Book {
            routes: nodes[..servers].iter().map(|node| node.route).collect(),
            listed: vec![true; servers],
            is_healed: false,
            random: random.fork(11),
        };
        let oracle = Oracle::new(plan.weather, plan.tight, &plan.channels, prints);
        let mut world = Self {
            driver: Driver::new(&topology, START),
            nodes,
            channels: Vec::new(),
            oracle: Arc::new(Mutex::new(oracle)),
            book: Rc::new(RefCell::new(book)),
            held: BTreeMap::new(),
            jobs: BTreeMap::new(),
            next_job: 0,
            parted: Vec::new(),
            is_healed: false,
            reach: vec![vec![Reach::default(); servers]; plan.channels.len()],
            chance: random.fork(12),
            work: random.fork(13),
            counts: Counts::default(),
            sent: Vec::new(),
            plan,
        };
        world.begin();
        world
    }

    fn begin(&mut self) {
        for _ in 0..self.nodes.len() {
            self.driver.add_endpoint();
        }
        (0..self.plan.servers.len()).for_each(|server| self.start(server));
        for client in self.plan.servers.len()..self.nodes.len() {
            self.nodes[client].start_client(START);
            self.driver.plan_turn_now(client);
        }
        for index in 0..self.plan.channels.len() {
            let channel = self.open_channel(index);
            self.channels.push(Some(channel));
        }
        for at in 0..self.plan.events.len() {
            self.driver.schedule(self.plan.events[at].0, Event::Planned(at));
        }
        for at in 0..self.plan.calls.len() {
            self.driver.schedule(self.plan.calls[at].at, Event::Call(at));
        }
        self.driver.schedule_in(LOOK_NANOS, Event::Look);
        lock(&self.oracle)
            .trace(|| format!("{:?}, {} servers", self.plan.weather, self.plan.servers.len()));
    }

    /// The host of a channel's client.
    pub(super) fn client(&self, channel: usize) -> usize {
        self.plan.servers.len() + self.plan.channels[channel].client
    }

    fn open_channel(&self, index: usize) -> Channel<SimTransport> {
        let plan = &self.plan.channels[index];
        let endpoint = self.nodes[self.client(index)].endpoint.as_ref();
        let endpoint = endpoint.expect("clients run until the end");
        let resolver = SimResolver {
            channel: index,
            book: Rc::clone(&self.book),
            oracle: Arc::clone(&self.oracle),
            latency: plan.latency,
            bad_answers: plan.bad_answers,
            good_for: plan.good_for,
        };
        Channel::to(endpoint, resolver)
            .balance(plan.balance)
            .sessions(plan.sessions)
            .backoff(plan.base, plan.cap)
            .resolve_pause(plan.resolve_pause)
            .queue_limit(plan.queue_limit)
            .options(plan.options())
            .build()
    }

    /// Whether the run has broken a rule.
    pub(super) fn has_failed(&self) -> bool {
        lock(&self.oracle).violation.is_some()
    }

    /// Moves the clock to `until`, unless a rule is broken before.
    pub(super) fn run_until(&mut self, until: Instant) {
        while let Some(step) = self.driver.step(until) {
            lock(&self.oracle).now = self.driver.now();
            match step {
                Step::Turn(index) => self.turn(index),
                Step::Arrival(packet) => self.arrive(packet),
                Step::Event(event) => self.happen(event),
                Step::Nothing => {}
            }
            if self.has_failed() {
                return;
            }
        }
        self.driver.advance_to(until);
        lock(&self.oracle).now = until;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Planned(at) if !self.is_healed => {
                let event = self.plan.events[at].1.clone();
                self.look();
                lock(&self.oracle).trace(|| format!("{event:?}"));
                self.happens(event);
                self.look();
            }
            Event::Planned(_) => {}
            Event::Call(at) => {
                let call = self.plan.calls[at].clone();
                self.make(&call, at);
            }
            Event::Drop(at) => self.drop_held(at),
            Event::Work(server, job) => {
                let Some(taken) = self.jobs.remove(&job) else { return };
                taken.run(self.driver.now());
                self.nodes[server].idle += 1;
                self.employ(server);
                self.driver.plan_turn_now(server);
            }
            Event::Restart(server) => self.start(server),
            Event::Report(index, report) => {
                self.nodes[index].port.report(report);
                self.driver.plan_turn_now(index);
            }
            Event::Look => {
                self.look();
                lock(&self.oracle).check_overdue(false);
                self.driver.schedule_in(LOOK_NANOS, Event::Look);
            }
        }
    }

    fn happens(&mut self, event: PlannedEvent) {
        match event {
            PlannedEvent::Stop(server) => self.stop(server),
            PlannedEvent::Crash(server) => self.crash(server),
            PlannedEvent::Start(server) => self.start(server),
            PlannedEvent::Drain(server, within, pause) => {
                let Some(endpoint) = &self.nodes[server].endpoint else { return };
                let drain = endpoint.spawn(endpoint.drain(within));
                self.nodes[server].drain = Some((drain, pause));
                self.driver.plan_turn_now(server);
            }
            PlannedEvent::Part(server, client) => {
                self.parted.push((server, self.plan.servers.len() + client));
            }
            PlannedEvent::Join(server, client) => {
                let pair = (server, self.plan.servers.len() + client);
                self.parted.retain(|parted| *parted != pair);
            }
            PlannedEvent::List(listed) => self.book.borrow_mut().listed = listed,
        }
    }

    /// Starts a server, if it does not run.
    pub(super) fn start(&mut self, server: usize) {
        if self.nodes[server].endpoint.is_none() {
            let (now, plan) = (self.driver.now(), self.plan.servers[server]);
            self.nodes[server].start_server(now, server, plan, &self.oracle);
            self.collect(server);
            self.driver.plan_turn_now(server);
        }
    }

    /// Ends a server. Its clients are told.
    pub(super) fn stop(&mut self, server: usize) {
        let Some(endpoint) = self.nodes[server].endpoint.take() else { return };
        self.nodes[server].port.set_now(self.driver.now());
        endpoint.shutdown();
        self.nodes[server].drain = None;
        drop(endpoint);
        self.collect(server);
        self.nodes[server].workers = None;
    }

    fn crash(&mut self, server: usize) {
        let Some(endpoint) = self.nodes[server].endpoint.take() else { return };
        self.nodes[server].drain = None;
        drop(endpoint);
        self.nodes[server].workers = None;
        // What the endpoint has sent in its drop never leaves the host.
        self.nodes[server].port.take_sent(&mut self.sent);
        self.sent.clear();
    }

    fn turn(&mut self, index: usize) {
        let now = self.driver.now();
        let Some(endpoint) = self.nodes[index].endpoint.clone() else { return };
        self.nodes[index].port.set_now(now);
        let work = endpoint.run_once_at(now);
        self.counts.turns += 1;
        if self.counts.turns.is_multiple_of(CHECKED_ONE_IN) {
            check_invariants(&endpoint);
        }
        if let Some(rule) = self.nodes[index].port.take_misuse() {
            lock(&self.oracle).violate(Some(format!("endpoint {index}")), rule.into());
        }
        self.collect(index);
        let busy_until = now.plus_nanos(TURN_NANOS);
        self.driver.set_busy_until(index, busy_until);
        let is_awake = work > 0 || self.nodes[index].port.waiting() > 0;
        let next = if is_awake { busy_until } else { endpoint.next_deadline() };
        if next != Instant::NEVER {
            self.driver.plan_turn(index, next);
        }
        match index < self.plan.servers.len() {
            true => {
                self.employ(index);
                self.end_drain(index);
            }
            false => self.take_ready(index),
        }
    }

    /// Puts the packets that an endpoint has sent on its cable.
    fn collect(&mut self, index: usize) {
        let mut sent = std::mem::take(&mut self.sent);
        self.nodes[index].port.take_sent(&mut sent);
        let from = self.nodes[index].route;
        for Sent { to, bytes } in sent.drain(..) {
            self.counts.packets += 1;
            let hosts = u64::from(from.host) << 32 | u64::from(to.host);
            lock(&self.oracle).mix(hosts ^ (bytes.len() as u64) << 16);
            self.driver.send(from.host, Packet::new(from, to, bytes));
        }
        self.sent = sent;
    }

    fn arrive(&mut self, packet: Packet) {
        let (from, to) = (packet.from.host as usize, packet.to.host as usize);
        let is_parted = self.parted.iter().any(|&pair| pair == (from, to) || pair == (to, from));
        let is_lost = !self.is_healed && self.chance.below(1_000) < self.plan.loss;
        if is_parted || is_lost {
            return self.driver.network_mut().recycle(packet.bytes);
        }
        if self.nodes[to].endpoint.is_none() {
            if self.plan.reports && self.nodes[from].endpoint.is_some() {
                let error = NetworkError::NothingListens;
                let report = Undelivered::new(packet.to, error, &packet.bytes);
                self.driver.schedule_in(10_000, Event::Report(from, report));
            }
            return self.driver.network_mut().recycle(packet.bytes);
        }
        self.nodes[to].port.set_now(self.driver.now());
        self.nodes[to].port.deliver(packet.from, packet.bytes, packet.marked);
        self.driver.plan_turn_now(to);
    }

    /// Idle workers of a server take jobs.
    fn employ(&mut self, server: usize) {
        let node = &mut self.nodes[server];
        let Some(workers) = &node.workers else { return };
        while node.idle > 0
            && let Some(job) = workers.take()
        {
            node.idle -= 1;
            let nanos = self.work.below_one_of(&[(3, 50_000), (2, 3_000_000), (1, 40_000_000)]);
            self.jobs.insert(self.next_job, job);
            self.driver.schedule_in(nanos, Event::Work(server, self.next_job));
            self.next_job += 1;
        }
    }

    /// Ends a server that is drained.
    fn end_drain(&mut self, server: usize) {
        if let Some((drain, pause)) = &self.nodes[server].drain
            && drain.is_finished()
        {
            let pause = pause.as_nanos() as u64;
            lock(&self.oracle).trace(|| format!("server {server} is drained"));
            self.stop(server);
            self.driver.schedule_in(pause, Event::Restart(server));
        }
    }

    /// Makes a call of the plan.
    fn make(&mut self, plan: &CallPlan, at: usize) {
        if self.is_healed {
            return;
        }
        let client = self.client(plan.channel);
        // The endpoint's time is that of its last turn.
        self.turn(client);
        let number = lock(&self.oracle).made(
            plan.channel,
            plan.idempotent,
            plan.refusals,
            plan.deadline,
            false,
        );
        lock(&self.oracle).trace(|| format!("call {number} is made: {plan:?}"));
        let options = match plan.deadline {
            Some(within) => CallOptions::new().deadline(within),
            None => CallOptions::new(),
        };
        let Some(channel) = &self.channels[plan.channel] else { return };
        let channel = channel.with(options);
        let ask = Ask { call: number, work: plan.work, response_len: plan.response_len };
        let request = ask.encode(plan.request_len);
        let method = method(plan.kind, plan.idempotent);
        let oracle = Arc::clone(&self.oracle);
        let Some(endpoint) = &self.nodes[client].endpoint else { return };
        match plan.style {
            Style::Callback => channel.call_with(method, &request, move |outcome| {
                lock(&oracle).ended(number, outcome);
            }),
            Style::Awaited => {
                let call = channel.call(method, &request);
                match plan.cancel {
                    None => drop(endpoint.spawn(wait(oracle, number, call))),
                    Some(after) => {
                        let timed = endpoint.timeout(after, call);
                        drop(endpoint.spawn(async move {
                            match timed.await {
                                Ok(outcome) => drop(lock(&oracle).ended(number, outcome)),
                                Err(_) => lock(&oracle).cancelled(number),
                            }
                        }));
                    }
                }
            }
            Style::Held => {
                let call = channel.call(method, &request);
                self.held.insert(at, HeldCall { number, call });
                if let Some(after) = plan.cancel {
                    self.driver.schedule_in(after.as_nanos() as u64, Event::Drop(at));
                }
            }
        }
        self.driver.plan_turn_now(client);
    }

    /// Drops a call that is held.
    fn drop_held(&mut self, at: usize) {
        let Some(HeldCall { number, call }) = self.held.remove(&at) else { return };
        lock(&self.oracle).cancelled(number);
        drop(call);
        let client = self.client(self.plan.calls[at].channel);
        self.driver.plan_turn_now(client);
    }

    /// The users of held calls take the outcomes that have arrived at a client.
    fn take_ready(&mut self, client: usize) {
        let is_ready = |(at, held): (&usize, &HeldCall)| {
            let is_own = self.client(self.plan.calls[*at].channel) == client;
            (is_own && held.call.is_ready()).then_some(*at)
        };
        let ready: Vec<_> = self.held.iter().filter_map(is_ready).collect();
        for at in ready {
            let Some(HeldCall { number, call }) = self.held.remove(&at) else { continue };
            let Some(endpoint) = &self.nodes[client].endpoint else { continue };
            drop(endpoint.spawn(wait(Arc::clone(&self.oracle), number, call)));
            self.driver.plan_turn_now(client);
        }
    }

    /// Looks at the channels and the clients.
    fn look(&mut self) {
        for index in 0..self.channels.len() {
            let Some(backends) = self.channels[index].as_ref().map(Channel::backends) else {
                continue;
            };
            let found =
                self.check_queries(index, &backends).and(self.check_reach(index, &backends));
            if let Err(what) = found {
                lock(&self.oracle).violate(Some(format!("channel {index}")), what);
            }
        }
        for index in self.plan.servers.len()..self.nodes.len() {
            let Some(endpoint) = &self.nodes[index].endpoint else { continue };
            let census = Census::of(endpoint);
            if census.call_timers > census.calls {
                let what = format!("has more timers than calls: {census:?}");
                lock(&self.oracle).violate(Some(format!("endpoint {index}")), what);
            }
        }
    }

    /// The channel asks its resolver when it has to, and keeps its servers.
    fn check_queries(&self, index: usize, backends: &[Backend]) -> Result<(), String> {
        let (plan, now) = (&self.plan.channels[index], self.driver.now());
        let queries = lock(&self.oracle).queries[index];
        let Some(ended) = queries.ended else { return Ok(()) };
        if queries.known.is_some() && backends.is_empty() {
            return Err("has lost all servers".into());
        }
        if let Some(good_for) = plan.good_for
            && now > ended + good_for.max(plan.resolve_pause) + SLACK
        {
            return Err("does not ask again although the answer has expired".into());
        }
        let notice = 2 * LIVENESS + CONNECT + plan.resolve_pause + plan.latency + SLACK;
        let is_overlooked = |server: &Reach| server.is_overlooked(now, queries.begun, notice);
        match self.reach[index].iter().any(is_overlooked) {
            true => Err("does not ask its resolver although a server is gone".into()),
            false => Ok(()),
        }
    }

    /// The channel uses the servers that it can reach.
    fn check_reach(&mut self, index: usize, backends: &[Backend]) -> Result<(), String> {
        // Losses make the time of an attempt unknown.
        if self.plan.loss > 0 {
            return Ok(());
        }
        let (client, plan) = (self.client(index), &self.plan.channels[index]);
        for (server, node) in self.nodes[..self.plan.servers.len()].iter().enumerate() {
            let reach = &mut self.reach[index][server];
            let Some(known) = backends.iter().find(|backend| backend.peer == node.route) else {
                reach.forget();
                continue;
            };
            let is_reachable = node.endpoint.is_some()
                && node.drain.is_none()
                && !self.parted.contains(&(server, client));
            let times = (plan.base, plan.cap);
            let used = reach.look(self.driver.now(), is_reachable, known.sessions > 0, times);
            used.map_err(|time| format!("does not use server {server}, reachable for {time:?}"))?;
        }
        Ok(())
    }

    pub(super) fn report(&self) -> Report {
        let oracle = lock(&self.oracle);
        Report {
            weather: self.plan.weather,
            violation: oracle.violation.clone(),
            packets: self.counts.packets,
            calls: oracle.calls(),
            outcomes: oracle.outcomes,
            trace_hash: oracle.hash,
        }
    }
}

/// Awaits a call.
pub(super) async fn wait(
    oracle: Shared,
    number: usize,
    call: impl Future<Output = Result<Vec<u8>, CallError>>,
) {
    let outcome = call.await;
    lock(&oracle).ended(number, outcome);
}

/// What became of a run.
#[derive(Clone, Debug)]
pub(super) struct Report {
    pub(super) weather: Weather,
    pub(super) violation: Option<Violation>,
    pub(super) packets: u64,
    pub(super) calls: u64,
    pub(super) outcomes: Outcomes,
    pub(super) trace_hash: u64,
}
