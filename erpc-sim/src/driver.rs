//! The event loop of every simulation: virtual time, the network, and the turns of endpoints.
//!
//! The simulator's [world](crate::world), the [lab](crate::lab) and the bench of
//! [hostile](crate::hostile) peers define what an endpoint does in its turn and what events mean.
//! This module alone decides the order of steps at the same time: first turns that were planned for
//! the current time, then the network, then events and turns that were planned in advance, in the
//! order in which they were scheduled.

use std::collections::VecDeque;

use erpc_core::time::Instant;

use crate::event_queue::EventQueue;
use crate::net::{LinkId, Network, Packet, Topology};

/// What happens next.
pub(crate) enum Step<E> {
    /// The loop of this endpoint takes a turn.
    Turn(usize),
    /// A packet arrives at its destination host.
    Arrival(Packet),
    /// An event of the simulation.
    Event(E),
    /// A packet moved inside the network or was dropped, or a turn that was due has been moved or
    /// cancelled. The caller does nothing.
    Nothing,
}

enum Scheduled<E> {
    /// A turn of an endpoint may be due.
    Alarm(usize),
    Event(E),
}

/// When an endpoint's loop takes turns.
#[derive(Clone, Copy)]
struct LoopTimes {
    /// The end of the last turn.
    busy_until: Instant,
    /// The time of the next planned turn.
    turn_at: Option<Instant>,
    /// The time of the earliest scheduled alarm. If the alarm comes before `turn_at`, it is
    /// scheduled again for `turn_at`. So most changes of the plan need no new event. Plans change
    /// often, because most turns are caused by a packet that arrives before the planned time.
    alarm_at: Option<Instant>,
}

/// Moves virtual time from event to event.
pub(crate) struct Driver<E> {
    now: Instant,
    network: Network,
    scheduled: EventQueue<Scheduled<E>>,
    /// Endpoints whose turn is due now.
    ready: VecDeque<usize>,
    loops: Vec<LoopTimes>,
}

impl<E> Driver<E> {
    /// An idle network without endpoints, at `start`.
    pub(crate) fn new(topology: &Topology, start: Instant) -> Self {
        Self {
            now: start,
            network: Network::new(topology),
            scheduled: EventQueue::new(),
            ready: VecDeque::new(),
            loops: Vec::new(),
        }
    }

