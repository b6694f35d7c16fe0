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
//! * `fatal`: the moment at which a process dies.
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

use std::time::Duration;

use erpc_txn::workloads::Random;

use fatal::{Method, Moment, Shot, Victim};
use round::{Report, Round, Trouble};

/// Runs a member if this process is one. Otherwise it has nothing to do.
#[test]
fn member() {
    member::run_if_asked();
}

/// A number from the environment.
fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// All moments at which a process can die: at each request that a phase sends to another node, before
/// and after the receiver has done it, the coordinator or the receiver.
fn shots() -> Vec<(Victim, Method, Moment)> {
    let moments = [Moment::Before, Moment::After];
    let at = |victim| {
        Method::ALL.into_iter().flat_map(move |method| moments.map(|at| (victim, method, at)))
    };
    at(Victim::Sender).chain(at(Victim::Receiver)).collect()
}

/// `TXN_KILLS` is the number of kills. By default: the coordinator in each phase, a backup, a primary,
/// a replica of a log, and a process at any time.
#[test]
fn a_kill_loses_no_acknowledged_commit_and_leaves_no_lock_to_the_living() {
    let kills = number("TXN_KILLS", 0);
    let mut random = Random::new(number("TXN_FROM", 1));
    let mut troubles = Vec::new();
    if kills == 0 {
        for method in Method::ALL {
            troubles.push((Victim::Sender, method, moment(&mut random)));
        }
        for method in [Method::Append, Method::CommitBackup, Method::CommitPrimary] {
            troubles.push((Victim::Receiver, method, moment(&mut random)));
        }
    } else {
        let all = shots().into_iter().cycle();
        troubles.extend(all.take(kills as usize));
    }
    let mut total = Report::default();
    for (at, (victim, method, moment)) in troubles.into_iter().enumerate() {
        // One in ten dies at any time.
        let trouble = if at % 10 == 9 {
            Trouble::KillAnytime
        } else {
            Trouble::Kill(Shot { victim, method, moment, count: 1 + random.below(20) as u32 })
        };
        total.add(run(trouble, 2 + at % 2, &mut random));
    }
    println!("{total}");
    assert!(total.committed > 0 && total.read > 0 && total.written > 0, "too little: {total}");
}

fn moment(random: &mut Random) -> Moment {
    if random.percent(50) { Moment::Before } else { Moment::After }
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
