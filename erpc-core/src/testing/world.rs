//! The clock of a virtual network, its packets in flight, and the turns of its endpoints.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::{Rc, Weak};
use std::time::Duration;

use super::port::{Port, VirtualRoute, VirtualTransport};
use crate::endpoint::{Endpoint, WeakEndpoint};
use crate::random::SplitMix64;
use crate::time::Instant;
use crate::transport::fault::{FaultCounts, Faults, Injector};
use crate::transport::{NetworkError, Undelivered};

/// Start of virtual time. Not zero, because the protocol subtracts from times.
const START: Instant = Instant::from_nanos(1_000_000_000);
/// Time that a turn with work takes. Without it, an endpoint that always has work would stop time.
const TURN: Duration = Duration::from_micros(1);
/// Delay of a packet before [`World::set_delay`].
const DELAY: Duration = Duration::from_micros(25);
/// Virtual time after which a wait panics. Idle sessions ping, so time would pass without end.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 60 * 60);

/// The shared state of a network.
pub(super) struct World {
    seed: u64,
    now: Cell<Instant>,
    delay: Cell<Duration>,
    injector: RefCell<Injector>,
    /// Counts of earlier injectors.
    past: Cell<FaultCounts>,
    /// Number of random numbers used so far: endpoints and injectors have their own.
    drawn: Cell<u64>,
    /// Number of the last endpoint.
    last: Cell<u16>,
    ports: RefCell<BTreeMap<VirtualRoute, Weak<Port>>>,
    endpoints: RefCell<BTreeMap<VirtualRoute, WeakEndpoint<VirtualTransport>>>,
    cut_off: RefCell<BTreeSet<VirtualRoute>>,
    /// Pairs of routes between which packets are lost, the lower route first.
    cut_links: RefCell<BTreeSet<(VirtualRoute, VirtualRoute)>>,
    /// By time of arrival, then in the order of sending.
    in_flight: RefCell<BTreeMap<(Instant, u64), Flight>>,
    /// Number of flights so far.
    flights: Cell<u64>,
}

/// A packet in flight, or the report that one was refused.
struct Flight {
    from: VirtualRoute,
    to: VirtualRoute,
    bytes: Vec<u8>,
    /// `bytes` is a packet that `to` has sent to `from`, where nothing listens.
    is_report: bool,
}

impl World {
    pub(super) fn new(seed: u64) -> Self {
        Self {
            seed,
            now: Cell::new(START),
            delay: Cell::new(DELAY),
            injector: RefCell::new(Injector::new(seed, Faults::none(), START)),
            past: Cell::default(),
            drawn: Cell::new(0),
            last: Cell::new(0),
            ports: RefCell::default(),
            endpoints: RefCell::default(),
            cut_off: RefCell::default(),
            cut_links: RefCell::default(),
            in_flight: RefCell::default(),
            flights: Cell::new(0),
        }
    }

    pub(super) fn elapsed(&self) -> Duration {
        self.now.get() - START
    }

    pub(super) fn set_delay(&self, delay: Duration) {
        self.delay.set(delay);
    }

    pub(super) fn set_faults(&self, faults: Faults) {
        self.past.set(self.fault_counts());
        self.injector.replace(Injector::new(self.draw(), faults, self.now.get()));
    }

    pub(super) fn fault_counts(&self) -> FaultCounts {
        let mut counts = self.past.get();
        counts += self.injector.borrow().counts();
        counts
    }

    /// A random number that depends only on the network's seed and on the number of calls before.
    pub(super) fn draw(&self) -> u64 {
        let drawn = self.drawn.get();
        self.drawn.set(drawn + 1);
        SplitMix64::at(self.seed, drawn)
    }

    /// A route that no endpoint has had.
    pub(super) fn new_route(&self) -> VirtualRoute {
        let number =
            self.last.get().checked_add(1).expect("a network has at most 65,535 endpoints");
        self.last.set(number);
        VirtualRoute(number)
    }

    /// Opens the port of `route`.
    pub(super) fn open(self: &Rc<Self>, route: VirtualRoute) -> VirtualTransport {
        let port = Rc::new(Port::new(route));
        self.ports.borrow_mut().insert(route, Rc::downgrade(&port));
        VirtualTransport::new(port, Rc::clone(self))
    }

    /// Runs `endpoint` from now on, whenever another endpoint waits.
    pub(super) fn add(&self, route: VirtualRoute, endpoint: &Endpoint<VirtualTransport>) {
        endpoint.set_time(self.now.get());
        self.endpoints.borrow_mut().insert(route, endpoint.downgrade());
    }

    /// Closes `port`, unless its route already has another one.
    pub(super) fn close(&self, port: &Port) {
        let mut ports = self.ports.borrow_mut();
        let is_current = |open: &Weak<Port>| std::ptr::eq(open.as_ptr(), port);
        if ports.get(&port.route()).is_some_and(is_current) {
            ports.remove(&port.route());
        }
    }

    /// The process at `route` ends now: it sends and receives nothing any more.
    pub(super) fn end_process(&self, route: VirtualRoute) {
        self.ports.borrow_mut().remove(&route);
        self.endpoints.borrow_mut().remove(&route);
    }

