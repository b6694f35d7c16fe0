//! Transactions whose outcome is unknown.

use crate::check::{Class, History, Item, Observed, Outcome, Transaction, Verdict, Written, check};

const ITEM: Item = Item { table: 1, partition: 0, bucket: 0 };
const OTHER: Item = Item { table: 1, partition: 0, bucket: 1 };

fn write(item: Item, base: u64, value: u64) -> Written {
    Written { item, base, entries: vec![(item.bucket.into(), Some(value))] }
}

fn read(item: Item, version: u64, value: u64) -> Observed {
    Observed { item, key: item.bucket.into(), version, value: Some(value) }
}

fn transaction(
    id: u64,
    outcome: Outcome,
    reads: impl Into<Vec<Observed>>,
    writes: impl Into<Vec<Written>>,
) -> Transaction {
    let (reads, writes) = (reads.into(), writes.into());
    Transaction { id, began: 10 * id, ended: 10 * id + 1, outcome, reads, writes }
}

#[test]
fn it_counts_if_it_was_seen() {
    let unknown = transaction(1, Outcome::Unknown, [], [write(ITEM, 0, 5), write(OTHER, 0, 6)]);
    let reader = |reads: Vec<Observed>| transaction(2, Outcome::Committed, reads, []);
    let absent = |item: Item| Observed { version: 0, value: None, ..read(item, 0, 0) };

    let seen = check(&[unknown.clone(), reader(vec![read(ITEM, 1, 5)])]).unwrap();
    assert_eq!((seen.unknown_seen, seen.unknown_unseen), (1, 0));
    let unseen = check(&[unknown.clone(), reader(vec![absent(ITEM), absent(OTHER)])]).unwrap();
    assert_eq!((unseen.unknown_seen, unseen.unknown_unseen), (0, 1));
    let overwriting = transaction(2, Outcome::Committed, [], [write(OTHER, 1, 7)]);
    assert_eq!(check(&[unknown.clone(), overwriting]).unwrap().unknown_seen, 1);
    // Both writes or none.
    let half = check(&[unknown, reader(vec![read(ITEM, 1, 5), absent(OTHER)])]);
    assert_eq!(half.unwrap_err().class, Class::GSingle);
}

#[test]
fn its_own_reads_count_if_it_was_seen() {
    let first = transaction(1, Outcome::Unknown, [], [write(ITEM, 0, 5)]);
    let second = transaction(2, Outcome::Unknown, [read(ITEM, 1, 5)], [write(OTHER, 0, 6)]);
    let third = transaction(3, Outcome::Committed, [read(OTHER, 1, 6)], []);
    let summary = check(&[first.clone(), second.clone(), third.clone()]).unwrap();
    assert_eq!(summary.unknown_seen, 2);
    assert_eq!(check(&[second, third]).unwrap_err().class, Class::Gap);
}

#[test]
fn it_never_ends() {
    // The read does not see what the transaction may do later.
    let unknown = transaction(1, Outcome::Unknown, [], [write(ITEM, 0, 5)]);
    let absent = Observed { version: 0, value: None, ..read(ITEM, 0, 0) };
    let before = transaction(2, Outcome::Committed, [absent], []);
    let after = transaction(3, Outcome::Committed, [read(ITEM, 1, 5)], []);
    assert!(check(&[unknown.clone(), before, after.clone()]).is_ok());
    // But when it has been seen, it is over.
    let late = transaction(4, Outcome::Committed, [absent], []);
    assert_eq!(check(&[unknown, after, late]).unwrap_err().class, Class::StaleRead);
}

/// Two may have made a version, and nothing tells at once which.
#[test]
fn all_possible_writers_are_tried() {
    let first = transaction(1, Outcome::Unknown, [], [write(ITEM, 0, 5), write(OTHER, 0, 5)]);
    let second = transaction(2, Outcome::Unknown, [], [write(ITEM, 0, 5)]);
    let seen = transaction(3, Outcome::Committed, [read(ITEM, 1, 5)], []);
    let none = Observed { version: 0, value: None, ..read(OTHER, 0, 0) };
    // Only the second can be it, because the first would have made version 1 of the other item by
    // the end of the third.
    let late = transaction(4, Outcome::Committed, [none], []);
    let all = [first, second, seen, late];
    assert!(check(&all).is_ok());
    assert_eq!(
        check(&[all[0].clone(), all[2].clone(), all[3].clone()]).unwrap_err().class,
        Class::StaleRead
    );
}

/// Values tell who wrote a version, so that there is nothing to try.
#[test]
fn values_tell_the_writer() {
    let mut all = Vec::new();
    for bucket in 0..10 {
        let item = Item { bucket, ..ITEM };
        let id = 3 * u64::from(bucket);
        all.push(transaction(id, Outcome::Unknown, [], [write(item, 0, 5)]));
        all.push(transaction(id + 1, Outcome::Unknown, [], [write(item, 0, 6)]));
        all.push(transaction(id + 2, Outcome::Committed, [read(item, 1, 6)], []));
    }
    assert!(check(&all).is_ok());
    let nowhere = read(Item { bucket: 99, ..ITEM }, 1, 5);
    all.push(transaction(99, Outcome::Committed, [nowhere], []));
    assert_eq!(check(&all).unwrap_err().class, Class::Gap);
}

#[test]
fn too_many_possibilities_are_not_decided() {
    let mut history = History::new();
    let mut id = 0;
    let mut add = |history: &mut History, outcome, reads: Vec<Observed>, writes: Vec<Written>| {
        id += 1;
        history.push(transaction(id, outcome, reads, writes));
    };
    for bucket in 0..10 {
        let item = Item { bucket, ..ITEM };
        for _ in 0..2 {
            add(&mut history, Outcome::Unknown, vec![], vec![write(item, 0, 5)]);
        }
        add(&mut history, Outcome::Committed, vec![read(item, 1, 5)], vec![]);
    }
    assert!(history.check().is_ok());
    add(&mut history, Outcome::Committed, vec![read(Item { bucket: 99, ..ITEM }, 1, 5)], vec![]);
    let result = history.check();
    assert_eq!(result.as_ref().unwrap_err().class, Class::Undecided);
    assert!(matches!(Verdict::from(result), Verdict::Unknown(_)));
}
