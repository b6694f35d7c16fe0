//! The end of a run: the faults end, all calls end, the channels work, and nothing is left.

use std::sync::Arc;
use std::time::Duration;

use erpc_core::client::Balance;
use erpc_core::endpoint::Census;

use super::node::{CONNECT, LIVENESS};
use super::oracle::lock;
use super::service::{Ask, Kind, method};
use super::world::World;

/// A step of the wait for an end.
const STEP: Duration = Duration::from_millis(20);
/// How long sessions and handlers may take to end.
const QUIET: Duration = Duration::from_secs(3);
/// Last calls of a channel, per server.
const LAST_CALLS: usize = 3;

impl World {
    /// Runs the plan to its end.
    pub(super) fn run(&mut self) {
        self.run_until(self.plan.heal_at);
        let phases = [Self::heal, Self::end_calls, Self::use_servers, Self::close];
        for phase in phases {
            if self.has_failed() {
                break;
            }
            phase(self);
        }
        // Channels, tasks and sessions keep endpoints alive.
        self.channels.clear();
        for node in &mut self.nodes {
            if let Some(endpoint) = node.endpoint.take() {
                endpoint.shutdown();
            }
        }
    }

    /// Runs until `done`, for at most `within`. Returns whether it is done.
    fn run_while_not(&mut self, within: Duration, done: impl Fn(&Self) -> bool) -> bool {
        let end = self.driver.now() + within;
        while !done(self) && !self.has_failed() {
            let now = self.driver.now();
            if now >= end {
                return false;
            }
            self.run_until(now + STEP);
        }
        true
    }

    /// Ends all faults.
    fn heal(&mut self) {
        lock(&self.oracle).trace(|| "all faults end".into());
        self.is_healed = true;
        self.parted.clear();
        self.book.borrow_mut().is_healed = true;
        let listed = self.book.borrow().listed.clone();
        for (server, listed) in listed.into_iter().enumerate() {
            match listed {
                true => self.start(server),
                // Only a new answer of the resolver leads the channels away from it.
                false => self.stop(server),
            }
        }
        // Clients learn of the ends.
        self.run_until(self.driver.now() + STEP);
    }

    /// The longest time until a channel has a session again: it may wait for its resolver and for
    /// the end of a pause.
    fn longest_outage(&self) -> Duration {
        let of = |channel: &super::plan::ChannelPlan| {
            channel.cap + channel.resolve_pause + 2 * channel.latency
        };
        let longest = self.plan.channels.iter().map(of).max().unwrap_or_default();
        longest + 4 * (LIVENESS + CONNECT)
    }

    /// Every call ends.
    fn end_calls(&mut self) {
        // A call may make several attempts, each with a pause of up to a second.
        let within = self.longest_outage() + Duration::from_secs(8);
        if !self.run_while_not(within, |world| lock(&world.oracle).pending() == 0) {
            lock(&self.oracle).check_overdue(true);
        }
        (0..self.channels.len()).for_each(|channel| lock(&self.oracle).check_budget(channel));
    }

    /// Every channel that was used gets sessions to its servers, and its calls succeed.
    fn use_servers(&mut self) {
        let used: Vec<_> = (0..self.channels.len())
            .filter(|&channel| lock(&self.oracle).queries[channel].count > 0)
            .collect();
        let is_ready = |world: &Self, channel: usize| {
            let Some(channel) = &world.channels[channel] else { return true };
            channel.backends().iter().any(|backend| backend.sessions > 0)
        };
        let within = self.longest_outage();
        if !self.run_while_not(within, |world| used.iter().all(|&channel| is_ready(world, channel)))
        {
            let channel = used.iter().copied().find(|&channel| !is_ready(self, channel));
            let place = channel.map(|channel| format!("channel {channel}"));
            return lock(&self.oracle).violate(place, "gets no session after the faults".into());
        }
        for channel in used {
            self.call_last(channel);
        }
    }

    /// Makes some calls on a channel, one after the other. All must succeed, and take turns if the
    /// servers do.
    fn call_last(&mut self, index: usize) {
        let client = self.client(index);
        let Some(channel) = &self.channels[index] else { return };
        let Some(endpoint) = &self.nodes[client].endpoint else { return };
        let servers = channel.backends().len();
        let (channel, oracle) = (channel.clone(), Arc::clone(&self.oracle));
        let calls = endpoint.spawn(async move {
            let mut answers = Vec::new();
            for _ in 0..LAST_CALLS * servers {
                let number = lock(&oracle).made(index, false, 0, None, true);
                let ask = Ask { call: number, work: Duration::ZERO, response_len: 0 };
                let outcome = channel.call(method(Kind::Now, false), &ask.encode(0)).await;
                answers.extend(lock(&oracle).ended(number, outcome));
            }
            answers
        });
        let before = channel_state(self, index);
        self.driver.plan_turn_now(client);
        let within = self.longest_outage();
        if !self.run_while_not(within, |_| calls.is_finished()) {
            return lock(&self.oracle).check_overdue(true);
        }
        let is_even = self.plan.channels[index].balance == Balance::RoundRobin
            && before == channel_state(self, index)
            && before.iter().all(|sessions| *sessions > 0);
        if is_even && !self.has_failed() {
            self.check_turns(index, servers);
        }
    }

    fn check_turns(&mut self, index: usize, servers: usize) {
        let mut oracle = lock(&self.oracle);
        if !oracle.last_calls_took_turns(index, servers, LAST_CALLS) {
            let what = "the servers did not take turns".into();
            oracle.violate(Some(format!("channel {index}")), what);
        }
    }

    /// The channels are dropped. Sessions end, and nothing is left.
    fn close(&mut self) {
        self.channels.iter_mut().for_each(|channel| *channel = None);
        let servers = self.plan.servers.len();
        (servers..self.nodes.len()).for_each(|client| self.driver.plan_turn_now(client));
        let is_empty = |world: &Self| {
            world.nodes.iter().all(|node| {
                node.endpoint.as_ref().is_none_or(|endpoint| {
                    let stats = endpoint.stats().unwrap_or_default();
                    Census::of(endpoint) == Census::default()
                        && (stats.client_sessions, stats.server_sessions) == (0, 0)
                        && stats.pool.in_use == 0
                })
            })
        };
        if self.run_while_not(QUIET, is_empty) {
            return;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            let Some(endpoint) = &node.endpoint else { continue };
            let (census, stats) = (Census::of(endpoint), endpoint.stats().unwrap_or_default());
            let sessions = stats.client_sessions + stats.server_sessions;
            if census != Census::default() || sessions > 0 || stats.pool.in_use > 0 {
                let (kept, bytes) = (stats.pool.in_use, stats.pool.in_use_bytes);
                let what = format!(
                    "is not empty at the end: {sessions} sessions, {kept} msgbufs of {bytes} bytes, {census:?}"
                );
                lock(&self.oracle).trace(|| format!("endpoint {index} {what}"));
                lock(&self.oracle).violate(Some(format!("endpoint {index}")), what);
            }
        }
    }
}

/// Number of open sessions by server.
fn channel_state(world: &World, index: usize) -> Vec<usize> {
    let channel = world.channels[index].as_ref();
    let backends = channel.map(|channel| channel.backends()).unwrap_or_default();
    backends.iter().map(|backend| backend.sessions).collect()
}
