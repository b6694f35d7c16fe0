//! The faults that erpc promises to survive, one by one.

use std::time::Duration;

use erpc_core::protocol::{DEFAULT_SLOTS, EndpointConfig};
use erpc_core::time::Instant;
use erpc_core::transport::fault::{Faults, Outage};
use erpc_sim::plan::{Cut, EndpointPlan, Plan, PlannedEvent};
use erpc_sim::runner::{SeedOutcome, run_plan};
use erpc_sim::world::RunReport;
use erpc_sim::{Feature, Features, Scenario, SimRoute};

/// The start of the world's clock.
const START: Instant = Instant::from_nanos(1_000_000_000);

/// A server, and a client that opens `sessions` sessions to it.
fn pair(seed: u64, sessions: usize, features: &[Feature]) -> Plan {
    let mut plan = Plan::draw(seed, Scenario::Calm, &Cut::default());
    plan.features = Features::of(features);
    plan.drawn = plan.features;
    let template = plan.endpoints[0].clone();
    let endpoint = |host: u32, port: u16| EndpointPlan {
        route: SimRoute::new(host, port),
        group: Vec::new(),
        config: EndpointConfig::new(),
        slots: DEFAULT_SLOTS as u8,
        servers: Vec::new(),
        rounds: Vec::new(),
        lanes: Vec::new(),
        stream_rounds: Vec::new(),
        ..template.clone()
    };
    let server = EndpointPlan { group: vec![1], ..endpoint(0, 1) };
    let client = EndpointPlan { servers: vec![server.route; sessions], ..endpoint(1, 1) };
    plan.endpoints = vec![server, client];
    plan.outstanding = 64;
    plan
}

fn suffer(plan: &mut Plan, faults: &Faults) {
    for endpoint in &mut plan.endpoints {
        endpoint.faults = (faults.clone(), Faults::none());
    }
}

fn configure(plan: &mut Plan, config: &EndpointConfig) {
    for endpoint in &mut plan.endpoints {
        endpoint.config = config.clone();
        endpoint.slots = DEFAULT_SLOTS as u8;
    }
}

/// Runs a plan that must not violate any rule.
#[track_caller]
fn survives(plan: &Plan) -> RunReport {
    match run_plan(plan) {
        SeedOutcome::Ran(report) => {
            assert_eq!(report.violation, None);
            *report
        }
        SeedOutcome::Panicked(what) => panic!("{what}"),
    }
}

#[test]
fn ten_thousand_calls_get_their_responses_under_30_percent_loss() {
    let mut plan = pair(1, 4, &[Feature::Loss]);
    suffer(&mut plan, &Faults::none().drop(0.3));
    plan.endpoints[1].rounds = vec![(START, 10_000)];
    plan.heal_at = START + Duration::from_secs(600);
    let report = survives(&plan);
    assert!(report.faults.dropped > 10_000, "{:?}", report.faults);
    assert_eq!(report.outcomes.responses, 10_000, "{:?}", report.outcomes);
}

#[test]
fn fifty_sessions_open_under_30_percent_burst_loss() {
    for seed in 0..20 {
        let mut plan = pair(seed, 50, &[Feature::Bursts]);
        // Bursts of 8 packets on average, with 19 delivered packets between them: 30 % are lost.
        suffer(&mut plan, &Faults::none().bursts(1.0 / 19.0, 8.0, 1.0));
        plan.endpoints[1].rounds = vec![(START, 50)];
        plan.heal_at = START + Duration::from_secs(30);
        let report = survives(&plan);
        assert!(report.faults.burst_dropped > 50, "{:?}", report.faults);
        assert_eq!(report.sessions_opened, 50, "seed {seed}: {:?}", report.outcomes);
        assert_eq!(report.outcomes.responses, 50, "seed {seed}: {:?}", report.outcomes);
    }
}

