//! How many requests the benchmarks' transactions make: the model of FaSST at f = 2.

use erpc_txn::workloads::objects::Objects;
use erpc_txn::workloads::smallbank::SmallBank;
use erpc_txn::workloads::tatp::Tatp;
use erpc_txn::workloads::ycsb::{Mix, Size, Ycsb};
use erpc_txn::workloads::{Outcome, Workload};

use super::Loaded;

/// Requests per attempt and per commit of this many transactions without conflicts.
fn requests<W: Workload>(workload: W, count: usize) -> (f64, f64) {
    // Many nodes, so that keys of a transaction have different primaries.
    let loaded = Loaded::start(7, 2, workload);
    let outcomes = loaded.run(loaded.mix(count));
    let is_expected =
        |outcome: &Outcome| matches!(outcome, Outcome::Succeeded(_) | Outcome::Failed);
    assert!(outcomes.iter().all(is_expected), "{outcomes:?}");
    let counts = loaded.cluster.hosts[0].node().expect("it lives").counts();
    assert_eq!(counts.attempts, count as u64);
    assert!(counts.messages <= counts.requests, "{counts:?}");
    let requests = counts.requests as f64;
    (requests / counts.attempts as f64, requests / counts.commits as f64)
}

fn is_near(got: f64, expected: f64, within: f64) {
    assert!((got - expected).abs() <= within, "{got:.3} requests, expected {expected} ± {within}");
}

#[test]
fn objects() {
    assert_eq!(requests(Objects::new(2000, 1, 0), 200).0, 1.0);
    assert_eq!(requests(Objects::new(2000, 4, 0), 200).0, 8.0);
    // Each of four keys is written in half of the cases. One transaction in 16 writes nothing, and so
    // stores no record: 2 requests fewer.
    is_near(requests(Objects::new(2000, 4, 2), 1500).0, 14.0 - 2.0 / 16.0, 0.3);
}

#[test]
fn tatp() {
    // A mean of 2.41 per attempt, with a standard deviation of 2.4 for one attempt.
    let (per_attempt, per_commit) = requests(Tatp::new(1000), 6000);
    is_near(per_attempt, 2.41, 0.1);
    is_near(per_commit, 3.2, 0.15);
}

#[test]
fn smallbank() {
    // Many customers, so that few payments fail because the customer was amalgamated before.
    is_near(requests(SmallBank::new(100_000), 2000).0, 8.2, 0.3);
}

#[test]
fn ycsb() {
    let size = Size { records: 500, inserts: 1000, fields: 10, field: 100 };
    // A read is 1 request, an update or insert 6.
    for (mix, expected) in
        [(Mix::A, 3.5), (Mix::B, 1.25), (Mix::C, 1.0), (Mix::D, 1.25), (Mix::F, 3.5)]
    {
        is_near(requests(Ycsb::new(mix, size), 1000).0, expected, 0.25);
    }
}
