//! The checker of lists: valid histories, each mistake, and a search through all orders.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::involved;
use super::list_generator::Lists;
use crate::check::lists::{Operation, Transaction, check};
use crate::check::{Class, Outcome, Verdict, Violation};
use erpc_test_tools::random::Random;

/// Runs `inject` between random transactions, and expects a violation of this class that involves
/// exactly the transactions that it returns.
fn expect(class: Class, inject: impl Fn(&mut Lists) -> Vec<u64>) {
    for seed in 0..50 {
        let mut lists = Lists::new(seed, 5, 60);
        lists.random(30);
        assert!(matches!(check(&lists.history), Verdict::Valid(_)), "seed {seed}");
        let expected = inject(&mut lists);
        lists.random(20);
        let violation = invalid(&lists.history);
        assert_eq!(violation.class, class, "seed {seed}: {violation}");
        assert_eq!(involved(&violation), expected, "seed {seed}: {violation}");
    }
}

fn invalid(history: &[Transaction]) -> Violation {
    match check(history) {
        Verdict::Invalid(violation) => violation,
        other => panic!("a mistake was made, but {other:?}"),
    }
}

fn changed(read: Operation, change: impl Fn(&mut Vec<u64>)) -> Operation {
    let Operation::Read { key, mut list } = read else { panic!("it is a read") };
    change(&mut list);
    Operation::Read { key, list }
}

#[test]
fn lost_update() {
    expect(Class::LostUpdate, |lists| {
        let key = lists.any_key();
        let read = lists.read(key);
        let operations = vec![read.clone(), lists.append(key)];
        let first = lists.record(Outcome::Committed, operations);
        let operations = vec![read, lists.append(key)];
        vec![first, lists.record_beside(operations)]
    });
}

/// The elements of both are never read.
#[test]
fn lost_update_without_later_reads() {
    let mut lists = Lists::new(1, 1, 0);
    let read = lists.read(0);
    let operations = vec![read.clone(), lists.append(0)];
    let first = lists.record(Outcome::Committed, operations);
    let operations = vec![read, lists.append(0)];
    let second = lists.record_beside(operations);
    let violation = invalid(&lists.history);
    assert_eq!((violation.class, involved(&violation)), (Class::LostUpdate, vec![first, second]));
}

#[test]
fn write_skew() {
    expect(Class::G2, |lists| {
        let (a, b) = lists.two_keys();
        let (read_a, read_b) = (lists.read(a), lists.read(b));
        let operations = vec![read_a, lists.append(b)];
        let first = lists.record(Outcome::Committed, operations);
        let operations = vec![read_b, lists.append(a)];
        vec![first, lists.record_beside(operations)]
    });
}

#[test]
fn read_skew() {
    expect(Class::GSingle, |lists| {
        let (a, b) = lists.two_keys();
        let old = lists.read(a);
        let operations = vec![lists.append(a), lists.append(b)];
        let writer = lists.record(Outcome::Committed, operations);
        let operations = vec![old, lists.read(b)];
        vec![writer, lists.record_beside(operations)]
    });
}

#[test]
fn aborted_read() {
    expect(Class::G1a, |lists| {
        let key = lists.any_key();
        let append = lists.append(key);
        let writer = lists.record(Outcome::Aborted, vec![append]);
        let read = lists.read(key);
        vec![writer, lists.record(Outcome::Committed, vec![read])]
    });
}

#[test]
fn intermediate_read() {
    expect(Class::G1b, |lists| {
        let key = lists.any_key();
        let first = lists.append(key);
        let read = lists.read(key);
        let operations = vec![first, lists.append(key)];
        let writer = lists.record(Outcome::Committed, operations);
        vec![writer, lists.record_beside(vec![read])]
    });
}

#[test]
fn non_repeatable_read() {
    expect(Class::NonRepeatableRead, |lists| {
        let key = lists.any_key();
        let first = lists.read(key);
        let append = lists.append(key);
        let writer = lists.record(Outcome::Committed, vec![append]);
        let second = lists.read(key);
        vec![writer, lists.record_beside(vec![first, second])]
    });
}

#[test]
fn cycle_of_writes() {
    expect(Class::G0, |lists| {
        let (a, b) = lists.two_keys();
        let (first_a, second_b) = (lists.append(a), lists.append(b));
        let (second_a, first_b) = (lists.append(a), lists.append(b));
        let first = lists.record(Outcome::Committed, vec![first_a, first_b]);
        let second = lists.record_beside(vec![second_a, second_b]);
        let reads = vec![lists.read(a), lists.read(b)];
        lists.now += 1_000;
        lists.record(Outcome::Committed, reads);
        vec![first, second]
    });
}

