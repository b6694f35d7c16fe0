use proptest::prelude::*;

use super::generator::{Run, Shape};
use crate::check::{Summary, check, fingerprint};

fn shape() -> impl Strategy<Value = Shape> {
    let values = prop_oneof![Just(2), Just(u64::MAX)];
    (1u32..8, 1u64..4, 1u64..5, values, 0u64..100, 0u64..30, 0u64..30).prop_map(
        |(items, keys, accesses, values, overlap, aborted, unknown)| Shape {
            items,
            keys,
            accesses,
            values,
            overlap,
            aborted,
            unknown,
        },
    )
}

proptest! {
    #[test]
    fn serial_histories_are_valid(seed: u64, shape in shape(), count in 0usize..60) {
        let mut run = Run::new(seed, shape);
        run.random(count);
        let mut summary = run.history.check().map_err(|error| TestCaseError::fail(error.to_string()))?;
        let outcomes = [summary.committed, summary.aborted, summary.unknown_seen, summary.unknown_unseen];
        prop_assert_eq!(outcomes.iter().sum::<usize>(), count);
        // The order of the transactions in the history has no meaning.
        run.history.transactions.reverse();
        let reversed = run.history.check();
        if shape.unknown == 0 {
            prop_assert_eq!(&reversed, &Ok(summary));
        }
        summary = reversed.map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(summary.committed, outcomes[0]);
    }
}

#[test]
fn a_history_without_transactions_is_valid() {
    assert_eq!(check(&[]), Ok(Summary::default()));
}

#[test]
fn fingerprints_differ() {
    let values: [&[u8]; 8] =
        [b"", b"\0", b"\0\0", b"a", b"b", b"12345678", b"12345678\0", b"123456781234567"];
    let mut all: Vec<_> = values.iter().map(|value| fingerprint(value)).collect();
    all.sort_unstable();
    all.dedup();
    assert_eq!(all.len(), values.len());
    // Histories of different processes are checked together, so this value must not change.
    assert_eq!(fingerprint(b"erpc"), 2_123_562_097_460_696_834);
}
