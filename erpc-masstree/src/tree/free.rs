//! Frees all of a tree that is dropped.

use super::Masstree;
use crate::memory::{Guard, Ref, Value, pin};
use crate::node::{Entry, Layer, Locked, Node};

impl<V: Value> Drop for Masstree<V> {
    fn drop(&mut self) {
        let guard = pin();
        free_layer(self.first(&guard), &guard);
        #[cfg(loom)]
        {
            drop(guard);
            crate::memory::bury();
        }
    }
}

/// Frees a layer and the layers below, which are nested at most 128 deep.
fn free_layer<V: Value>(layer: Ref<'_, Layer<V>>, guard: &Guard) {
    free_node(layer.root(guard), guard);
    // SAFETY: only `Masstree::drop` calls this, which nobody else can reach, and for each layer
    // once: a layer is in one slot.
    unsafe { layer.free() };
}

/// Frees a node and the nodes below. A layer has less than 20 levels: its nodes have at least two
/// children when they split.
fn free_node<'g, V: Value>(node: Ref<'g, Node<V>>, guard: &'g Guard) {
    if node.is_border() {
        free_entries(&Locked::lock(node), guard);
    } else {
        node.children(guard).for_each(|child| free_node(child, guard));
    }
    // SAFETY: as above: a node is one node's child.
    unsafe { node.free() };
}

fn free_entries<'g, V: Value>(border: &Locked<'g, V>, guard: &'g Guard) {
    for position in 0..border.entries() {
        match border.entry(position, guard) {
            // SAFETY: as above: a value is in one slot.
            Entry::Value(value) => unsafe { value.free_value::<V>() },
            Entry::Tail(tail) => {
                // SAFETY: as above: a value is in one tail.
                unsafe { tail.value().free_value::<V>() };
                // SAFETY: as above: a tail is in one slot.
                unsafe { tail.free() };
            }
            Entry::Layer(layer) => free_layer(layer, guard),
        }
    }
}
