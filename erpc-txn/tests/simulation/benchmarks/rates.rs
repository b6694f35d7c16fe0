//! How often the benchmarks' transactions succeed, and how often they come.

use erpc_txn::workloads::smallbank::SmallBank;
use erpc_txn::workloads::tatp::Tatp;
use erpc_txn::workloads::{Outcome, Workload};

use super::Loaded;

/// Checks that `hits` of `of` draws are within five standard deviations of `share`.
fn is_share(what: &str, hits: u64, of: u64, share: f64) {
    let (n, deviation) = (of as f64, (of as f64 * share * (1.0 - share)).sqrt());
    let off = (hits as f64 - n * share).abs();
    assert!(off <= 5.0 * deviation, "{what}: {hits} of {of}, expected a share of {share}");
}

#[test]
fn tatp_succeeds_as_often_as_its_definition_says() {
    let shares = [0.35, 0.35, 0.10, 0.02, 0.14, 0.02, 0.02];
    let successes = [1.0, 0.625, 0.204, 0.625, 1.0, 0.3125, 0.3125];
    let loaded = Loaded::start(3, 1, Tatp::new(3000));
    let choices = loaded.mix(20_000);
    let (mut all, mut good) = ([0; 7], [0; 7]);
    for (choice, outcome) in choices.iter().zip(loaded.run(choices.clone())) {
        let kind = Tatp::kind(choice);
        all[kind] += 1;
        match outcome {
            Outcome::Succeeded(0) => good[kind] += 1,
            Outcome::Failed => {}
            other => panic!("{choice:?}: {other:?}"),
        }
    }
    let count = choices.len() as u64;
    for (kind, name) in Tatp::KINDS.iter().enumerate() {
        is_share(name, all[kind], count, shares[kind]);
        is_share(name, good[kind], all[kind], successes[kind]);
    }
    is_share("all", good.iter().sum(), count, 0.754);
    let counts = loaded.cluster.hosts[0].node().expect("it lives").counts();
    assert_eq!((counts.attempts, counts.commits), (count, good.iter().sum()), "none is retried");
}

#[test]
fn smallbank_keeps_its_shares_and_its_money() {
    let shares = [0.15, 0.15, 0.15, 0.25, 0.15, 0.15];
    // Little money, so that payments fail and checks overdraw.
    let loaded = Loaded::start(3, 2, SmallBank::new(500).initial(700));
    let choices = loaded.mix(4000);
    let (mut all, mut failed, mut added) = ([0; 6], [0; 6], 0);
    for (choice, outcome) in choices.iter().zip(loaded.run(choices.clone())) {
        let kind = SmallBank::kind(choice);
        all[kind] += 1;
        match outcome {
            Outcome::Succeeded(cents) => added += cents,
            Outcome::Failed => failed[kind] += 1,
            other => panic!("{choice:?}: {other:?}"),
        }
    }
    for (kind, name) in SmallBank::KINDS.iter().enumerate() {
        is_share(name, all[kind], choices.len() as u64, shares[kind]);
        assert_eq!(failed[kind] > 0, *name == "SEND_PAYMENT", "{name}: {failed:?}");
    }
    for host in &loaded.cluster.hosts {
        // Each node holds all partitions.
        let mut rows = Vec::new();
        for (table, _, replica) in host.participant.replicas() {
            for snapshot in replica.snapshots() {
                let entries = snapshot.expect("nobody writes").entries;
                rows.extend(entries.into_iter().map(|(_, value)| (table, value)));
            }
        }
        let mut rows = rows.iter().map(|(table, value)| (*table, &**value));
        assert_eq!(loaded.workload.total(&mut rows), Some(500 * 2 * 700 + added));
    }
}