    /// Packets from and to `route` are lost from now on, or no longer.
    pub(super) fn cut_off(&self, route: VirtualRoute, is_cut_off: bool) {
        match is_cut_off {
            true => self.cut_off.borrow_mut().insert(route),
            false => self.cut_off.borrow_mut().remove(&route),
        };
    }

    pub(super) fn cut_link(&self, one: VirtualRoute, other: VirtualRoute) {
        self.cut_links.borrow_mut().insert((one.min(other), one.max(other)));
    }

    pub(super) fn mend_links(&self) {
        self.cut_links.borrow_mut().clear();
    }

    fn is_link_cut(&self, one: VirtualRoute, other: VirtualRoute) -> bool {
        self.cut_links.borrow().contains(&(one.min(other), one.max(other)))
    }

    fn is_cut_off(&self, route: VirtualRoute) -> bool {
        self.cut_off.borrow().contains(&route)
    }

    fn port(&self, route: VirtualRoute) -> Option<Rc<Port>> {
        self.ports.borrow().get(&route).and_then(Weak::upgrade)
    }

    pub(super) fn send(&self, from: VirtualRoute, to: VirtualRoute, bytes: Vec<u8>) {
        // A process that was killed sends nothing while its endpoint is dropped.
        let is_cut = self.is_cut_off(from) || self.is_link_cut(from, to);
        if is_cut || self.port(from).is_none() {
            return;
        }
        let fate = self.injector.borrow_mut().judge(self.now.get(), bytes.len());
        for copy in fate.copies() {
            let mut bytes = bytes.clone();
            if let Some(damage) = &copy.damage {
                damage.inflict(&mut bytes);
            }
            self.fly(copy.delay, Flight { from, to, bytes, is_report: false });
        }
    }

    fn fly(&self, more: Duration, flight: Flight) {
        let number = self.flights.get();
        self.flights.set(number + 1);
        let arrival = self.now.get() + self.delay.get() + more;
        self.in_flight.borrow_mut().insert((arrival, number), flight);
    }

    /// Delivers the packets that arrive by now.
    fn land(&self) {
        loop {
            let mut in_flight = self.in_flight.borrow_mut();
            let Some(next) = in_flight.first_entry() else { return };
            if next.key().0 > self.now.get() {
                return;
            }
            let flight = next.remove();
            drop(in_flight);
            self.arrive(flight);
        }
    }

    fn arrive(&self, Flight { from, to, bytes, is_report }: Flight) {
        if self.is_cut_off(to) || self.is_link_cut(from, to) {
            return;
        }
        match self.port(to) {
            Some(port) if is_report => {
                port.report(Undelivered::new(from, NetworkError::NothingListens, &bytes));
            }
            Some(port) => port.deliver(from, bytes),
            None if is_report => {}
            // The host refuses the packet, as with ICMP.
            None => self.fly(Duration::ZERO, Flight { from: to, to: from, bytes, is_report: true }),
        }
    }

    /// Runs the network until the wait of `waiter` ends. Time passes by at least [`TURN`] if no
    /// packet ends the wait, so that an endpoint with a due timer that has no effect cannot stop it.
    pub(super) fn wait(&self, waiter: &Port, timeout: Option<Duration>) {
        let end = timeout.map_or(Instant::NEVER, |time| self.now.get() + time.max(TURN));
        loop {
            self.land();
            let now = self.now.get();
            if waiter.ends_wait() || now >= end {
                return;
            }
            let others = self.others(waiter.route());
            let work: usize = others.iter().map(|endpoint| endpoint.run_once_at(now)).sum();
            let next = match work {
                0 => self.next_event(&others).max(now + TURN).min(end),
                _ => now + TURN,
            };
            drop(others);
            assert!(
                next - START < LONGEST,
                "a week of virtual time has passed: a future waits for something that never happens, or for another \
                 thread, which a virtual network does not know"
            );
            self.set_time(next);
        }
    }

    /// The endpoints except that of `route`.
    fn others(&self, route: VirtualRoute) -> Vec<Endpoint<VirtualTransport>> {
        let mut endpoints = self.endpoints.borrow_mut();
        endpoints.retain(|_, endpoint| endpoint.is_alive());
        let others = endpoints.iter().filter(|(other, _)| **other != route);
        others.filter_map(|(_, endpoint)| endpoint.upgrade()).collect()
    }

    /// When the next packet arrives or the next timer of an endpoint in `others` is due.
    fn next_event(&self, others: &[Endpoint<VirtualTransport>]) -> Instant {
        let arrival = self.in_flight.borrow().first_key_value().map(|((arrival, _), _)| *arrival);
        let timers = others.iter().map(Endpoint::next_deadline);
        timers.chain(arrival).min().unwrap_or(Instant::NEVER)
    }

    fn set_time(&self, now: Instant) {
        self.now.set(now);
        let endpoints = self.endpoints.borrow();
        endpoints.values().filter_map(WeakEndpoint::upgrade).for_each(|end| end.set_time(now));
    }
}
