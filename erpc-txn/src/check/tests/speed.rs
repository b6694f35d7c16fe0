use std::time::{Duration, Instant};

use super::generator::{Run, Shape};

/// 100,000 transactions with 4 accesses each. The limit is loose: it is for mistakes such as a
/// quadratic number of edges. `cargo test --release -p erpc-txn speed -- --nocapture` shows the time.
#[test]
fn a_large_history_is_checked_in_seconds() {
    let shape = Shape {
        items: 20_000,
        keys: 4,
        accesses: 4,
        values: u64::MAX,
        // Each transaction runs beside about 2,000 others.
        overlap: 10_000,
        aborted: 5,
        unknown: 1,
    };
    let mut run = Run::new(1, shape);
    run.random(if cfg!(miri) { 100 } else { 100_000 });
    let began = Instant::now();
    let summary = run.history.check().expect("a serial history is valid");
    let took = began.elapsed();
    println!("checked in {took:?}: {summary:?}");
    assert!(summary.reads > summary.committed && summary.read_write > 0);
    assert!(took < Duration::from_secs(30), "{took:?}");
}
