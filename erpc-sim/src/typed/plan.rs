//! The plan of a run, drawn from its seed before the run begins.

use std::time::Duration;

use erpc_core::calling::{CallOptions, RetryPolicy};
use erpc_core::client::Balance;
use erpc_core::time::Instant;

use super::service::Kind;
use crate::Random;

/// The virtual time at which runs begin.
pub(super) const START: Instant = Instant::from_nanos(1_000_000_000);

/// One millisecond in ns.
pub(super) const MS: u64 = 1_000_000;

/// The faults of a run. They decide which errors calls may have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weather {
    /// No faults. Resolvers may still change the servers.
    Calm,
    /// Servers restart within an instant: their sessions end, but they can always be reached.
    Quick,
    /// Servers are drained and restarted, one after the other.
    Rolling,
    /// Servers stop and crash, the network loses packets and breaks apart, resolvers fail.
    Wild,
}

/// A server.
#[derive(Clone, Copy, Debug)]
pub(super) struct ServerPlan {
    pub(super) workers: usize,
    /// Length of the workers' queue.
    pub(super) queue: usize,
    /// The most calls that run as tasks.
    pub(super) task_limit: usize,
}

/// A channel of a client.
#[derive(Clone, Debug)]
pub(super) struct ChannelPlan {
    pub(super) client: usize,
    pub(super) balance: Balance,
    pub(super) sessions: usize,
    pub(super) base: Duration,
    pub(super) cap: Duration,
    pub(super) resolve_pause: Duration,
    pub(super) queue_limit: usize,
    /// How long answers of the resolver are valid.
    pub(super) good_for: Option<Duration>,
    /// How long the resolver takes.
    pub(super) latency: Duration,
    /// Percentage of queries that fail or return no server.
    pub(super) bad_answers: u32,
    pub(super) retries: RetryPlan,
    pub(super) waits: bool,
}

/// The retry policy of a channel.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum RetryPlan {
    /// No policy.
    Default,
    Never,
    Policy {
        attempts: u32,
        backoff: Duration,
        unexecuted: bool,
        ratio: f32,
        per_second: u32,
    },
}

impl ChannelPlan {
    /// The options of all calls of the channel.
    pub(super) fn options(&self) -> CallOptions {
        let options = CallOptions::new().wait_for_ready(self.waits);
        match self.retries {
            RetryPlan::Default => options,
            RetryPlan::Never => options.retry(RetryPolicy::never()),
            RetryPlan::Policy { attempts, backoff, unexecuted, ratio, per_second } => {
                let policy = RetryPolicy::new(attempts).backoff(backoff).budget(ratio, per_second);
                options.retry(if unexecuted { policy.also_unexecuted() } else { policy })
            }
        }
    }

    /// Whether the policy applies to a call of a method that is idempotent or not.
    pub(super) fn covers(&self, idempotent: bool) -> bool {
        match self.retries {
            RetryPlan::Policy { unexecuted, .. } => idempotent || unexecuted,
            RetryPlan::Default | RetryPlan::Never => false,
        }
    }

    /// The most attempts of a call that may have been executed.
    pub(super) fn attempts(&self, idempotent: bool) -> u32 {
        match self.retries {
            RetryPlan::Policy { attempts, .. } if idempotent => attempts,
            _ => 1,
        }
    }
}

/// How the user of a call gets its outcome, and how it cancels the call.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Style {
    /// A task awaits the call, with a timeout if the call is cancelled.
    Awaited,
    /// The call is dropped outside of the loop if it is cancelled.
    Held,
    /// A callback. Such calls are not cancelled.
    Callback,
}

/// A call.
#[derive(Clone, Debug)]
pub(super) struct CallPlan {
    pub(super) at: Instant,
    pub(super) channel: usize,
    pub(super) kind: Kind,
    pub(super) idempotent: bool,
    /// How long the handler takes.
    pub(super) work: Duration,
    /// How many executions are answered with `UNAVAILABLE` first.
    pub(super) refusals: u32,
    pub(super) request_len: usize,
    pub(super) response_len: usize,
    pub(super) deadline: Option<Duration>,
    pub(super) cancel: Option<Duration>,
    pub(super) style: Style,
}

/// An event that the calls do not cause.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum PlannedEvent {
    /// The server closes its sessions and ends.
    Stop(usize),
    /// The server is gone without a word.
    Crash(usize),
    /// The server begins again, if it does not run.
    Start(usize),
    /// The server is drained within this time. It restarts after the pause that follows.
    Drain(usize, Duration, Duration),
    /// No packet passes between this server and this client.
    Part(usize, usize),
    /// Packets pass again.
    Join(usize, usize),
    /// The resolvers list these servers from now on.
    List(Vec<bool>),
}

