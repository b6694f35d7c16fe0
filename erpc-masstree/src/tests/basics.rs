//! Single operations.

use super::check;
use crate::{KeyTooLong, MAX_KEY, Masstree, pin};

#[test]
fn keys_of_all_lengths_with_one_prefix_are_different() {
    let (tree, guard) = (Masstree::<u64>::new(), pin());
    for length in 0..=100 {
        assert_eq!(tree.put(&vec![0; length], length as u64, &guard), Ok(None));
    }
    for length in 0..=100 {
        assert_eq!(tree.get(&vec![0; length], &guard), Some(length as u64));
    }
    assert_eq!(tree.get(&[0; 101], &guard), None);
    let mut scan = tree.scan(.., &guard);
    for length in 0..=100 {
        assert_eq!(scan.next(), Some((vec![0; length].as_slice(), length as u64)));
    }
    assert_eq!(scan.next(), None);
    assert_eq!(check(&tree).layers, 13);
    for length in 0..=100 {
        assert_eq!(tree.remove(&vec![0; length], &guard), Some(length as u64));
        check(&tree);
    }
    assert_eq!((check(&tree).layers, check(&tree).borders), (1, 1));
}

#[test]
fn a_key_that_is_too_long_is_refused() {
    let (tree, guard) = (Masstree::<u64>::new(), pin());
    let longest = vec![7; MAX_KEY];
    assert_eq!(tree.put(&longest, 1, &guard), Ok(None));
    let long = vec![7; MAX_KEY + 1];
    assert_eq!(tree.put(&long, 2, &guard), Err(KeyTooLong { length: MAX_KEY + 1 }));
    assert_eq!((tree.get(&long, &guard), tree.remove(&long, &guard)), (None, None));
    let mut other = longest.clone();
    *other.last_mut().unwrap() = 8;
    assert_eq!(tree.put(&other, 3, &guard), Ok(None));
    assert_eq!(check(&tree).layers, MAX_KEY / 8);
    assert_eq!(tree.get(&longest, &guard), Some(1));
    assert_eq!(tree.get(&other, &guard), Some(3));
    let mut scan = tree.scan_back(..long.as_slice(), &guard);
    assert_eq!(scan.next(), Some((longest.as_slice(), 1)), "the long key is only a bound");
}

#[test]
fn a_boxed_value_lives_as_long_as_the_guard() {
    let (tree, guard) = (Masstree::<Box<String>>::new(), pin());
    tree.put(b"key of a tail", Box::new("one".to_owned()), &guard).unwrap();
    let one = tree.get(b"key of a tail", &guard).unwrap();
    let replaced = tree.put(b"key of a tail", Box::new("two".to_owned()), &guard).unwrap();
    let removed = tree.remove(b"key of a tail", &guard);
    guard.flush();
    assert_eq!((one.as_str(), replaced.unwrap().as_str()), ("one", "one"));
    assert_eq!(removed.unwrap(), "two");
}

#[test]
fn many_keys_are_read_together() {
    let (tree, guard) = (Masstree::<u64>::new(), pin());
    let keys: Vec<String> = (0..1000).map(|n| format!("{}/{n}", "x".repeat(n % 30))).collect();
    for (value, key) in keys.iter().enumerate().filter(|(value, _)| value % 3 > 0) {
        tree.put(key.as_bytes(), value as u64, &guard).unwrap();
    }
    let mut seen = vec![0; keys.len()];
    tree.get_many(&keys, &guard, |index, value| {
        seen[index] += 1;
        assert_eq!(value, (index % 3 > 0).then_some(index as u64));
    });
    assert!(seen.iter().all(|&times| times == 1), "each key is reported once");
}

#[test]
fn entries_in_order_fill_the_nodes() {
    let (tree, guard) = (Masstree::<u64>::new(), pin());
    for key in 0..15_000_u64 {
        tree.put(&key.to_be_bytes(), key, &guard).unwrap();
    }
    let shape = check(&tree);
    assert!(shape.borders <= 1001, "{shape:?}");
}
