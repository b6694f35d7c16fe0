//! Rounds find deliberate bugs.

use std::time::Duration;

use erpc_txn::workloads::Random;

use crate::fatal::{Method, Moment, Shot, Victim};
use crate::round::{Round, Trouble};

/// Within this many rounds, each bug must show.
const ROUNDS: u64 = 12;

/// A lost commit or a contradiction, and what shows it.
const LOST: &[(&str, &[(Victim, Method)])] = &[
    ("ReportedBeforeStored", &[(Victim::Sender, Method::Append)]),
    (
        "LogSkipped",
        &[(Victim::Sender, Method::CommitBackup), (Victim::Sender, Method::CommitPrimary)],
    ),
    ("RecordNotKept", &[(Victim::Sender, Method::CommitBackup)]),
    ("BackupSkipped", &[(Victim::Receiver, Method::CommitPrimary)]),
    (
        "UnknownIsAborted",
        &[(Victim::Receiver, Method::Append), (Victim::Receiver, Method::CommitBackup)],
    ),
    // Stuck locks.
    ("AbortKeepsLocks", &[(Victim::Sender, Method::Unlock), (Victim::Sender, Method::Execute)]),
    ("UnwrittenLocksStay", &[(Victim::Sender, Method::CommitPrimary)]),
];

/// Bugs that a pause shows: locks that stay, and commits that are given up.
const PAUSED: &[&str] = &["SentLocksForgotten", "WorkDropped"];

/// All bugs, or the one that the environment variable `TXN_PLANTED` names.
#[test]
fn every_planted_bug_is_found() {
    let only = std::env::var("TXN_PLANTED").ok();
    let mut random = Random::new(1);
    let mut missed = Vec::new();
    let paused = PAUSED.iter().map(|&name| (name, &[][..]));
    for (name, shots) in LOST.iter().copied().chain(paused) {
        if only.as_ref().is_some_and(|only| only != name) {
            continue;
        }
        let found = (0..ROUNDS).find_map(|round| {
            let shown_by = shots.len().max(1);
            let trouble = match shots.get(round as usize % shown_by) {
                Some(&(victim, method)) => {
                    let moment = if random.percent(50) { Moment::Before } else { Moment::After };
                    let count = 1 + random.below(5) as u32;
                    Trouble::Kill(Shot { victim, method, moment, count })
                }
                None => Trouble::Pause(Duration::from_millis(1500)),
            };
            // Each shot takes turns with two and three replicas.
            let replicas = 2 + round as usize / shown_by % 2;
            let (seed, bug) = (random.word(), name.to_owned());
            let round = Round { trouble, replicas, seed, bug };
            Some(format!("{round}: {}", round.run().err()?))
        });
        match found {
            Some(found) => println!("{name}: {found}"),
            None => {
                println!("{name}: NOT FOUND");
                missed.push(name);
            }
        }
    }
    assert!(missed.is_empty(), "not found within {ROUNDS} rounds: {missed:?}");
}
