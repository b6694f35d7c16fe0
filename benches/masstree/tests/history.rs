//! Histories of concurrent operations on single keys are linearizable, as a checker of histories
//! finds. What the checker cannot decide counts as a failure.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use erpc_masstree::{Masstree, pin};
use porcupine_rs::{CheckResult, Model, Operation, check_operations_timeout};

const THREADS: u64 = 4;
/// Rounds of new keys in one tree.
const ROUNDS: u64 = 300;
/// Operations of a thread in a round.
const OPERATIONS: u64 = 30;
/// Keys of a round. They share nodes and layers.
const KEYS: u64 = 5;
/// Longest time to check the history of one key.
const LIMIT: Duration = Duration::from_secs(60);

/// A key with its value, if it has one.
#[derive(Clone, Debug)]
struct Key;

/// An operation with its result.
#[derive(Clone, Debug)]
enum Op {
    Get { found: Option<u64> },
    Put { value: u64, replaced: Option<u64> },
    Remove { removed: Option<u64> },
}

impl Model for Key {
    type State = Option<u64>;
    type Op = Op;
    type Metadata = ();

    fn init() -> Option<u64> {
        None
    }

    fn step(state: &Option<u64>, op: &Op) -> (bool, Option<u64>) {
        match *op {
            Op::Get { found } => (found == *state, *state),
            Op::Put { value, replaced } => (replaced == *state, Some(value)),
            Op::Remove { removed } => (removed == *state, None),
        }
    }
}

fn check(history: &[Operation<Key>]) -> CheckResult {
    check_operations_timeout(history, LIMIT)
}

/// The key of a round: neighbors in a node, in a layer, and in the layer below.
fn key(round: u64, number: u64) -> Vec<u8> {
    match number {
        0 | 1 => format!("{round:06}{number}").into_bytes(),
        2 => format!("{round:06}-and on").into_bytes(),
        _ => format!("{round:06}-and a longer {number}").into_bytes(),
    }
}

/// Operations of one thread, by key.
fn operate(
    tree: &Masstree<u64>,
    clock: &AtomicI64,
    round: u64,
    thread: u64,
) -> Vec<(u64, Operation<Key>)> {
    let mut random = (round * THREADS + thread + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut below = |bound: u64| {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        (random >> 20) % bound
    };
    (0..OPERATIONS)
        .map(|count| {
            let (number, what) = (below(KEYS), below(4));
            let (key, value) = (key(round, number), thread << 32 | count);
            let guard = pin();
            let call_time = clock.fetch_add(1, Ordering::SeqCst);
            let op = match what {
                0 => Op::Get { found: tree.get(&key, &guard) },
                1 => Op::Remove { removed: tree.remove(&key, &guard) },
                _ => {
                    let replaced = tree.put(&key, value, &guard).expect("a short key");
                    Op::Put { value, replaced }
                }
            };
            let return_time = clock.fetch_add(1, Ordering::SeqCst);
            let client_id = Some(thread as u32);
            (number, Operation { client_id, call_time, return_time, op, metadata: None })
        })
        .collect()
}

/// Operations of all threads in these rounds, by key.
fn histories(
    tree: &Masstree<u64>,
    clock: &AtomicI64,
    rounds: Range<u64>,
) -> BTreeMap<(u64, u64), Vec<Operation<Key>>> {
    let barrier = Barrier::new(THREADS as usize);
    let mut histories: BTreeMap<_, Vec<_>> = BTreeMap::new();
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS)
            .map(|thread| {
                let (barrier, rounds) = (&barrier, rounds.clone());
                scope.spawn(move || {
                    let round = |round| {
                        barrier.wait();
                        let done = operate(tree, clock, round, thread);
                        done.into_iter().map(move |(number, op)| ((round, number), op))
                    };
                    rounds.flat_map(round).collect::<Vec<_>>()
                })
            })
            .collect();
        for thread in threads {
            for (key, operation) in thread.join().expect("no panic") {
                histories.entry(key).or_default().push(operation);
            }
        }
    });
    histories
}

/// On a machine with other load, the threads may take turns. Then there are more rounds.
#[test]
fn histories_of_single_keys_are_linearizable() {
    let (tree, clock) = (Masstree::new(), AtomicI64::new(0));
    let (mut all, mut concurrent) = (0, 0);
    let overlaps = |history: &[Operation<Key>]| {
        history.iter().any(|a| {
            history.iter().any(|b| a.call_time < b.call_time && b.call_time < a.return_time)
        })
    };
    for attempt in 0..100 {
        let histories = histories(&tree, &clock, attempt * ROUNDS..(attempt + 1) * ROUNDS);
        for (key, history) in &histories {
            assert_eq!(check(history), CheckResult::Ok, "{key:?}: {history:?}");
            concurrent += usize::from(overlaps(history));
        }
        all += histories.len();
        if concurrent > 0 {
            break;
        }
    }
    println!("{all} histories, {concurrent} with overlapping operations");
    assert!(concurrent > 0, "no operations overlapped");
}

#[test]
fn the_checker_finds_a_lost_removal() {
    let at = |call_time, op| Operation {
        client_id: None,
        call_time,
        return_time: call_time + 1,
        op,
        metadata: None,
    };
    let put = at(0, Op::Put { value: 1, replaced: None });
    let removed = at(2, Op::Remove { removed: Some(1) });
    let late = at(4, Op::Get { found: Some(1) });
    assert_eq!(check(&[put.clone(), removed.clone()]), CheckResult::Ok);
    assert_eq!(check(&[put, removed, late]), CheckResult::Illegal);
}
