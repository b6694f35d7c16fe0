//! Each mistake in the middle of a history that is otherwise valid.

use super::generator::{Run, Shape};
use super::involved;
use crate::check::{Class, Outcome};

/// Runs `inject` between random transactions, and expects a violation of this class that involves
/// exactly the transactions that it returns.
fn expect(class: Class, inject: impl Fn(&mut Run) -> Vec<u64>) {
    expect_in(Shape::USUAL, class, inject);
}

/// Without other transactions that may have written what was read.
const COMMITS_ONLY: Shape = Shape { aborted: 0, unknown: 0, ..Shape::USUAL };

fn expect_in(shape: Shape, class: Class, inject: impl Fn(&mut Run) -> Vec<u64>) {
    for seed in 0..50 {
        let mut run = Run::new(seed, shape);
        run.random(20 + seed as usize);
        assert!(run.history.check().is_ok(), "seed {seed}");
        let expected = inject(&mut run);
        run.random(30);
        let violation = run.history.check().expect_err("a mistake was made");
        assert_eq!(violation.class, class, "seed {seed}: {violation}");
        assert_eq!(involved(&violation), expected, "seed {seed}: {violation}");
        let lines = violation.because.join("\n");
        for id in expected {
            let words: Vec<_> = lines.split([' ', ':', ',']).collect();
            assert!(words.contains(&id.to_string().as_str()), "{id} is missing in: {violation}");
        }
    }
}

#[test]
fn lost_update() {
    expect(Class::LostUpdate, |run| {
        let item = run.any_item();
        let read = run.read(item, run.key(item));
        let write = run.put(item);
        let first = run.record(Outcome::Committed, vec![read], vec![write]);
        let write = run.put(item);
        let second = run.record_beside(vec![read], vec![write]);
        vec![first, second]
    });
}

#[test]
fn write_skew() {
    expect(Class::G2, |run| {
        let (a, b) = run.two_items();
        let reads = vec![run.read(a, run.key(a)), run.read(b, run.key(b))];
        let (write_a, write_b) = (run.put(a), run.put(b));
        let first = run.record(Outcome::Committed, reads.clone(), vec![write_a]);
        let second = run.record_beside(reads, vec![write_b]);
        vec![first, second]
    });
}

/// Each looks for a key that the other inserts. The items stand for the buckets of the keys.
#[test]
fn phantoms() {
    expect(Class::G2, |run| {
        let (a, b) = run.two_items();
        let (key_a, key_b) = (run.key(a) + 50, run.key(b) + 50);
        let (read_a, read_b) = (run.read(a, key_a), run.read(b, key_b));
        assert_eq!((read_a.value, read_b.value), (None, None));
        let write_a = run.write(a, &[(key_a, Some(1))]);
        let write_b = run.write(b, &[(key_b, Some(2))]);
        let first = run.record(Outcome::Committed, vec![read_a], vec![write_b]);
        let second = run.record_beside(vec![read_b], vec![write_a]);
        vec![first, second]
    });
}

/// Three transactions, each of which misses the writes of the next.
#[test]
fn three_overwritten_reads() {
    expect(Class::G2, |run| {
        let items = [0, 1, 2].map(|at| run.item(at));
        let reads = items.map(|item| run.read(item, run.key(item)));
        let mut writes = items.map(|item| run.put(item));
        writes.rotate_left(1);
        let mut ids = Vec::new();
        for (read, write) in reads.into_iter().zip(writes) {
            ids.push(run.record_beside(vec![read], vec![write]));
        }
        for transaction in run.history.transactions.iter_mut().rev().take(3) {
            transaction.began = run.now - 40;
            transaction.ended = run.now + 40;
        }
        ids
    });
}

#[test]
fn read_skew() {
    expect(Class::GSingle, |run| {
        let (a, b) = run.two_items();
        let old = run.read(a, run.key(a));
        let writes = vec![run.put(a), run.put(b)];
        let writer = run.record(Outcome::Committed, vec![], writes);
        let reads = vec![old, run.read(b, run.key(b))];
        vec![writer, run.record_beside(reads, vec![])]
    });
}

