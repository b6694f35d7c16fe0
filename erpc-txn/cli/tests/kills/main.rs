//! A cluster of three processes over UDP, of which one is killed or paused under load.
//!
//! ```text
//! this process                                three members
//! callers ── transactions on lists ────────>  gateway, coordinator, participant
//!    │                                           │ `fatal`: dies, or kills the coordinator, when
//!    │ who committed, who does not know          │ a request of the n-th transaction arrives
//!    v                                           v
//! verdict <────────────────────────────────── holdings: replicas, locks and records of survivors
//! ```
//!
//! * `round`: one cluster, one kill or pause, and what must hold afterwards.
//! * `cluster`: the processes. `member`: what such a process runs.
//! * `schedule`: which kills a run makes. `fatal`: the moment at which a process dies.
//! * `callers`: the load, and what its callers learned.
//! * `holdings`: what survivors hold. `replay`: what can be rebuilt from it.
#![cfg(not(loom))]

mod callers;
mod cluster;
mod fatal;
mod holdings;
mod member;
#[cfg(erpc_mutants)]
mod planted;
mod replay;
mod round;
mod schedule;

use std::time::Duration;

use erpc_txn::workloads::Random;

use round::{Report, Round, Trouble};
use schedule::Kill;

/// Runs a member if this process is one. Otherwise it has nothing to do.
#[test]
fn member() {
    member::run_if_asked();
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// `TXN_KILLS` is the number of kills. By default: the coordinator in each phase, a replica of a log, a
/// backup, a primary, and a process at any time.
#[test]
fn a_kill_loses_no_acknowledged_commit_and_leaves_no_lock_to_the_living() {
    let mut random = Random::new(number("TXN_FROM", 1));
    let kills = match number("TXN_KILLS", 0) {
        0 => schedule::default(&mut random),
        kills => schedule::long(kills as usize, &mut random),
    };
    let mut total = Report::default();
    for Kill { trouble, replicas } in kills {
        total.add(run(trouble, replicas, &mut random));
    }
    println!("{total}");
    assert!(total.committed > 0 && total.read > 0 && total.written > 0, "too little: {total}");
}

/// `TXN_PAUSES` is the number of pauses, of 0.1 s to 5 s. By default, there is a short one, and one
/// after which sessions have ended.
#[test]
fn a_pause_contradicts_nothing() {
    let pauses = number("TXN_PAUSES", 0);
    let mut random = Random::new(number("TXN_FROM", 1));
    let times: Vec<_> = match pauses {
        0 => vec![100, 2500],
        // From 0.1 to 5 s, evenly on a scale of logarithms.
        _ => (0..pauses).map(|_| (100.0 * 50f64.powf(random.unit())) as u64).collect(),
    };
    let mut total = Report::default();
    for (at, time) in times.into_iter().enumerate() {
        let trouble = Trouble::Pause(Duration::from_millis(time));
        total.add(run(trouble, 2 + at % 2, &mut random));
    }
    println!("{total}");
    assert!(total.committed > 0 && total.read > 0, "too little: {total}");
}

fn run(trouble: Trouble, replicas: usize, random: &mut Random) -> Report {
    let round = Round { trouble, replicas, seed: random.word(), bug: String::new() };
    println!("{round} begins");
    match round.run() {
        Ok(report) => {
            println!("{round}: {report}");
            report
        }
        Err(wrong) => panic!("{round}: {wrong}"),
    }
}
