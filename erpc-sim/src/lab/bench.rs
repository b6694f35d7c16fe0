//! The clock, the endpoints and the network of an experiment.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc_core::event_loop::Rpc;
use erpc_core::protocol::{Acceptor, ListenGroup, ProtocolStats, Retransmissions};
use erpc_core::time::Instant;
use erpc_core::transport::MAX_BURST;
use erpc_core::wire::Header;

use super::caller::Caller;
use super::{Load, Meter, Samples, Setting};
use crate::driver::{Driver, Step};
use crate::net::Packet;
use crate::transport::{Port, Sent, SimTransport};
use crate::{Random, SimRoute};

/// The virtual time at which runs begin.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// The event that moves the packets of an endpoint's last turn to its cable.
struct Leave(usize);

/// An endpoint and its user.
struct Endpoint {
    route: SimRoute,
    rpc: Rpc<SimTransport>,
    port: Rc<Port>,
    caller: Caller,
    /// Random source of the pauses and late wake-ups of the endpoint's loop.
    pause_random: Random,
    leaving: Vec<Sent>,
}

/// Counters of a run.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Counts {
    /// Packets sent.
    pub packets: u64,
    /// Packets lost at random or on purpose.
    pub lost: u64,
    /// Packets that a switch dropped because a port's queue or its shared buffer was full.
    pub drops: u64,
    /// Packets dropped because a host's transmit or receive queue was full.
    pub host_drops: u64,
    /// Packets that a switch marked.
    pub marks: u64,
    /// Packets that clients retransmitted, by cause.
    pub retransmissions: Retransmissions,
    /// The longest queue of a switch port so far, in bytes.
    pub peak_queue: u64,
}

/// Whether a packet with this header is lost.
type Rule = dyn Fn(&Header) -> bool;

/// The rule for packets that are lost on purpose, and how many are still to be lost.
#[derive(Default)]
struct Chosen {
    count: u32,
    rule: Option<Box<Rule>>,
}

impl Chosen {
    /// Whether this packet is lost. If so, counts it.
    fn takes(&mut self, packet: &Packet) -> bool {
        let Some(rule) = self.rule.as_ref().filter(|_| self.count > 0) else { return false };
        let takes = Header::parse(&packet.bytes).is_ok_and(|header| rule(&header));
        self.count -= u32::from(takes);
        takes
    }
}

/// A running experiment.
pub struct Lab {
    setting: Setting,
    driver: Driver<Leave>,
    endpoints: Vec<Endpoint>,
    by_route: BTreeMap<SimRoute, usize>,
    chance: Random,
    /// A packet is lost if the random word drawn for it is below this value.
    loses_below: u64,
    lost: u64,
    chosen: Chosen,
    /// `None` if the setting has no meter.
    meter: Option<Meter>,
}

impl Lab {
    /// An idle network without endpoints.
    ///
    /// # Panics
    /// If the setting's topology is out of bounds.
    #[must_use]
    pub fn new(setting: Setting) -> Self {
        let chance = Random::new(setting.seed);
        Self {
            driver: Driver::new(&setting.topology, START),
            endpoints: Vec::new(),
            by_route: BTreeMap::new(),
            chance: chance.fork(1),
            loses_below: (setting.loss * u64::MAX as f64) as u64,
            lost: 0,
            chosen: Chosen::default(),
            meter: setting.meters.then(Meter::default),
            setting,
        }
    }