#[test]
fn cycle_of_reads_of_writes() {
    expect(Class::G1c, |lists| {
        let (a, b) = lists.two_keys();
        let (write_a, write_b) = (lists.append(a), lists.append(b));
        let (read_a, read_b) = (lists.read(a), lists.read(b));
        let first = lists.record(Outcome::Committed, vec![write_a, read_b]);
        vec![first, lists.record_beside(vec![write_b, read_a])]
    });
}

#[test]
fn stale_read() {
    expect(Class::StaleRead, |lists| {
        let key = lists.any_key();
        let read = lists.read(key);
        let append = lists.append(key);
        let writer = lists.record(Outcome::Committed, vec![append]);
        lists.now += 1_000;
        vec![writer, lists.record(Outcome::Committed, vec![read])]
    });
}

#[test]
fn read_of_the_future() {
    expect(Class::RealTime, |lists| {
        let key = lists.any_key();
        let append = lists.append(key);
        let read = lists.read(key);
        let reader = lists.record(Outcome::Committed, vec![read]);
        lists.now += 1_000;
        vec![reader, lists.record(Outcome::Committed, vec![append])]
    });
}

#[test]
fn incompatible_order() {
    let mut lists = Lists::new(1, 1, 60);
    for _ in 0..4 {
        let append = lists.append(0);
        lists.record(Outcome::Committed, vec![append]);
    }
    let read = lists.read(0);
    let swapped = changed(read.clone(), |list| list[1..].swap(0, 1));
    let shorter = changed(read.clone(), |list| list.truncate(2));
    let second = lists.record(Outcome::Committed, vec![swapped]);
    let first = lists.record_beside(vec![shorter]);
    let violation = invalid(&lists.history);
    assert_eq!(violation.class, Class::IncompatibleOrder);
    assert_eq!(involved(&violation), [second, first]);
    assert!(violation.because[0].contains("element 2 of key 0"), "{violation}");
}

/// Somebody saw the second append of a transaction without the first.
#[test]
fn order_within_a_transaction() {
    let mut lists = Lists::new(1, 1, 60);
    let operations = vec![lists.append(0), lists.append(0)];
    let writer = lists.record(Outcome::Committed, operations);
    let read = changed(lists.read(0), |list| list.rotate_left(1));
    let read = changed(read, |list| list.truncate(1));
    lists.record(Outcome::Committed, vec![read]);
    let violation = invalid(&lists.history);
    assert_eq!((violation.class, violation.transactions), (Class::IncompatibleOrder, vec![writer]));
}

#[test]
fn wrong_elements() {
    expect(Class::WrongValue, |lists| {
        let read = changed(lists.read(0), |list| list.push(777_777));
        vec![lists.record(Outcome::Committed, vec![read])]
    });
    expect(Class::DuplicateElement, |lists| {
        let append = lists.append(0);
        lists.record(Outcome::Committed, vec![append]);
        let read = changed(lists.read(0), |list| list.extend_from_within(..1));
        vec![lists.record(Outcome::Committed, vec![read])]
    });
}

#[test]
fn own_appends() {
    expect(Class::Internal, |lists| {
        let read = lists.read(0);
        let operations = vec![lists.append(0), read];
        vec![lists.record(Outcome::Committed, operations)]
    });
    expect(Class::Internal, |lists| {
        let append = lists.append(0);
        let read = lists.read(0);
        vec![lists.record(Outcome::Committed, vec![read, append])]
    });
}

/// A transaction with unknown outcome was seen by another, which was seen by a third.
#[test]
fn unknown_outcomes() {
    let mut lists = Lists::new(1, 3, 0);
    let none = lists.read(2);
    let operations = vec![lists.append(0), lists.append(2)];
    let first = lists.record(Outcome::Unknown, operations);
    let operations = vec![lists.read(0), lists.append(1)];
    let second = lists.record(Outcome::Unknown, operations);
    let operations = vec![lists.read(1), none];
    let third = lists.record(Outcome::Committed, operations);
    let violation = invalid(&lists.history);
    assert_eq!(
        (violation.class, involved(&violation)),
        (Class::GSingle, vec![first, second, third])
    );
    lists.history.pop();
    assert!(matches!(check(&lists.history), Verdict::Unknown(_)));
}

#[test]
fn nothing_is_known_without_reads_or_with_a_malformed_history() {
    let unknown = |lists: &Lists| matches!(check(&lists.history), Verdict::Unknown(_));
    let mut lists = Lists::new(1, 2, 10);
    assert!(unknown(&lists));
    let append = lists.append(0);
    lists.record(Outcome::Committed, vec![append.clone()]);
    let read = lists.read(0);
    lists.record(Outcome::Aborted, vec![read.clone()]);
    assert!(unknown(&lists));
    lists.record(Outcome::Committed, vec![read]);
    assert!(matches!(check(&lists.history), Verdict::Valid(_)));

    let mut twice = lists.clone();
    twice.record(Outcome::Aborted, vec![append]);
    assert!(unknown(&twice));
    let mut backwards = lists.clone();
    backwards.history[0].ended = 0;
    assert!(unknown(&backwards));
    lists.history[0].id = 2;
    assert!(unknown(&lists));
}

