//! The protocols of nodes and layers under all schedules, with nodes of three entries; see
//! `crate::sync`.

use loom::sync::Arc;
use loom::thread;

use crate::check::{Shape, check};
use crate::{Masstree, pin};

type Tree = Arc<Masstree<u64>>;

/// Checks all schedules with at most so many preemptions.
fn model(preemptions: usize, test: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 10_000;
    let asked = builder.preemption_bound.unwrap_or(preemptions);
    builder.preemption_bound = Some(asked.min(preemptions));
    builder.check(test);
}

/// A key that ends in the first layer.
fn number(n: u64) -> [u8; 8] {
    n.to_be_bytes()
}

/// A key of the slice `n` that goes on.
fn long(n: u8, rest: &str) -> Vec<u8> {
    [&[n; 8], rest.as_bytes()].concat()
}

/// A tree in which each of these keys has its own last byte as value.
fn tree<K: AsRef<[u8]>>(keys: &[K]) -> Tree {
    let (tree, guard) = (Masstree::new(), pin());
    keys.iter().for_each(|key| put(&tree, key));
    drop(guard);
    Arc::new(tree)
}

fn value(key: &[u8]) -> u64 {
    u64::from(*key.last().unwrap())
}

fn put(tree: &Masstree<u64>, key: impl AsRef<[u8]>) {
    let key = key.as_ref();
    assert_eq!(tree.put(key, value(key), &pin()), Ok(None), "put {key:?}");
}

fn remove(tree: &Masstree<u64>, key: impl AsRef<[u8]>) {
    let key = key.as_ref();
    assert_eq!(tree.remove(key, &pin()), Some(value(key)), "remove {key:?}");
}

#[track_caller]
fn assert_present(tree: &Masstree<u64>, key: impl AsRef<[u8]>) {
    let key = key.as_ref();
    assert_eq!(tree.get(key, &pin()), Some(value(key)), "get {key:?}");
}

/// The last bytes of all keys, in scan order.
fn scan(tree: &Masstree<u64>, is_forward: bool) -> Vec<u64> {
    let guard = pin();
    let mut scan = if is_forward { tree.scan(.., &guard) } else { tree.scan_back(.., &guard) };
    let mut found = Vec::new();
    while let Some((key, seen)) = scan.next() {
        assert_eq!(seen, value(key), "scan {key:?}");
        found.push(seen);
    }
    found
}

/// Whether all of these are in the list, which ascends strictly.
#[track_caller]
fn assert_contains(found: &[u64], permanent: &[u64]) {
    assert!(found.is_sorted_by(|a, b| a < b), "out of order: {found:?}");
    assert!(permanent.iter().all(|key| found.contains(key)), "{permanent:?} not all in {found:?}");
}

/// Runs the second closure on another thread.
fn beside(tree: &Tree, here: impl FnOnce(&Masstree<u64>), there: fn(&Masstree<u64>)) -> Shape {
    let other = {
        let tree = Arc::clone(tree);
        thread::spawn(move || there(&tree))
    };
    here(tree);
    other.join().unwrap();
    check(tree)
}

#[test]
fn a_reader_finds_keys_that_a_split_moves() {
    model(3, || {
        let tree = tree(&[1, 2, 4].map(number));
        let shape = beside(
            &tree,
            |tree| {
                assert_present(tree, number(4));
                assert_present(tree, number(1));
            },
            |tree| put(tree, number(3)),
        );
        assert_eq!((shape.keys, shape.borders, shape.interior), (4, 2, 1));
    });
}

#[test]
fn a_reader_of_the_old_root_finds_all_keys() {
    // Two preemptions would take minutes.
    model(1, || {
        let tree = tree(&std::array::from_fn::<_, 12, _>(|n| number(n as u64 + 1)));
        assert_eq!((check(&tree).borders, check(&tree).interior), (4, 1));
        let shape = beside(
            &tree,
            |tree| {
                assert_present(tree, number(12));
                assert_present(tree, number(1));
            },
            |tree| put(tree, number(13)),
        );
        assert_eq!((shape.borders, shape.interior), (5, 3), "the root has split");
    });
}