    /// Adds an endpoint at `route` that calls and also accepts sessions. Returns its number.
    ///
    /// # Panics
    /// If the endpoints' settings are out of bounds, or the network has no such host.
    pub fn add(&mut self, route: SimRoute, load: Load) -> usize {
        let index = self.add_client(route, load);
        let acceptor = Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![route.port])), 0);
        self.endpoints[index].rpc.listen(acceptor);
        index
    }

    /// Adds an endpoint at `route` that accepts no sessions, so that its whole receive queue is for
    /// replies. Returns its number.
    ///
    /// # Panics
    /// As [`Lab::add`].
    pub fn add_client(&mut self, route: SimRoute, load: Load) -> usize {
        assert!(route.host < self.setting.topology.hosts(), "no host {}", route.host);
        let index = self.driver.add_endpoint();
        let random = Random::new(self.setting.seed).fork(16 + index as u64);
        let port = Port::new(route, self.setting.nic);
        let config = self.setting.config.clone().seed(random.clone().word());
        let rpc = Rpc::new(SimTransport::new(Rc::clone(&port)), config)
            .expect("the setting is within its bounds");
        let caller = Caller::new(load, random.fork(2));
        let start = START + caller.start();
        self.endpoints.push(Endpoint {
            route,
            rpc,
            port,
            caller,
            pause_random: random.fork(3),
            leaving: Vec::new(),
        });
        self.by_route.insert(route, index);
        self.driver.plan_turn(index, start);
        index
    }

    /// Gives the requests of an endpoint random lengths, from `least` to the load's request length,
    /// in bytes.
    pub fn vary_requests(&mut self, index: usize, least: usize) {
        self.endpoints[index].caller.least_request = least;
    }

    /// Advances the virtual clock by `time`.
    pub fn run_for(&mut self, time: Duration) {
        let until = self.driver.now() + time;
        while let Some(step) = self.driver.step(until) {
            match step {
                Step::Turn(index) => self.turn(index),
                Step::Arrival(packet) => self.arrive(packet),
                Step::Event(Leave(index)) => self.leave(index),
                Step::Nothing => {}
            }
        }
        self.driver.advance_to(until);
    }

    /// Stalls the loop of an endpoint for `time`. The loop does not know it: to the endpoint,
    /// packets that wait look delayed by the network.
    pub fn stall(&mut self, index: usize, time: Duration) {
        let until = self.driver.busy_until(index).max(self.driver.now() + time);
        self.driver.cancel_turn(index);
        self.driver.set_busy_until(index, until);
        self.driver.plan_turn(index, until);
    }

    /// Loses the next `count` packets that match `rule`.
    pub fn lose(&mut self, count: u32, rule: impl Fn(&Header) -> bool + 'static) {
        self.chosen = Chosen { count, rule: Some(Box::new(rule)) };
    }

    /// The number of packets still to be lost on purpose.
    #[must_use]
    pub fn losses_to_come(&self) -> u32 {
        self.chosen.count
    }

    /// The time from the beginning of the run until an endpoint made the oldest of its calls in
    /// progress. 0 if the endpoint makes no calls or has not begun to.
    #[must_use]
    pub fn begun_first(&self, index: usize) -> Duration {
        self.endpoints[index].caller.begun_first().map_or(Duration::ZERO, |begun| begun - START)
    }

    /// The time since the beginning of the run.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.driver.now() - START
    }

    /// The measurements at the cables.
    ///
    /// # Panics
    /// If the setting has no meter.
    pub fn meter(&mut self) -> &mut Meter {
        self.meter.as_mut().expect("the setting has a meter")
    }

    /// Ends the warm-up: forgets round trips, latencies, and the numbers of calls and bytes.
    pub fn clear(&mut self) {
        if let Some(meter) = &mut self.meter {
            meter.clear();
        }
        for endpoint in &mut self.endpoints {
            endpoint.caller.latencies.clear();
            endpoint.caller.calls = 0;
        }
    }

    /// The number of completed calls of an endpoint.
    #[must_use]
    pub fn calls(&self, index: usize) -> u64 {
        self.endpoints[index].caller.calls
    }

    /// The latencies of the calls of these endpoints.
    #[must_use]
    pub fn latencies(&self, indices: impl IntoIterator<Item = usize>) -> Samples {
        let mut all = Samples::default();
        for index in indices {
            all.append(&self.endpoints[index].caller.latencies);
        }
        all
    }

    /// Bytes queued at the switch for the cable to `host`.
    pub fn queue(&mut self, host: u32) -> u64 {
        self.driver.queue_towards(host)
    }

    /// The rate at which each session of an endpoint may send requests and requests for response,
    /// in bytes per second. `None` if no rate limits the session.
    pub fn rates(&mut self, index: usize) -> Vec<Option<u64>> {
        let endpoint = &mut self.endpoints[index];
        let cx = endpoint.rpc.context_at(self.driver.now());
        let rate = |&session| cx.session_stats(session).and_then(|stats| stats.rate);
        endpoint.caller.sessions().iter().map(rate).collect()
    }

    /// The counters since the beginning of the run.
    pub fn counts(&mut self) -> Counts {
        let mut protocol = ProtocolStats::default();
        let mut overflows = 0;
        for endpoint in &mut self.endpoints {
            protocol += endpoint.rpc.stats().protocol;
            overflows += endpoint.port.stats().rx_overflow;
        }
        let network = self.driver.network().stats();
        Counts {
            packets: network.sent,
            lost: self.lost,
            drops: network.dropped_full_port + network.dropped_full_buffer,
            host_drops: network.dropped_full_nic + overflows,
            marks: network.marked,
            retransmissions: protocol.retransmissions,
            peak_queue: network.peak_queue_bytes,
        }
    }

    fn arrive(&mut self, packet: Packet) {
        let indices = (self.by_route.get(&packet.from), self.by_route.get(&packet.to));
        let (Some(&from), Some(&to)) = indices else {
            return self.driver.network_mut().recycle(packet.bytes);
        };
        if self.chosen.takes(&packet)
            || self.loses_below > 0 && self.chance.word() < self.loses_below
        {
            self.lost += 1;
            return self.driver.network_mut().recycle(packet.bytes);
        }
        if let Some(meter) = &mut self.meter {
            meter.look_at(self.driver.now(), from, &packet);
        }
        self.endpoints[to].port.deliver(packet.from, packet.bytes, packet.marked);
        let at = self.driver.now().plus_nanos(self.wake_up(to));
        self.driver.plan_turn(to, at);
    }

    /// The time from a packet's arrival until the sleeping loop of an endpoint wakes up, in ns.
    fn wake_up(&mut self, index: usize) -> u64 {
        let longest = self.setting.wake_nanos;
        if longest == 0 {
            return 0;
        }
        let random = &mut self.endpoints[index].pause_random;
        let most = if random.below(50) == 0 { longest } else { longest / 10 };
        random.within(0, most)
    }

    /// Runs one turn of an endpoint's loop.
    fn turn(&mut self, index: usize) {
        let now = self.driver.now();
        let endpoint = &mut self.endpoints[index];
        let waiting = endpoint.port.waiting().min(MAX_BURST);
        endpoint.port.set_now(now);
        endpoint.rpc.run_once_at(now, &mut endpoint.caller);
        let loop_pauses = self.setting.loop_pauses;
        let away =
            loop_pauses.map_or(0, |loop_pauses| loop_pauses.after_turn(&mut endpoint.pause_random));
        if away == 0 {
            // The loop sleeps until the next event. This sleep is no pause of the loop.
            endpoint.rpc.rested();
        }
        if now >= START + endpoint.caller.start() {
            endpoint.caller.begin(&mut endpoint.rpc.context_at(now));
            endpoint.rpc.ring_doorbell();
        }
        if let Some(rule) = endpoint.port.take_misuse() {
            panic!("{rule}");
        }
        let (per_turn, per_packet) = self.setting.turn_nanos;
        let sent_by = now.plus_nanos(per_turn + per_packet * waiting as u64);
        let busy_until = sent_by.plus_nanos(away);
        self.driver.set_busy_until(index, busy_until);
        endpoint.port.take_sent(&mut endpoint.leaving);
        let next = if away > 0 || endpoint.port.waiting() > 0 {
            Some(busy_until)
        } else {
            endpoint.rpc.next_deadline()
        };
        if per_packet == 0 {
            self.leave(index);
        } else if !endpoint.leaving.is_empty() {
            self.driver.schedule(sent_by, Leave(index));
        }
        if let Some(next) = next {
            self.driver.plan_turn(index, next);
        }
    }

    /// Sends the packets of an endpoint's last turn.
    fn leave(&mut self, index: usize) {
        let endpoint = &mut self.endpoints[index];
        for Sent { to, bytes } in endpoint.leaving.drain(..) {
            self.driver.send(endpoint.route.host, Packet::new(endpoint.route, to, bytes));
        }
    }
}