type Store = BTreeMap<u64, Vec<u64>>;

/// Whether some order of the committed transactions, with any of those with unknown outcome, explains
/// the history.
fn has_order(transactions: &[&Transaction], ran: &mut Vec<bool>, store: &Store) -> bool {
    let rest: Vec<usize> = (0..ran.len()).filter(|&at| !ran[at]).collect();
    let committed = |&&at: &&usize| transactions[at].outcome == Outcome::Committed;
    if rest.iter().find(committed).is_none() {
        return true;
    }
    let may_run = |next: &&usize| {
        let began = transactions[**next].began;
        rest.iter().filter(committed).all(|&at| transactions[at].ended >= began)
    };
    rest.iter().filter(may_run).any(|&at| {
        let Some(store) = run(transactions[at], store) else { return false };
        ran[at] = true;
        let found = has_order(transactions, ran, &store);
        ran[at] = false;
        found
    })
}

fn run(transaction: &Transaction, store: &Store) -> Option<Store> {
    let mut store = store.clone();
    for operation in &transaction.operations {
        match operation {
            Operation::Append { key, element } => store.entry(*key).or_default().push(*element),
            Operation::Read { key, list } if store.entry(*key).or_default() == list => {}
            Operation::Read { .. } => return None,
        }
    }
    Some(store)
}

/// Makes one thing wrong, perhaps.
fn spoil(history: &mut [Transaction], random: &mut Random) {
    let count = history.len() as u64;
    let at = random.below(count) as usize;
    let other = random.below(count) as usize;
    let other = history[other].clone();
    let transaction = &mut history[at];
    let operations = transaction.operations.len() as u64;
    let which = random.below(operations) as usize;
    match (random.below(8), &mut transaction.operations[which]) {
        (0..=2, Operation::Read { list, .. }) => drop(list.pop()),
        (3, Operation::Read { list, .. }) if list.len() > 1 => {
            let last = list.len() - 1;
            list.swap(last, random.below(last as u64) as usize);
        }
        (4, Operation::Read { key, list }) => {
            let next = other.operations.iter().find_map(|operation| match operation {
                Operation::Append { key: of, element } if of == key => Some(*element),
                _ => None,
            });
            list.extend(next);
        }
        (5, _) => {
            transaction.outcome =
                [Outcome::Committed, Outcome::Aborted, Outcome::Unknown][random.below(3) as usize];
        }
        (6, _) => (transaction.began, transaction.ended) = (other.began, other.ended),
        (7, _) => {
            // Long before or after all others.
            let began = 400 + random.below(2) * 5_000;
            (transaction.began, transaction.ended) = (began, began + 10);
        }
        _ => {}
    }
}

proptest! {
    #[test]
    fn serial_histories_are_valid(seed: u64, keys in 1u64..6, overlap in 0u64..100, count in 0usize..60) {
        let mut lists = Lists::new(seed, keys, overlap);
        lists.random(count);
        if let Verdict::Invalid(violation) = check(&lists.history) {
            return Err(TestCaseError::fail(violation.to_string()));
        }
        let read = (0..keys).map(|key| lists.read(key)).collect();
        lists.record(Outcome::Committed, read);
        prop_assert!(matches!(check(&lists.history), Verdict::Valid(_)));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3_000))]
    #[test]
    fn the_checker_agrees_with_a_search_through_all_orders(
        seed: u64,
        count in 1usize..7,
        keys in 1u64..4,
        mistakes in 0u8..5,
        overlap in 0u64..60,
    ) {
        let mut lists = Lists::new(seed, keys, overlap);
        lists.random(count);
        let (mut history, mut random) = (lists.history, lists.random);
        for _ in 0..mistakes {
            spoil(&mut history, &mut random);
        }
        let transactions: Vec<_> =
            history.iter().filter(|t| t.outcome != Outcome::Aborted).collect();
        let mut ran = vec![false; transactions.len()];
        let expected = has_order(&transactions, &mut ran, &Store::new());
        match check(&history) {
            Verdict::Valid(_) => prop_assert!(expected, "there is no order: {history:#?}"),
            Verdict::Invalid(violation) => {
                prop_assert!(!expected, "there is an order: {violation}\n{history:#?}");
                prop_assert!(!violation.transactions.is_empty() && !violation.because.is_empty());
            }
            Verdict::Unknown(_) => {
                let reads = |t: &&&Transaction| {
                    t.operations.iter().any(|o| matches!(o, Operation::Read { .. }))
                };
                let committed = |t: &&&Transaction| t.outcome == Outcome::Committed;
                prop_assert!(!transactions.iter().filter(committed).any(|t| reads(&t)));
            }
        }
    }
}