/// Everything that will happen in a run.
#[derive(Debug)]
pub(super) struct Plan {
    pub(super) weather: Weather,
    pub(super) servers: Vec<ServerPlan>,
    pub(super) clients: usize,
    pub(super) channels: Vec<ChannelPlan>,
    pub(super) calls: Vec<CallPlan>,
    pub(super) events: Vec<(Instant, PlannedEvent)>,
    /// Per thousand packets, how many are lost.
    pub(super) loss: u64,
    /// Whether hosts report packets to dead servers, as by ICMP.
    pub(super) reports: bool,
    /// Whether the servers' limits are so small that they refuse calls.
    pub(super) tight: bool,
    /// When the faults end.
    pub(super) heal_at: Instant,
}

impl Plan {
    pub(super) fn draw(seed: u64) -> Self {
        let source = Random::new(seed);
        let mut random = source.fork(1);
        let weathers = [Weather::Calm, Weather::Quick, Weather::Rolling, Weather::Wild];
        let weather = *random.pick(&weathers);
        let least = if weather == Weather::Rolling { 2 } else { 1 };
        let servers = random.within(least, 4) as usize;
        let clients = random.within(1, 2) as usize;
        let tight = random.percent(25);
        let span = random.within(1_500, 3_500) * MS;
        let channels: Vec<_> =
            (0..clients).flat_map(|client| draw_channels(&mut random, client, weather)).collect();
        let events = draw_events(&mut source.fork(2), weather, servers, clients, span);
        let mut random = source.fork(3);
        let times: Vec<_> = events.iter().map(|(at, _)| *at).collect();
        let calls = draw_calls(&mut random, channels.len(), (span, &times), tight);
        let mut random = source.fork(4);
        let is_wild = weather == Weather::Wild;
        Self {
            weather,
            servers: (0..servers).map(|_| draw_server(&mut random, tight)).collect(),
            clients,
            channels,
            calls,
            events,
            loss: if is_wild && random.percent(40) { random.within(1, 30) } else { 0 },
            reports: is_wild && random.percent(50),
            tight,
            heal_at: START.plus_nanos(span + 200 * MS),
        }
    }
}

fn draw_server(random: &mut Random, tight: bool) -> ServerPlan {
    let workers = *random.pick(&[1, 1, 3]);
    match tight {
        true => ServerPlan {
            workers,
            queue: random.within(1, 6) as usize,
            task_limit: random.within(1, 8) as usize,
        },
        false => ServerPlan { workers, queue: 4_096, task_limit: 65_536 },
    }
}

fn draw_channels(random: &mut Random, client: usize, weather: Weather) -> Vec<ChannelPlan> {
    let is_wild = weather == Weather::Wild;
    let count = random.within(1, 2);
    let mut channel = || {
        let base = Duration::from_millis(random.within(5, 50));
        let balances = [Balance::RoundRobin, Balance::LeastOutstanding, Balance::TwoChoices];
        ChannelPlan {
            client,
            balance: *random.pick(&balances),
            sessions: random.within(1, 3) as usize,
            base,
            cap: base * *random.pick(&[4, 100, 100]),
            resolve_pause: Duration::from_millis(*random.pick(&[10, 50, 300])),
            queue_limit: *random.pick(&[2, 8, 1_024, 1_024]),
            good_for: random.percent(40).then(|| Duration::from_millis(random.within(20, 400))),
            latency: Duration::from_micros(*random.pick(&[0, 50, 5_000])),
            bad_answers: if is_wild && random.percent(50) { 30 } else { 0 },
            retries: draw_retries(random),
            waits: random.percent(40),
        }
    };
    (0..count).map(|_| channel()).collect()
}

fn draw_retries(random: &mut Random) -> RetryPlan {
    match random.below(10) {
        0..4 => RetryPlan::Default,
        4 => RetryPlan::Never,
        _ => RetryPlan::Policy {
            attempts: random.within(2, 6) as u32,
            backoff: Duration::from_micros(*random.pick(&[100, 1_000, 20_000, 100_000])),
            unexecuted: random.percent(40),
            ratio: *random.pick(&[0.0, 0.2, 0.5, 0.5]),
            per_second: *random.pick(&[0, 0, 1, 100]),
        },
    }
}