#[test]
fn an_insertion_beside_a_split_is_kept() {
    model(2, || {
        let tree = tree(&[1, 3, 5].map(number));
        let shape = beside(&tree, |tree| put(tree, number(2)), |tree| put(tree, number(4)));
        assert_eq!(shape.keys, 5);
        for key in 1..=5 {
            assert_present(&tree, number(key));
        }
    });
}

#[test]
fn a_reader_sees_a_new_entry_whole() {
    model(3, || {
        let tree = tree(&[1, 3].map(number));
        beside(
            &tree,
            |tree| {
                let seen = tree.get(&number(2), &pin());
                assert!(seen.is_none_or(|seen| seen == 2), "{seen:?}");
                assert_contains(&scan(tree, true), &[1, 3]);
            },
            |tree| put(tree, number(2)),
        );
    });
}

#[test]
fn a_slot_that_is_used_again_misleads_no_reader() {
    model(3, || {
        let tree = tree(&[1, 2].map(number));
        beside(
            &tree,
            |tree| {
                let seen = tree.get(&number(1), &pin());
                assert!(seen.is_none_or(|seen| seen == 1), "{seen:?}");
            },
            |tree| {
                remove(tree, number(1));
                put(tree, number(3));
            },
        );
    });
}

#[test]
fn a_reader_beside_the_removal_of_its_node_finds_the_key_or_nothing() {
    model(2, || {
        let tree = tree(&[1, 2, 3, 4].map(number));
        remove(&tree, number(3));
        let shape = beside(
            &tree,
            |tree| {
                let seen = tree.get(&number(4), &pin());
                assert!(seen.is_none_or(|seen| seen == 4), "{seen:?}");
                assert_present(tree, number(2));
            },
            |tree| remove(tree, number(4)),
        );
        assert_eq!((shape.borders, shape.interior), (1, 0), "the second node has left");
    });
}

#[test]
fn an_insertion_beside_the_removal_of_its_node_is_kept() {
    model(2, || {
        let tree = tree(&[1, 2, 3, 4].map(number));
        remove(&tree, number(3));
        beside(&tree, |tree| put(tree, number(5)), |tree| remove(tree, number(4)));
        assert_present(&tree, number(5));
        assert_eq!(tree.get(&number(4), &pin()), None);
    });
}

#[test]
fn two_removals_take_one_node_out_once() {
    model(2, || {
        let tree = tree(&[1, 2, 3, 4, 5].map(number));
        let shape = beside(&tree, |tree| remove(tree, number(4)), |tree| remove(tree, number(5)));
        assert_eq!((shape.keys, shape.borders, shape.interior), (3, 1, 0));
    });
}

#[test]
fn neighbors_leave_at_the_same_time() {
    // Two preemptions would take minutes.
    model(1, || {
        let tree = tree(&[1, 2, 3, 4, 5, 6, 7].map(number));
        [1, 2, 4, 5].iter().for_each(|&key| remove(&tree, number(key)));
        assert_eq!((check(&tree).borders, check(&tree).keys), (3, 3));
        let shape = beside(&tree, |tree| remove(tree, number(6)), |tree| remove(tree, number(7)));
        assert_eq!((shape.keys, shape.borders, shape.interior), (1, 1, 0));
    });
}

#[test]
fn the_halves_of_a_split_may_leave_at_once() {
    // Two preemptions would take minutes.
    model(1, || {
        let tree = tree(&[1, 2, 4].map(number));
        beside(
            &tree,
            |tree| put(tree, number(3)),
            |tree| {
                remove(tree, number(4));
                tree.remove(&number(3), &pin());
            },
        );
    });
}

#[test]
fn a_reader_finds_a_key_that_moves_into_a_layer() {
    model(3, || {
        let tree = tree(&[long(1, "a")]);
        let shape = beside(
            &tree,
            |tree| {
                assert_present(tree, long(1, "a"));
                let seen = tree.get(&long(1, "b"), &pin());
                assert!(seen.is_none_or(|seen| seen == u64::from(b'b')), "{seen:?}");
            },
            |tree| put(tree, long(1, "b")),
        );
        assert_eq!((shape.layers, shape.keys), (2, 2));
    });
}

