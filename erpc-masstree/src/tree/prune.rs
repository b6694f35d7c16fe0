//! Nodes and layers without entries leave the tree.
//!
//! The leftmost border node of a layer stays as long as the layer, so every other one has a left
//! neighbor that takes over its slices. The way to a border node from above is a key in an interior
//! node: the one just before the path of children that leads to the node. That key must leave the
//! interior nodes together with the border node.

use super::{Masstree, lock_border};
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Ref, Value};
use crate::mutants::mutant;
use crate::node::{Entry, Layer, Locked, Node};
use crate::sync::Backoff;

impl<V: Value> Masstree<V> {
    /// Takes the border node of this key out of its layer, if it has no entries, then the layer, if
    /// it has none, and so on upwards.
    pub(super) fn prune(&self, key: &[u8], mut depth: usize, guard: &Guard) {
        if mutant!(NothingPruned) {
            return;
        }
        loop {
            let Some(layer) = self.layer_at(key, depth, guard) else { return };
            prune_border(layer, Part::of(&key[SLICE * depth..]).slice, guard);
            lower(layer, guard);
            if depth == 0 || !self.remove_layer(key, depth, guard) {
                return;
            }
            depth -= 1;
        }
    }

    /// Removes the layer of the keys that begin with the first `depth` slices of this one, if it
    /// has no entries. Returns whether the border node that led to it has no entries now.
    ///
    /// A layer without entries whose root is still an interior node stays for the moment: a thread
    /// is about to make the border node the root, and then calls this.
    fn remove_layer(&self, key: &[u8], depth: usize, guard: &Guard) -> bool {
        let rest = &key[SLICE * (depth - 1)..];
        let part = Part { class: Part::LONG, ..Part::of(rest) };
        let mut backoff = Backoff::new();
        loop {
            let Some(upper) = self.layer_at(key, depth - 1, guard) else { return false };
            let border = lock_border(upper.descend(part.slice, guard), part.slice, guard);
            let Some(mut border) = border else {
                backoff.wait();
                continue;
            };
            let Ok(position) = border.search(part) else { return false };
            let Entry::Layer(layer) = border.entry(position, guard) else { return false };
            let root = layer.root(guard);
            if !root.is_border() {
                return false;
            }
            let mut root = Locked::lock(root);
            let is_whole = layer.root(guard) == root.node() && !root.is_deleted();
            if !is_whole || !root.is_empty() && !mutant!(LayerNotRechecked) {
                return false;
            }
            border.remove_layer(position, layer, &mut root, guard);
            return border.is_empty();
        }
    }
}

/// Takes the border node of this slice out of the layer, if it has no entries and is not the
/// leftmost.
fn prune_border<V: Value>(layer: Ref<'_, Layer<V>>, slice: u64, guard: &Guard) {
    let mut backoff = Backoff::new();
    loop {
        let Some(border) = lock_border(layer.descend(slice, guard), slice, guard) else {
            // If the layer has been removed, its root is a deleted border node.
            let root = layer.root(guard);
            if root.is_border() && root.stable().is_deleted() {
                return;
            }
            backoff.wait();
            continue;
        };
        if !border.is_empty() || border.low() == 0 {
            return;
        }
        let node = border.node();
        // Locks are taken from left to right.
        drop(border);
        if let Some(gone) = unlist(node, guard) {
            return unlink(gone, guard);
        }
        backoff.wait();
    }
}

/// Takes the border node out of the list, and gives its slices to its left neighbor. Nothing if it
/// has entries again, or if another thread is about to do the same.
fn unlist<'g, V: Value>(node: Ref<'g, Node<V>>, guard: &'g Guard) -> Option<Locked<'g, V>> {
    let mut left = Locked::lock(node.prev(guard)?);
    if left.is_deleted() || left.next(guard) != Some(node) {
        return None;
    }
    let mut gone = Locked::lock(node);
    if gone.is_deleted() || !gone.is_empty() && !mutant!(EmptyNotRechecked) {
        return None;
    }
    left.absorb(&mut gone, guard);
    Some(gone)
}

/// Takes the way to a border node out of the interior nodes, and lets the node be freed.
fn unlink<'g, V: Value>(gone: Locked<'g, V>, guard: &'g Guard) {
    let mut child = gone;
    loop {
        // Never the root: the leftmost border node is in the tree, so the root leads to two nodes.
        let mut parent = child.lock_parent(guard).expect("not the root");
        let place = parent.place_of(child.node(), guard);
        let was_only = parent.keys() == 0;
        if was_only {
            parent.delete_interior();
        } else {
            if place == 0 && !mutant!(KeyNotMoved) {
                move_key(&parent, guard);
            }
            parent.remove_child(place, guard);
        }
        child.set_parent(None);
        if !mutant!(NodeLeaked) {
            // SAFETY: no link leads to the node. The parent's word has just been overwritten; there
            // was one, because a node is in the list of children once. A border node has left the
            // list of its neighbors (`Locked::absorb`). An interior node has no children, whose
            // links would lead here. This thread has marked it deleted, and only one thread does.
            unsafe { child.node().retire(guard) };
        }
        if !was_only {
            return;
        }
        child = parent;
    }
}

/// The first child of this node is about to go. The key that leads to this node from above becomes
/// the first slice of the second child, so that smaller slices lead to the left neighbor.
fn move_key<'g, V: Value>(node: &Locked<'g, V>, guard: &'g Guard) {
    let key = node.first_key();
    let mut below: Option<Locked<'g, V>> = None;
    loop {
        let child = below.as_ref().unwrap_or(node);
        let mut parent = child.lock_parent(guard).expect("not the root");
        let place = parent.place_of(child.node(), guard);
        if place > 0 {
            return parent.set_key_before(place, key);
        }
        // A first child stays the first child, and its parent stays in the tree with it.
        below = Some(parent);
    }
}

/// While the root is an interior node with one child, makes the child the root.
fn lower<V: Value>(layer: Ref<'_, Layer<V>>, guard: &Guard) {
    loop {
        let root = layer.root(guard);
        if root.is_border() {
            return;
        }
        let mut root = Locked::lock(root);
        if root.is_deleted() || layer.root(guard) != root.node() {
            continue;
        }
        if root.keys() > 0 {
            return;
        }
        let Some(child) = root.first_child(guard) else { return };
        // In this order: the next thread to lock the child finds that it has no parent, and may
        // change the root at once.
        layer.set_root(child);
        child.set_parent(None);
        root.delete_interior();
        // SAFETY: the layer, the node's only child and the node's own word were the only links to
        // it and to its child, and no longer are. Only this thread has marked it deleted.
        unsafe { root.node().retire(guard) };
    }
}