    /// Adds an endpoint without a planned turn. Returns its number; the first one is 0.
    pub(crate) fn add_endpoint(&mut self) -> usize {
        self.loops.push(LoopTimes { busy_until: self.now, turn_at: None, alarm_at: None });
        self.loops.len() - 1
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn network(&self) -> &Network {
        &self.network
    }

    pub(crate) fn network_mut(&mut self) -> &mut Network {
        &mut self.network
    }

    /// Puts a packet on the cable of `host` now.
    pub(crate) fn send(&mut self, host: u32, packet: Packet) {
        self.network.send(self.now, host, packet);
    }

    pub(crate) fn stop_link(&mut self, link: LinkId) {
        self.network.stop_link(self.now, link);
    }

    pub(crate) fn resume_link(&mut self, link: LinkId) {
        self.network.resume_link(self.now, link);
    }

    /// Bytes that are queued at a switch for the cable to `host`.
    pub(crate) fn queue_towards(&mut self, host: u32) -> u64 {
        self.network.queue_towards(self.now, host)
    }

    pub(crate) fn schedule(&mut self, at: Instant, event: E) {
        self.scheduled.push(at, Scheduled::Event(event));
    }

    pub(crate) fn schedule_in(&mut self, nanos: u64, event: E) {
        self.schedule(self.now.plus_nanos(nanos), event);
    }

    /// The next step. `None` if there is no step until `until`.
    pub(crate) fn step(&mut self, until: Instant) -> Option<Step<E>> {
        if let Some(endpoint) = self.ready.pop_front() {
            return Some(self.turn(endpoint));
        }
        let scheduled = self.scheduled.next_at().unwrap_or(Instant::NEVER);
        let arrival = self.network.next_event();
        let is_network = arrival.is_some_and(|at| at <= scheduled);
        let at = arrival.filter(|_| is_network).unwrap_or(scheduled);
        if at > until {
            return None;
        }
        debug_assert!(at >= self.now, "time does not go backwards");
        if is_network {
            self.now = at;
            return Some(self.network.step().map_or(Step::Nothing, Step::Arrival));
        }
        let scheduled = self.scheduled.pop()?;
        self.now = at;
        Some(match scheduled {
            Scheduled::Alarm(endpoint) => self.alarm(endpoint),
            Scheduled::Event(event) => Step::Event(event),
        })
    }

    fn alarm(&mut self, endpoint: usize) -> Step<E> {
        let times = &mut self.loops[endpoint];
        if times.alarm_at != Some(self.now) {
            return Step::Nothing;
        }
        times.alarm_at = None;
        match times.turn_at {
            Some(at) if at > self.now => {
                self.set_alarm(endpoint, at);
                Step::Nothing
            }
            _ => self.turn(endpoint),
        }
    }

    fn turn(&mut self, endpoint: usize) -> Step<E> {
        let turn_at = &mut self.loops[endpoint].turn_at;
        if *turn_at != Some(self.now) {
            return Step::Nothing;
        }
        *turn_at = None;
        Step::Turn(endpoint)
    }

    /// Plans a turn for `at`, or for the end of the endpoint's last turn if that end is later. If a
    /// turn is already planned for an earlier time, that plan stays.
    pub(crate) fn plan_turn(&mut self, endpoint: usize, at: Instant) {
        let times = &mut self.loops[endpoint];
        let at = at.max(times.busy_until).max(self.now);
        if times.turn_at.is_some_and(|planned| planned <= at) {
            return;
        }
        times.turn_at = Some(at);
        if at == self.now {
            self.ready.push_back(endpoint);
        } else {
            self.set_alarm(endpoint, at);
        }
    }

    /// Plans a turn for now.
    pub(crate) fn plan_turn_now(&mut self, endpoint: usize) {
        self.plan_turn(endpoint, self.now);
    }

    fn set_alarm(&mut self, endpoint: usize, at: Instant) {
        let times = &mut self.loops[endpoint];
        if times.alarm_at.is_none_or(|alarm| at < alarm) {
            times.alarm_at = Some(at);
            self.scheduled.push(at, Scheduled::Alarm(endpoint));
        }
    }

    /// Cancels the planned turn, if there is one.
    pub(crate) fn cancel_turn(&mut self, endpoint: usize) {
        self.loops[endpoint].turn_at = None;
    }

    /// The endpoint takes no turn before `until`.
    pub(crate) fn set_busy_until(&mut self, endpoint: usize, until: Instant) {
        self.loops[endpoint].busy_until = until;
    }

    pub(crate) fn busy_until(&self, endpoint: usize) -> Instant {
        self.loops[endpoint].busy_until
    }

    /// Moves the clock to `at`. The caller makes sure that no turn is due before `at`.
    pub(crate) fn advance_to(&mut self, at: Instant) {
        debug_assert!(self.ready.is_empty() && at >= self.now);
        self.now = at;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::net::Link;

    const START: Instant = Instant::from_nanos(1_000);

    fn driver() -> Driver<u32> {
        let link = Link { rate_mbps: 1_000, delay_nanos: 100 };
        let mut driver = Driver::new(&Topology::pair(link), START);
        assert_eq!([(); 2].map(|()| driver.add_endpoint()), [0, 1]);
        driver
    }

    /// Runs to the end. Returns every turn (as 100 + endpoint) and event, with its time in ns.
    fn run(driver: &mut Driver<u32>) -> Vec<(u64, u32)> {
        let mut happened = Vec::new();
        while let Some(step) = driver.step(Instant::NEVER) {
            let what = match step {
                Step::Turn(endpoint) => 100 + endpoint as u32,
                Step::Event(event) => event,
                Step::Arrival(_) | Step::Nothing => continue,
            };
            happened.push((driver.now().nanos_since(START), what));
        }
        happened
    }

    #[test]
    fn due_turns_come_before_events_of_the_same_time() {
        let mut driver = driver();
        driver.schedule(START, 1);
        driver.schedule_in(7, 3);
        driver.schedule(START, 2);
        driver.plan_turn_now(1);
        driver.plan_turn_now(0);
        assert_eq!(run(&mut driver), [(0, 101), (0, 100), (0, 1), (0, 2), (7, 3)]);
    }

    #[test]
    fn the_earliest_plan_of_a_turn_counts_and_a_busy_loop_takes_no_turn() {
        let mut driver = driver();
        for nanos in [50, 20, 30] {
            driver.plan_turn(0, START.plus_nanos(nanos));
        }
        driver.set_busy_until(1, START.plus_nanos(40));
        driver.plan_turn_now(1);
        assert_eq!(run(&mut driver), [(20, 100), (40, 101)]);
        driver.plan_turn(0, START.plus_nanos(90));
        driver.cancel_turn(0);
        assert_eq!(run(&mut driver), []);
    }

    #[test]
    fn no_step_comes_after_the_end() {
        let mut driver = driver();
        driver.schedule_in(10, 1);
        assert!(driver.step(START.plus_nanos(9)).is_none());
        assert_eq!(driver.now(), START);
        assert!(driver.step(START.plus_nanos(10)).is_some());
    }
}