#[test]
fn dirty_read() {
    expect(Class::DirtyRead, |run| {
        let item = run.any_item();
        let mut read = run.read(item, run.key(item));
        let write = run.put(item);
        read.value = write.entries[0].1;
        let reader = run.record(Outcome::Committed, vec![read], vec![]);
        vec![reader, run.record_beside(vec![], vec![write])]
    });
}

#[test]
fn aborted_read() {
    expect(Class::G1a, |run| {
        // At the version that the aborted transaction did not make.
        let item = run.any_item();
        let value = run.value();
        let write = run.intend(item, &[(run.key(item), Some(value))]);
        let mut read = run.read(item, run.key(item));
        read.value = Some(value);
        let writer = run.record(Outcome::Aborted, vec![], vec![write]);
        vec![writer, run.record(Outcome::Committed, vec![read], vec![])]
    });
    // At a version that only the aborted transaction would have made.
    expect_in(COMMITS_ONLY, Class::G1a, |run| {
        let item = run.any_item();
        let write = run.put(item);
        let read = run.read(item, run.key(item));
        let writer = run.record(Outcome::Aborted, vec![], vec![write]);
        vec![writer, run.record(Outcome::Committed, vec![read], vec![])]
    });
    // The reader is a writer that locked the version.
    expect_in(COMMITS_ONLY, Class::G1a, |run| {
        let item = run.any_item();
        let (aborted, write) = (run.put(item), run.put(item));
        let writer = run.record(Outcome::Aborted, vec![], vec![aborted]);
        vec![writer, run.record(Outcome::Committed, vec![], vec![write])]
    });
}

#[test]
fn intermediate_read() {
    expect(Class::G1b, |run| {
        let item = run.any_item();
        let key = run.key(item);
        let values = [run.value(), run.value()];
        let write = run.write(item, &[(key, Some(values[0])), (key, Some(values[1]))]);
        let writer = run.record(Outcome::Committed, vec![], vec![write]);
        let mut read = run.read(item, key);
        read.value = Some(values[0]);
        vec![writer, run.record(Outcome::Committed, vec![read], vec![])]
    });
}

#[test]
fn non_repeatable_read() {
    expect(Class::NonRepeatableRead, |run| {
        let item = run.any_item();
        let first = run.read(item, run.key(item));
        let write = run.put(item);
        let writer = run.record(Outcome::Committed, vec![], vec![write]);
        let second = run.read(item, run.key(item));
        vec![writer, run.record_beside(vec![first, second], vec![])]
    });
}

/// The transaction locked an older version than the one that it read.
#[test]
fn read_of_the_own_write() {
    expect(Class::NonRepeatableRead, |run| {
        let item = run.any_item();
        let write = run.put(item);
        let read = run.read(item, run.key(item));
        vec![run.record(Outcome::Committed, vec![read], vec![write])]
    });
}

#[test]
fn cycle_of_writes() {
    expect(Class::G0, |run| {
        let (a, b) = run.two_items();
        let (first_a, first_b) = (run.put(a), run.put(b));
        let (second_a, second_b) = (run.put(a), run.put(b));
        let first = run.record(Outcome::Committed, vec![], vec![first_a, second_b]);
        vec![first, run.record_beside(vec![], vec![second_a, first_b])]
    });
}

#[test]
fn cycle_of_reads_of_writes() {
    expect(Class::G1c, |run| {
        let (a, b) = run.two_items();
        let (write_a, write_b) = (run.put(a), run.put(b));
        let (read_a, read_b) = (run.read(a, run.key(a)), run.read(b, run.key(b)));
        let first = run.record(Outcome::Committed, vec![read_b], vec![write_a]);
        vec![first, run.record_beside(vec![read_a], vec![write_b])]
    });
}

#[test]
fn stale_read() {
    expect(Class::StaleRead, |run| {
        let item = run.any_item();
        let read = run.read(item, run.key(item));
        let write = run.put(item);
        let writer = run.record(Outcome::Committed, vec![], vec![write]);
        vec![writer, run.record_later(vec![read], vec![])]
    });
}

#[test]
fn read_of_the_future() {
    expect(Class::RealTime, |run| {
        let item = run.any_item();
        let write = run.put(item);
        let read = run.read(item, run.key(item));
        let reader = run.record(Outcome::Committed, vec![read], vec![]);
        vec![reader, run.record_later(vec![], vec![write])]
    });
}

