//! Tests of the simulation of typed endpoints: it is deterministic, everything that it is about
//! happens, and some seeds pass. `.ci/run` runs many more with optimization.

use erpc_sim::typed::{Summary, Weather, run_seed, run_seeds};

/// All numbers of a struct, as it prints itself, are above 0.
fn all_occurred(counts: &impl std::fmt::Debug) -> bool {
    let printed = format!("{counts:?}");
    !printed.contains(": 0,") && !printed.contains(": 0 ")
}

#[test]
fn eighty_seeds_break_no_rule_and_calls_end_in_every_way() {
    let Summary { seeds, calls, failure, outcomes, .. } = run_seeds(300, 80, 2);
    assert_eq!(failure, None);
    assert_eq!(seeds, 80);
    assert!(all_occurred(&outcomes), "an outcome never occurred: {outcomes:?}");
    assert!(calls >= 80 * 100, "{calls} calls");
}

#[test]
fn a_seed_gives_the_same_run_with_any_number_of_threads() {
    let runs = [1, 2, 3].map(|threads| run_seeds(500, 12, threads));
    for run in &runs {
        assert_eq!((run.trace_hash, run.packets, run.calls), {
            (runs[0].trace_hash, runs[0].packets, runs[0].calls)
        });
    }
    assert_ne!(run_seeds(512, 12, 2).trace_hash, runs[0].trace_hash);
}

#[test]
fn every_weather_comes() {
    let seen: Vec<_> = (0..40).map(|seed| run_seed(seed, false).weather).collect();
    for weather in [Weather::Calm, Weather::Quick, Weather::Rolling, Weather::Wild] {
        assert!(seen.contains(&weather), "no run has {weather:?}");
    }
}
