//! Checks all links and bounds of a tree that no other thread changes.

use crate::memory::{Guard, Ref, Value};
use crate::node::{Entry, Layer, Locked, Node};
use crate::tree::Masstree;

/// What a tree consists of.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Shape {
    pub(crate) layers: usize,
    pub(crate) interior: usize,
    pub(crate) borders: usize,
    pub(crate) keys: usize,
}

/// # Panics
///
/// If a link, a bound or a separator is wrong, or if a node or layer without entries is left.
pub(crate) fn check<V: Value>(tree: &Masstree<V>) -> Shape {
    let guard = crate::pin();
    let mut shape = Shape::default();
    check_layer(tree.first(&guard), true, &mut shape, &guard);
    shape
}

fn check_layer<V: Value>(
    layer: Ref<'_, Layer<V>>,
    is_first: bool,
    shape: &mut Shape,
    guard: &Guard,
) {
    shape.layers += 1;
    let root = layer.root(guard);
    assert!(root.parent(guard).is_none(), "a root has no parent");
    let is_lowered = root.is_border() || !root.separators().is_empty();
    assert!(is_lowered, "an interior root has two children");
    let mut borders = Vec::new();
    check_node(root, 0, u64::MAX, &mut borders, shape, guard);

    for (index, &node) in borders.iter().enumerate() {
        let left = index.checked_sub(1).map(|index| borders[index]);
        assert_eq!(node.prev(guard), left, "link to the left of {index}");
        assert_eq!(
            node.next(guard),
            borders.get(index + 1).copied(),
            "link to the right of {index}"
        );
        let border = Locked::lock(node);
        let may_be_empty = index == 0 && (is_first || borders.len() > 1);
        assert!(!border.is_empty() || may_be_empty, "border node {index} has no entries");
        let parts = border.parts();
        assert!(parts.is_sorted_by(|a, b| a < b), "entries are out of order: {parts:?}");
        let is_inside = parts.iter().all(|part| (node.low()..=node.high()).contains(&part.slice));
        assert!(is_inside, "an entry belongs to another node: {parts:?}");
        for position in 0..border.entries() {
            match border.entry(position, guard) {
                Entry::Layer(layer) => check_layer(layer, false, shape, guard),
                Entry::Value(_) | Entry::Tail(_) => shape.keys += 1,
            }
        }
    }
}

fn check_node<'g, V: Value>(
    node: Ref<'g, Node<V>>,
    low: u64,
    high: u64,
    borders: &mut Vec<Ref<'g, Node<V>>>,
    shape: &mut Shape,
    guard: &'g Guard,
) {
    let version = node.stable();
    assert!(!version.is_locked() && !version.is_deleted(), "{version:?}");
    if node.is_border() {
        shape.borders += 1;
        assert_eq!((node.low(), node.high()), (low, high), "slices of a border node");
        return borders.push(node);
    }
    shape.interior += 1;
    let keys = node.separators();
    let children: Vec<_> = node.children(guard).collect();
    assert_eq!(children.len(), keys.len() + 1, "children of an interior node");
    let bounds: Vec<_> = [low].into_iter().chain(keys).collect();
    assert!(bounds.is_sorted_by(|a, b| a < b), "keys of an interior node: {bounds:x?}");
    for (place, child) in children.into_iter().enumerate() {
        assert_eq!(child.parent(guard), Some(node), "parent");
        let last = bounds.get(place + 1).map_or(high, |next| next - 1);
        check_node(child, bounds[place], last, borders, shape, guard);
    }
}
