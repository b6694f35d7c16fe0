//! Tests of the simulator: it is deterministic, its faults act, and some seeds of all kinds pass.
//! `.ci/run` runs many more with optimization.

use std::sync::Mutex;

use erpc_core::transport::fault::FaultCounts;
use erpc_sim::plan::{Cut, EndpointPlan, Plan, PlannedEvent};
use erpc_sim::runner::{SeedOutcome, Summary, run_plan, run_seed, run_seeds};
use erpc_sim::world::Happened;
use erpc_sim::{Feature, Features, Scenario, SimRoute};

fn run(from: u64, count: u64, scenario: Option<Scenario>, threads: usize) -> Summary {
    run_seeds(from, count, scenario, threads, &Cut::default(), &|_, _| {})
}

#[test]
fn eighty_seeds_break_no_rule_and_every_fault_acts() {
    let summary = run(200, 80, None, 2);
    assert_eq!(summary.failure, None);
    assert_eq!(summary.seeds, 80);
    let faults = format!("{:?}{:?}", summary.faults, summary.happened);
    assert!(!faults.contains(": 0,") && !faults.contains(": 0 "), "a fault never acted: {faults}");
    let outcomes = format!("{:?}{:?}", summary.outcomes, summary.streams);
    assert!(!outcomes.contains(": 0"), "an outcome never occurred: {outcomes}");
    // The average load of a seed.
    let (packets, calls) = (summary.packets / summary.seeds, summary.calls / summary.seeds);
    assert!(packets >= 20_000 && calls >= 1_000, "{packets} packets and {calls} calls per seed");
}

/// How often a feature acted.
fn acted(feature: Feature, faults: &FaultCounts, happened: &Happened) -> u64 {
    match feature {
        Feature::Loss => faults.dropped,
        Feature::Bursts => faults.burst_dropped,
        Feature::Duplicates => faults.duplicated,
        Feature::Reorder => faults.reordered,
        Feature::Spikes => faults.spiked,
        Feature::Corruption => faults.corrupted,
        Feature::Truncation => faults.truncated,
        Feature::Extension => faults.extended,
        Feature::Partitions | Feature::OneWay | Feature::MtuShrink => faults.outage_dropped,
        Feature::Links => happened.stops,
        Feature::Crashes => happened.crashes,
        Feature::Replay => happened.replayed,
        Feature::Spoofing => happened.forged,
        Feature::SlowHandlers => happened.late_answers,
        Feature::Panics => happened.panics,
        Feature::Memory => happened.hoards.min(happened.allocations_refused),
        Feature::ClockStall => happened.stalls,
        Feature::ClockLeap => happened.leaps,
        Feature::Churn => happened.reconnects,
        // Receive queues overflow only together with other faults, because clients keep to their
        // windows.
        Feature::Squeeze => happened.nic_drops,
        Feature::Metadata => happened.extended,
        Feature::Deadlines => happened.late,
        Feature::Cancels => happened.cancels.min(happened.cancelled),
        Feature::Streams => happened.streams,
        Feature::Pacing => happened.departures,
        Feature::Absence => happened.absences,
        Feature::Limits => happened.refused,
        Feature::Reports => happened.forged_reports,
        Feature::Checksums => unreachable!("checksums only detect other faults"),
    }
}

#[test]
fn every_fault_acts_alone() {
    /// The most seeds until a fault acts.
    const MAX_SEEDS: usize = 60;
    for feature in Feature::ALL {
        if feature == Feature::Checksums {
            continue;
        }
        let alone = Feature::ALL.into_iter().filter(|&other| other != feature);
        let cut = Cut { without: Features::of(&alone.collect::<Vec<_>>()), ..Cut::default() };
        let scenario = Scenario::Pair;
        let has = |seed: &u64| Plan::draw(*seed, scenario, &cut).features.has(feature);
        let (mut faults, mut happened) = (FaultCounts::default(), Happened::default());
        let acts = (0..).filter(has).take(MAX_SEEDS).any(|seed| {
            let SeedOutcome::Ran(report) = run_seed(seed, Some(scenario), &cut) else {
                panic!("seed {seed} with {} alone panics", feature.name());
            };
            assert_eq!(report.violation, None, "seed {seed} with {} alone", feature.name());
            faults += report.faults;
            happened += report.happened;
            acted(feature, &faults, &happened) > 0
        });
        assert!(
            acts,
            "{} did nothing in {MAX_SEEDS} seeds: {faults:?} {happened:?}",
            feature.name()
        );
    }
}