#[test]
fn few_idle_sessions_die_under_30_percent_burst_loss() {
    let mut dead = 0;
    for seed in 0..100 {
        let mut plan = pair(seed, 1, &[Feature::Bursts]);
        suffer(&mut plan, &Faults::none().bursts(1.0 / 19.0, 8.0, 1.0));
        plan.endpoints[1].rounds = vec![(START, 1)];
        // Only its pings keep the session alive during the bursts.
        plan.heal_at = START + Duration::from_secs(60);
        let report = survives(&plan);
        dead += usize::from((report.sessions_opened, report.outcomes.responses) != (1, 1));
    }
    // Measured: 5 of 600 runs had no session or lost theirs. A session opens unless some 40
    // messages in a row have no answer. It dies only if all pings of one end have no answer until
    // the liveness timeout: about 75 pings of the client, or 59 of the server.
    assert!(dead <= 2, "{dead} of 100");
}

/// After 1 s, all packets are lost for 5 s, then none for 2 s, and so on.
fn blackhole(plan: &mut Plan, cycles: u64) {
    let mut faults = Faults::none();
    for cycle in 0..cycles {
        let from = Duration::from_secs(1 + 7 * cycle);
        faults = faults.outage(Outage { from, until: from + Duration::from_secs(5), over: 0 });
    }
    suffer(plan, &faults);
    plan.endpoints[1].rounds =
        (0..70 * cycles).map(|at| (START + Duration::from_millis(100 * at), 20)).collect();
    plan.heal_at = START + Duration::from_secs(7 * cycles);
}

#[test]
fn a_blackhole_shorter_than_the_liveness_timeout_loses_no_call() {
    let mut plan = pair(3, 3, &[Feature::Partitions]);
    blackhole(&mut plan, 6);
    let report = survives(&plan);
    assert!(report.faults.outage_dropped > 100, "{:?}", report.faults);
    assert_eq!(report.outcomes.responses, report.calls, "{:?}", report.outcomes);
    assert_eq!(report.sessions_opened, 3, "the sessions stay alive");
    assert!(report.calls > 3_000, "{}", report.calls);
}

#[test]
fn a_blackhole_longer_than_the_liveness_timeout_ends_each_call_once_and_the_next_session_works() {
    let mut plan = pair(4, 3, &[Feature::Partitions]);
    let (second, millis) = (Duration::from_secs(1), Duration::from_millis);
    configure(
        &mut plan,
        &EndpointConfig::new().liveness_timeout(second).ping_interval(millis(300)),
    );
    blackhole(&mut plan, 6);
    let report = survives(&plan);
    assert!(
        report.outcomes.maybe_executed + report.outcomes.not_executed > 0,
        "{:?}",
        report.outcomes
    );
    assert!(report.sessions_opened >= 3 * 6, "{} sessions in 6 cycles", report.sessions_opened);
    assert!(report.outcomes.responses > 1_000, "{:?}", report.outcomes);
}

#[test]
fn a_server_that_restarts_1_000_times_at_its_address_executes_nothing_of_another_life() {
    let mut plan =
        pair(5, 4, &[Feature::Crashes, Feature::Duplicates, Feature::Spikes, Feature::Replay]);
    // Copies of packets arrive late, so that packets of one life arrive in another.
    let late = Duration::from_millis(40);
    suffer(&mut plan, &Faults::none().duplicate(0.2, 3, late).spike(0.02, late));
    let lives = 1_000;
    for life in 1..=lives {
        let at = START + Duration::from_millis(30 * life);
        plan.events.push((at, PlannedEvent::Crash(0, 1_000_000)));
        plan.events.push((at + Duration::from_millis(10), PlannedEvent::Replay(8)));
    }
    plan.endpoints[1].rounds =
        (0..lives * 3).map(|at| (START + Duration::from_millis(10 * at), 20)).collect();
    plan.heal_at = START + Duration::from_millis(30 * (lives + 1));
    let report = survives(&plan);
    assert_eq!(report.happened.crashes, lives);
    assert!(report.sessions_opened >= lives, "{} sessions", report.sessions_opened);
    let outcomes = report.outcomes;
    assert!(outcomes.responses > 5_000 && outcomes.maybe_executed > 1_000, "{outcomes:?}");
}