#[test]
fn a_replacement_beside_a_new_layer_is_kept() {
    model(2, || {
        let tree = tree(&[long(1, "a")]);
        beside(
            &tree,
            |tree| {
                let old = tree.put(&long(1, "a"), 7, &pin());
                assert_eq!(old, Ok(Some(u64::from(b'a'))));
            },
            |tree| put(tree, long(1, "b")),
        );
        assert_eq!(tree.get(&long(1, "a"), &pin()), Some(7));
        assert_present(&tree, long(1, "b"));
    });
}

#[test]
fn two_keys_make_one_layer() {
    model(2, || {
        let tree = tree(&[long(1, "a")]);
        let shape = beside(&tree, |tree| put(tree, long(1, "b")), |tree| put(tree, long(1, "c")));
        assert_eq!((shape.layers, shape.keys), (2, 3));
        ["a", "b", "c"].iter().for_each(|rest| assert_present(&tree, long(1, rest)));
    });
}

#[test]
fn an_insertion_beside_the_removal_of_its_layer_is_kept() {
    model(2, || {
        let tree = tree(&[long(1, "a"), long(1, "b"), number(9).to_vec()]);
        remove(&tree, long(1, "a"));
        beside(&tree, |tree| put(tree, long(1, "c")), |tree| remove(tree, long(1, "b")));
        assert_present(&tree, long(1, "c"));
        assert_eq!(tree.get(&long(1, "b"), &pin()), None);
    });
}

#[test]
fn readers_beside_the_removal_of_a_layer_find_the_key_or_nothing() {
    model(2, || {
        let tree = tree(&[long(1, "a"), long(1, "b"), number(9).to_vec()]);
        remove(&tree, long(1, "a"));
        let shape = beside(
            &tree,
            |tree| {
                let seen = tree.get(&long(1, "b"), &pin());
                assert!(seen.is_none_or(|seen| seen == u64::from(b'b')), "{seen:?}");
                assert_contains(&scan(tree, true), &[9]);
            },
            |tree| remove(tree, long(1, "b")),
        );
        assert_eq!((shape.layers, shape.keys), (1, 1));
    });
}

#[test]
fn two_removals_take_one_layer_out_once() {
    model(2, || {
        let tree = tree(&[long(1, "a"), long(1, "b")]);
        let shape =
            beside(&tree, |tree| remove(tree, long(1, "a")), |tree| remove(tree, long(1, "b")));
        assert_eq!((shape.layers, shape.keys), (1, 0));
    });
}

#[test]
fn a_scan_beside_a_split_misses_no_key() {
    for is_forward in [true, false] {
        model(2, move || {
            let tree = tree(&[1, 2, 4, 5].map(number));
            let seen = |tree: &Masstree<u64>| {
                let mut found = scan(tree, is_forward);
                if !is_forward {
                    found.reverse();
                }
                assert_contains(&found, &[1, 2, 4, 5]);
            };
            beside(&tree, seen, |tree| {
                put(tree, number(3));
                put(tree, number(6));
            });
        });
    }
}

#[test]
fn a_scan_beside_the_removal_of_a_node_misses_no_key() {
    for is_forward in [true, false] {
        // Two preemptions would take minutes.
        model(1, move || {
            let tree = tree(&[1, 2, 3, 4, 5, 6, 7].map(number));
            [1, 3, 5, 6].iter().for_each(|&key| remove(&tree, number(key)));
            assert_eq!((check(&tree).borders, check(&tree).keys), (3, 3));
            let seen = |tree: &Masstree<u64>| {
                let mut found = scan(tree, is_forward);
                if !is_forward {
                    found.reverse();
                }
                assert_contains(&found, &[2, 7]);
            };
            beside(&tree, seen, |tree| remove(tree, number(4)));
        });
    }
}
