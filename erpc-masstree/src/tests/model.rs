//! Random operations beside a `BTreeMap`, on one thread.

use std::collections::BTreeMap;
use std::ops::Bound;

use proptest::prelude::*;
use proptest::sample::Index;

use super::check;
use crate::{Masstree, pin};

type Map = BTreeMap<Vec<u8>, u64>;

#[derive(Clone, Debug)]
enum Op {
    Put(Vec<u8>),
    /// Removes a key that is there, if any is.
    Remove(Index),
    RemoveAny(Vec<u8>),
    Get(Vec<u8>),
    Scan(Bound<Vec<u8>>, Bound<Vec<u8>>),
    /// Removes a run of keys that follow each other.
    RemoveRun(Index, usize),
    /// Inserts numbers in order.
    PutRun(u16, u8),
}

/// Keys of 0 to 100 bytes. Many share prefixes, and many bytes are zero.
fn key() -> impl Strategy<Value = Vec<u8>> {
    let byte = prop_oneof![3 => Just(0), 2 => Just(b'a'), 1 => any::<u8>()];
    let free = prop::collection::vec(byte, 0..=20);
    let prefixed =
        (0..=80_usize, prop::collection::vec(prop_oneof![Just(0_u8), any::<u8>()], 0..=20))
            .prop_map(|(prefix, rest)| [vec![b'p'; prefix / 8 * 8], rest].concat());
    let number = any::<u16>().prop_map(|number| u64::from(number).to_be_bytes().to_vec());
    let long = (90..=100_usize).prop_map(|length| vec![b'p'; length]);
    prop_oneof![4 => free, 3 => prefixed, 4 => number, 1 => long]
}

fn bound() -> impl Strategy<Value = Bound<Vec<u8>>> {
    prop_oneof![
        1 => Just(Bound::Unbounded),
        2 => key().prop_map(Bound::Included),
        2 => key().prop_map(Bound::Excluded),
    ]
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        8 => key().prop_map(Op::Put),
        4 => any::<Index>().prop_map(Op::Remove),
        2 => key().prop_map(Op::RemoveAny),
        2 => key().prop_map(Op::Get),
        3 => (bound(), bound()).prop_map(|(start, end)| Op::Scan(start, end)),
        1 => (any::<Index>(), 0..200_usize).prop_map(|(from, count)| Op::RemoveRun(from, count)),
        2 => (any::<u16>(), any::<u8>()).prop_map(|(from, count)| Op::PutRun(from, count)),
    ]
}

/// Applies the operations to both maps, and compares all results.
fn run(ops: &[Op]) {
    let (tree, mut map, mut guard) = (Masstree::<u64>::new(), Map::new(), pin());
    let remove = |map: &mut Map, key: &[u8], guard: &crate::Guard| {
        assert_eq!(tree.remove(key, guard), map.remove(key), "remove {key:?}");
    };
    for (number, op) in ops.iter().enumerate() {
        let number = number as u64;
        let put = |map: &mut Map, key: &[u8], guard: &crate::Guard| {
            assert_eq!(
                tree.put(key, number, guard),
                Ok(map.insert(key.to_vec(), number)),
                "{key:?}"
            );
        };
        match op {
            Op::Put(key) => put(&mut map, key, &guard),
            Op::PutRun(from, count) => {
                for number in 0..u64::from(*count) {
                    put(&mut map, &(u64::from(*from) + number).to_be_bytes(), &guard);
                }
            }
            Op::Remove(_) if map.is_empty() => {}
            Op::Remove(index) => {
                let key = map.keys().nth(index.index(map.len())).unwrap().clone();
                remove(&mut map, &key, &guard);
            }
            Op::RemoveAny(key) => remove(&mut map, key, &guard),
            Op::RemoveRun(..) if map.is_empty() => {}
            Op::RemoveRun(from, count) => {
                let keys = map.keys().skip(from.index(map.len())).take(*count);
                for key in keys.cloned().collect::<Vec<_>>() {
                    remove(&mut map, &key, &guard);
                }
            }
            Op::Get(key) => assert_eq!(tree.get(key, &guard), map.get(key).copied(), "get {key:?}"),
            Op::Scan(start, end) => {
                let bounds = (start.as_ref().map(Vec::as_slice), end.as_ref().map(Vec::as_slice));
                let expected: Vec<_> = map
                    .iter()
                    .filter(|(key, _)| {
                        std::ops::RangeBounds::<[u8]>::contains(&bounds, key.as_slice())
                    })
                    .map(|(key, &value)| (key.clone(), value))
                    .collect();
                let mut found = Vec::new();
                let mut scan = tree.scan(bounds, &guard);
                while let Some((key, value)) = scan.next() {
                    found.push((key.to_vec(), value));
                }
                assert_eq!(found, expected, "ascending");
                let mut back = Vec::new();
                let mut scan = tree.scan_back(bounds, &guard);
                while let Some((key, value)) = scan.next() {
                    back.push((key.to_vec(), value));
                }
                back.reverse();
                assert_eq!(back, expected, "descending");
            }
        }
        guard.repin();
    }
    assert_eq!(check(&tree).keys, map.len());
    for (key, value) in &map {
        assert_eq!(tree.get(key, &guard), Some(*value), "get {key:?}");
    }
    let keys: Vec<_> = map.into_keys().collect();
    let order = keys.len() * 7 / 11;
    for key in keys[order..].iter().chain(&keys[..order]) {
        assert!(tree.remove(key, &guard).is_some(), "remove {key:?}");
    }
    let shape = check(&tree);
    assert_eq!((shape.layers, shape.interior, shape.borders), (1, 0, 1), "all was removed");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_tree_is_an_ordered_map(ops in prop::collection::vec(op(), 1..400)) {
        run(&ops);
    }
}