#[test]
fn duplicate_version() {
    expect(Class::DuplicateVersion, |run| {
        let item = run.any_item();
        let write = run.put(item);
        let first = run.record(Outcome::Committed, vec![], vec![write.clone()]);
        vec![first, run.record_beside(vec![], vec![write])]
    });
}

#[test]
fn write_before_the_beginning() {
    let mut run = Run::new(3, Shape::USUAL);
    let item = run.item(1);
    let write = run.put(item);
    run.history.set_initial(item, write.base + 1, []);
    let writer = run.record(Outcome::Committed, vec![], vec![write]);
    let violation = run.history.check().unwrap_err();
    assert_eq!((violation.class, violation.transactions), (Class::DuplicateVersion, vec![writer]));
}

#[test]
fn gap() {
    expect_in(COMMITS_ONLY, Class::Gap, |run| {
        // A commit that was not recorded.
        let item = run.any_item();
        run.put(item);
        let read = run.read(item, run.key(item));
        vec![run.record(Outcome::Committed, vec![read], vec![])]
    });
    expect_in(COMMITS_ONLY, Class::Gap, |run| {
        let item = run.any_item();
        run.put(item);
        let write = run.put(item);
        vec![run.record(Outcome::Committed, vec![], vec![write])]
    });
}

#[test]
fn read_before_the_beginning() {
    let mut run = Run::new(3, Shape::USUAL);
    let item = run.item(1);
    let mut read = run.read(item, run.key(item));
    run.history.set_initial(item, 5, read.value.map(|value| (read.key, value)));
    read.version = 4;
    let reader = run.record(Outcome::Committed, vec![read], vec![]);
    let violation = run.history.check().unwrap_err();
    assert_eq!((violation.class, violation.transactions), (Class::Gap, vec![reader]));
}

#[test]
fn wrong_value() {
    expect(Class::WrongValue, |run| {
        let item = run.any_item();
        let write = run.put(item);
        let writer = run.record(Outcome::Committed, vec![], vec![write]);
        let mut read = run.read(item, run.key(item));
        read.value = Some(run.value());
        vec![writer, run.record(Outcome::Committed, vec![read], vec![])]
    });
    // The writer of the version did not touch the key; an earlier one did.
    expect_in(COMMITS_ONLY, Class::WrongValue, |run| {
        let item = run.any_item();
        let write = run.put(item);
        let writer = run.record(Outcome::Committed, vec![], vec![write]);
        let other = run.write(item, &[(run.key(item) + 70, Some(7))]);
        run.record(Outcome::Committed, vec![], vec![other]);
        let mut read = run.read(item, run.key(item));
        read.value = None;
        // The next version does not delete the key: that would be a dirty read.
        let next = run.put(item);
        let reader = run.record(Outcome::Committed, vec![read], vec![]);
        run.record_beside(vec![], vec![next]);
        vec![writer, reader]
    });
}

#[test]
fn misplaced_key() {
    expect(Class::Misplaced, |run| {
        let item = run.any_item();
        let mut other = item;
        other.partition += 1;
        let write = run.write(item, &[(9_999, Some(1))]);
        let writer = run.record(Outcome::Committed, vec![], vec![write]);
        let read = run.read(other, 9_999);
        vec![writer, run.record(Outcome::Committed, vec![read], vec![])]
    });
}

#[test]
fn malformed() {
    expect(Class::Malformed, |run| {
        let id = run.record(Outcome::Committed, vec![], vec![]);
        run.history.transactions.last_mut().unwrap().ended = 0;
        vec![id]
    });
    expect(Class::Malformed, |run| {
        let id = run.record(Outcome::Committed, vec![], vec![]);
        let copy = run.history.transactions.last().unwrap().clone();
        run.history.push(copy);
        vec![id]
    });
    expect(Class::Malformed, |run| {
        let item = run.any_item();
        let writes = vec![run.put(item), run.put(item)];
        vec![run.record(Outcome::Committed, vec![], writes)]
    });
    expect(Class::Malformed, |run| {
        let mut write = run.intend(run.item(0), &[]);
        write.base = u64::MAX;
        vec![run.record(Outcome::Aborted, vec![], vec![write])]
    });
}
