//! A member survives any messages of its peers: those that a fuzzer has found, and random ones.

mod omni;
mod raft;

use erpc_raft::fuzz::{Reached, Sent, input};
use erpc_test_tools::corpus;
use erpc_test_tools::random::Random;

/// How far the members came.
fn random_messages_are_survived(
    message: fn(&mut Random) -> Sent,
    run: fn(&[u8]) -> Reached,
) -> Reached {
    let seeds = std::env::var("RAFT_HOSTILE_SEEDS").ok();
    let seeds = seeds.map_or(50_000, |seeds| seeds.parse().expect("a number of seeds"));
    let mut all = Reached::default();
    for seed in 0..seeds {
        let mut random = Random::new(seed);
        let messages: Vec<_> = (0..random.below(16)).map(|_| message(&mut random)).collect();
        let bytes = input(random.below(60) as u8, &messages);
        let outcome = std::panic::catch_unwind(|| run(&bytes));
        let reached = outcome.unwrap_or_else(|_| panic!("seed {seed}: fails on {bytes:?}"));
        all.led += reached.led;
        all.applied += reached.applied;
        all.changes += reached.changes;
        all.snapshots += reached.snapshots;
    }
    all
}

/// A generator, not a check: `cargo test -p erpc-raft --test hostile -- --ignored` writes seeds into
/// the corpora. Files that fuzzing has added stay.
fn write_the_seeds(target: &str, message: fn(&mut Random) -> Sent) {
    for seed in 0..12 {
        let mut random = Random::new(seed);
        let messages: Vec<_> = (0..4).map(|_| message(&mut random)).collect();
        let bytes = input(random.below(40) as u8, &messages);
        corpus::write(target, &format!("random-{seed}"), &bytes);
    }
}