fn draw_calls(
    random: &mut Random,
    channels: usize,
    (span, events): (u64, &[Instant]),
    tight: bool,
) -> Vec<CallPlan> {
    let count = random.within(20, 300);
    // A storm: the handlers refuse most calls. It shows whether the retries keep to their budgets.
    let refused = if random.percent(30) { 90 } else { random.below(20) as u32 };
    // Calls come in bursts, some of which begin with an event or shortly before.
    let new_burst = *random.pick(&[5, 30]);
    let kinds = [Kind::Now, Kind::Task, Kind::Worker, Kind::Deferred];
    let favourite = *random.pick(&kinds);
    let mut at = START.plus_nanos(MS);
    let mut calls = Vec::new();
    for _ in 0..count {
        if random.percent(new_burst) {
            at = match random.percent(40) && !events.is_empty() {
                true => {
                    let early = random.below_one_of(&[(1, 1), (1, 5 * MS)]);
                    let event = random.pick(events).as_nanos() - early;
                    Instant::from_nanos(event.max(START.as_nanos()))
                }
                false => START.plus_nanos(random.below(span)),
            };
        }
        let bits = random.within(0, 21);
        at = at.plus_nanos(random.below(1 << bits));
        let kind = if random.percent(50) { favourite } else { *random.pick(&kinds) };
        calls.push(CallPlan { kind, ..draw_call(random, at, channels, refused, tight) });
    }
    calls
}

fn draw_call(
    random: &mut Random,
    at: Instant,
    channels: usize,
    refused: u32,
    tight: bool,
) -> CallPlan {
    let longest = if tight { 20 * MS } else { 60 * MS };
    let work =
        Duration::from_nanos(random.below_one_of(&[(3, 100_000), (2, 5 * MS), (1, longest)]));
    let style = *random.pick(&[Style::Awaited, Style::Awaited, Style::Held, Style::Callback]);
    let is_refused = random.percent(refused);
    let cancel = random
        .percent(25)
        .then(|| Duration::from_nanos(random.below_one_of(&[(2, 300_000), (1, 60 * MS)])));
    CallPlan {
        at,
        channel: random.below(channels as u64) as usize,
        kind: Kind::Now,
        idempotent: random.percent(50),
        work,
        refusals: if is_refused { *random.pick(&[1, 2, 99]) } else { 0 },
        request_len: random.below_one_of(&[(8, 100), (1, 4_000), (1, 20_000)]) as usize,
        response_len: random.below_one_of(&[(8, 100), (1, 4_000), (1, 20_000)]) as usize,
        deadline: random.percent(40).then(|| {
            Duration::from_nanos(random.below_one_of(&[(1, 2 * MS), (2, 300 * MS)]) + 1_000)
        }),
        cancel: cancel.filter(|_| style != Style::Callback),
        style,
    }
}

fn draw_events(
    random: &mut Random,
    weather: Weather,
    servers: usize,
    clients: usize,
    span: u64,
) -> Vec<(Instant, PlannedEvent)> {
    let mut events = Vec::new();
    let mut add = |nanos: u64, event| events.push((START.plus_nanos(nanos), event));
    match weather {
        Weather::Calm => {}
        Weather::Quick => {
            // One server at a time, or all at once.
            let together = random.percent(50);
            let groups: Vec<_> = match together {
                true => std::iter::once(0..servers).collect(),
                false => (0..servers).map(|at| at..at + 1).collect(),
            };
            for group in groups {
                let mut at = random.within(100, 800) * MS;
                while at < span {
                    // A session that ends earlier than the base of the backoff is reopened later.
                    for server in group.clone() {
                        add(at, PlannedEvent::Stop(server));
                        add(at, PlannedEvent::Start(server));
                    }
                    at += random.within(400, 1_500) * MS;
                }
            }
        }
        Weather::Rolling => {
            let mut at = random.within(200, 500) * MS;
            let mut server = 0;
            while at < span {
                let within = (1 + random.below_one_of(&[(2, 5), (1, 200)])) * MS;
                let pause = random.below(100) * MS;
                let [within, pause] = [within, pause].map(Duration::from_nanos);
                add(at, PlannedEvent::Drain(server, within, pause));
                server = (server + 1) % servers;
                at += random.within(700, 900) * MS;
            }
        }
        Weather::Wild => {
            for server in 0..servers {
                let mut at = random.within(50, 1_000) * MS;
                while at < span {
                    let end = match random.percent(50) {
                        true => PlannedEvent::Stop(server),
                        false => PlannedEvent::Crash(server),
                    };
                    add(at, end);
                    at += random.below_one_of(&[(1, 5), (2, 150), (2, 1_200)]) * MS;
                    add(at, PlannedEvent::Start(server));
                    at += random.within(20, 1_500) * MS;
                }
            }
            for _ in 0..random.below(3) {
                let pair = (random.below(servers as u64), random.below(clients as u64));
                let (server, client) = (pair.0 as usize, pair.1 as usize);
                let at = random.below(span);
                add(at, PlannedEvent::Part(server, client));
                add(at + random.within(1, 900) * MS, PlannedEvent::Join(server, client));
            }
        }
    }
    if matches!(weather, Weather::Calm | Weather::Wild) {
        for _ in 0..random.below(5) {
            let keep = random.below(servers as u64);
            let listed = (0..servers as u64).map(|at| at == keep || random.percent(60)).collect();
            add(random.below(span), PlannedEvent::List(listed));
        }
    }
    events.sort_by_key(|(at, _)| *at);
    events
}