/// The work of a run without its faults: the calls between endpoints, with times and sizes.
fn work(plan: &Plan) -> String {
    let parts = |endpoint: &EndpointPlan| {
        format!(
            "{:?}{:?}{:?}{}",
            endpoint.route, endpoint.servers, endpoint.rounds, endpoint.nic.max_datagram
        )
    };
    let endpoints: Vec<_> = plan.endpoints.iter().map(parts).collect();
    format!("{:?}{:?}{:?}{endpoints:?}", plan.sizes, plan.heal_at, plan.outstanding)
}

#[test]
fn a_cut_fault_does_not_change_the_work_of_a_run() {
    for seed in 0..150 {
        let scenario = Scenario::of_seed(seed);
        let plan = Plan::draw(seed, scenario, &Cut::default());
        for feature in plan.features.iter() {
            let cut = Cut { without: Features::of(&[feature]), ..Cut::default() };
            let cut = Plan::draw(seed, scenario, &cut);
            assert!(!cut.features.has(feature));
            assert_eq!(work(&cut), work(&plan), "seed {seed} without {}", feature.name());
        }
    }
}

#[test]
fn a_seed_reproduces_its_run_bit_for_bit() {
    for seed in [3, 14, 159, 2_653, 58_979] {
        let [first, second] = [(); 2].map(|()| match run_seed(seed, None, &Cut::default()) {
            SeedOutcome::Ran(report) => *report,
            SeedOutcome::Panicked(what) => panic!("seed {seed}: {what}"),
        });
        assert_eq!(format!("{first:?}"), format!("{second:?}"), "seed {seed}");
        assert!(first.packets > 0, "seed {seed}");
    }
}

#[test]
fn a_panic_reports_its_time_and_the_progress_of_the_run() {
    let mut plan = Plan::draw(3, Scenario::Pair, &Cut::default());
    let missing = plan.endpoints.len();
    plan.events = vec![(plan.heal_at, PlannedEvent::Leap(missing, 1))];
    let SeedOutcome::Panicked(panic) = run_plan(&plan) else {
        panic!("an endpoint that does not exist has no clock")
    };
    assert_eq!(panic.violation.at, plan.heal_at);
    assert!(panic.violation.what.contains("index out of bounds"), "{panic}");
    assert!(panic.packets > 0 && panic.calls > 0, "{panic:?}");
}

#[test]
fn results_depend_on_the_seeds_and_not_on_the_threads() {
    let hashes = Mutex::new(Vec::new());
    let note = |_: u64, outcome: &SeedOutcome| {
        if let SeedOutcome::Ran(report) = outcome {
            hashes.lock().expect("no thread has panicked").push(report.trace_hash);
        }
    };
    let one = run_seeds(100, 8, Some(Scenario::Pair), 1, &Cut::default(), &note);
    let three = run(100, 8, Some(Scenario::Pair), 3);
    assert_eq!((one.packets, one.trace_hash), (three.packets, three.trace_hash));
    let mut hashes = hashes.into_inner().expect("no thread has panicked");
    hashes.sort_unstable();
    hashes.dedup();
    assert_eq!(hashes.len(), 8, "different seeds give different runs");
}

#[test]
fn every_call_gets_its_response_without_faults() {
    let summary = run(7, 6, Some(Scenario::Calm), 2);
    assert_eq!(summary.failure, None);
    let outcomes = summary.outcomes;
    assert_eq!(outcomes.responses, summary.calls, "{outcomes:?}");
    assert_eq!((outcomes.statuses, outcomes.not_executed, outcomes.maybe_executed), (0, 0, 0));
    let streams = summary.streams;
    assert_eq!(streams.begun, streams.finished + streams.statuses + streams.left, "{streams:?}");
    assert!(streams.finished > 0 && streams.failed == 0, "{streams:?}");
}

#[test]
fn a_thousand_to_one_incast_breaks_no_rule() {
    let summary = run(1, 1, Some(Scenario::Incast), 1);
    assert_eq!(summary.failure, None);
    assert!(summary.calls > 1_000, "{} calls", summary.calls);
}

#[test]
fn the_thesis_cluster_breaks_no_rule() {
    let summary = run(1, 2, Some(Scenario::TwoTier), 2);
    assert_eq!(summary.failure, None);
}

#[test]
fn routes_differ_by_host_and_by_port() {
    use erpc_core::transport::Route;
    let bytes = |route: SimRoute| {
        let mut out = [0; 32];
        let len = route.to_bytes(&mut out);
        out[..len].to_vec()
    };
    let route = SimRoute::new(7, 1);
    assert_ne!(bytes(route), bytes(route.with_port(2)));
    assert_ne!(bytes(route), bytes(SimRoute::new(8, 1)));
    assert_eq!(route.with_port(9).port(), 9);
}
