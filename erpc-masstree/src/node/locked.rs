//! What the holder of a node's lock does.

use std::ops::Deref;

use super::border::{Entry, class};
use super::version::VersionWord;
use super::{Layer, Node, Permutation, WIDTH, kind};
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Ref, Tail, Value, Word};
use crate::mutants::mutant;
use crate::sync::Ordering;

/// A node whose lock this thread holds, until it drops this.
///
/// Locks are taken in this order, so that threads never wait for each other in a circle: border
/// nodes of upper layers before those of lower ones; in a layer, border nodes from left to right,
/// then interior nodes from children to parents.
#[derive(Debug)]
pub(crate) struct Locked<'g, V: 'static> {
    node: Ref<'g, Node<V>>,
}

impl<V: 'static> Drop for Locked<'_, V> {
    #[inline]
    fn drop(&mut self) {
        self.node.version.release();
    }
}

impl<V: 'static> Deref for Locked<'_, V> {
    type Target = Node<V>;

    #[inline]
    fn deref(&self) -> &Node<V> {
        &self.node
    }
}

/// What is left of a removed or replaced entry.
#[must_use]
pub(crate) struct Removed<'g> {
    value: Word,
    tail: Option<Tail<'g>>,
}

impl<'g> Removed<'g> {
    /// The value, and lets memory be freed after the last of the present guards.
    pub(crate) fn retire<V: Value>(self, guard: &'g Guard) -> V::Ref<'g> {
        // SAFETY: the word was a value's, and in the tree until this thread removed it.
        let value = unsafe { self.value.value::<V>(guard) };
        // SAFETY: only `Locked` makes this, under the lock, for a word that it has overwritten or
        // whose slot it has freed. So no node holds it, and this is the only one for it.
        unsafe { self.value.retire_value::<V>(guard) };
        if let Some(tail) = self.tail {
            // SAFETY: as above.
            unsafe { tail.retire(guard) };
        }
        value
    }
}

impl<'g, V: 'static> Locked<'g, V> {
    /// Waits for the lock.
    #[inline]
    pub(crate) fn lock(node: Ref<'g, Node<V>>) -> Self {
        node.version.lock();
        Self { node }
    }

    /// A node that this thread has made with its lock taken.
    pub(super) fn made(node: Ref<'g, Node<V>>) -> Self {
        debug_assert!(node.version.current().is_locked());
        Self { node }
    }

    #[inline]
    pub(crate) fn node(&self) -> Ref<'g, Node<V>> {
        self.node
    }

    pub(crate) fn is_deleted(&self) -> bool {
        self.version.current().is_deleted()
    }

    pub(super) fn begin(&self) {
        self.version.begin();
    }

    pub(super) fn end(&self) {
        self.version.end();
    }

    pub(super) fn end_deleted(&self) {
        self.version.end_deleted();
    }
}

/// Border nodes.
impl<'g, V: Value> Locked<'g, V> {
    fn order(&self) -> Permutation {
        Permutation(self.order.load(Ordering::Relaxed))
    }

    /// Number of entries.
    pub(crate) fn entries(&self) -> usize {
        self.order().count()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.entries() == 0
    }

    pub(crate) fn is_full(&self) -> bool {
        self.order().is_full()
    }

    /// The position of the key, or else the position at which it would be inserted.
    pub(crate) fn search(&self, part: Part) -> Result<usize, usize> {
        let order = self.order();
        for position in 0..order.count() {
            let found = self.part(order.slot(position));
            if found >= part {
                return if found == part { Ok(position) } else { Err(position) };
            }
        }
        Err(order.count())
    }

    /// The parts of all entries in order.
    #[cfg(test)]
    pub(crate) fn parts(&self) -> Vec<Part> {
        self.order().slots().map(|slot| self.part(slot)).collect()
    }

    fn part(&self, slot: usize) -> Part {
        Part { slice: self.slice(slot), class: class(self.kind(slot)) }
    }

    fn slice(&self, slot: usize) -> u64 {
        self.keys[slot].load(Ordering::Relaxed)
    }

    /// What the entry at this position leads to.
    pub(crate) fn entry(&self, position: usize, guard: &'g Guard) -> Entry<'g, V> {
        let slot = self.order().slot(position);
        // SAFETY: this thread holds the lock and the slot is in use.
        unsafe { Entry::new(self.kind(slot), Word::load(&self.words[slot]), guard) }
    }

    /// Replaces the value at this position, of a key that ends in this layer or has a tail.
    pub(crate) fn replace(
        &mut self,
        position: usize,
        value: Word,
        guard: &'g Guard,
    ) -> Removed<'g> {
        let slot = self.order().slot(position);
        let old = match self.entry(position, guard) {
            Entry::Tail(tail) => {
                let old = tail.value();
                tail.set_value(value);
                old
            }
            _ => {
                let old = Word::load(&self.words[slot]);
                // Readers see the old word or the new one.
                value.store(&self.words[slot]);
                old
            }
        };
        Removed { value: old, tail: None }
    }

    /// Inserts an entry at this position. The node is not full.
    pub(crate) fn insert(&mut self, position: usize, rest: &[u8], value: Word, guard: &'g Guard) {
        let (order, slot) = self.order().insert(position);
        let (kind, word) = content(rest, value, guard);
        if mutant!(PublishedEarly) {
            self.order.store(order.0, Ordering::Release);
        }
        self.fill_slot(slot, Part::of(rest).slice, kind, word);
        // Publishes the entry. The slot was free at least since the last change of the version, so
        // no reader of an older order takes the new entry for an old one.
        self.order.store(order.0, Ordering::Release);
    }

    fn fill_slot(&self, slot: usize, slice: u64, kind: u64, word: Word) {
        let kinds = self.kinds.load(Ordering::Relaxed);
        let kinds = kinds & !(0xf << (4 * slot)) | kind << (4 * slot);
        self.keys[slot].store(slice, Ordering::Relaxed);
        self.kinds.store(kinds, Ordering::Relaxed);
        word.store(&self.words[slot]);
    }

    /// Removes the entry at this position, which leads to a value or a tail.
    pub(crate) fn remove(&mut self, position: usize, guard: &'g Guard) -> Removed<'g> {
        let removed = match self.entry(position, guard) {
            Entry::Tail(tail) => Removed { value: tail.value(), tail: Some(tail) },
            Entry::Value(value) => Removed { value, tail: None },
            Entry::Layer(_) => unreachable!("a layer is removed by `remove_layer`"),
        };
        self.free_slot(position);
        removed
    }

    /// Frees the slot at this position. Changes the version, so that the slot can be used again
    /// without a change of the version.
    fn free_slot(&mut self, position: usize) {
        let order = self.order().remove(position);
        if mutant!(RemovedQuietly) {
            return self.order.store(order.0, Ordering::Release);
        }
        self.begin();
        self.order.store(order.0, Ordering::Relaxed);
        self.end();
    }

    /// Replaces the tail at this position by a layer, which holds the tail's key and another key of
    /// which `rest` is left in this layer.
    pub(crate) fn make_layer(
        &mut self,
        position: usize,
        tail: Tail<'g>,
        rest: &[u8],
        value: Word,
        guard: &'g Guard,
    ) {
        let slot = self.order().slot(position);
        let layer = layer_of_two::<V>(tail.bytes(), tail.value(), &rest[SLICE..], value, guard);
        self.begin();
        self.fill_slot(slot, self.slice(slot), kind::LAYER, Word::of(layer));
        self.end();
        // SAFETY: no slot holds the tail any more. Its value lives on in the layer.
        unsafe { tail.retire(guard) };
    }

    /// Removes the layer at this position, whose only node is `root`, if `root` has no entries.
    pub(crate) fn remove_layer(
        &mut self,
        position: usize,
        layer: Ref<'g, Layer<V>>,
        root: &mut Self,
        guard: &'g Guard,
    ) {
        debug_assert!(root.is_empty() && root.low == 0 && root.high() == u64::MAX);
        if !mutant!(LayerLeftAlive) {
            root.begin();
            root.end_deleted();
        }
        self.free_slot(position);
        if mutant!(LayerLeaked) {
            return;
        }
        // SAFETY: the slot was the only link to the layer. The caller holds its lock.
        unsafe { layer.retire(guard) };
        // SAFETY: the layer was the only link to the node: the node has no neighbors and no parent,
        // because its layer's root is this node.
        unsafe { root.node.retire(guard) };
    }

    /// Splits a full node, and inserts an entry at this position. Returns the right half, which has
    /// no parent yet.
    pub(crate) fn split(
        &mut self,
        position: usize,
        rest: &[u8],
        value: Word,
        guard: &'g Guard,
    ) -> Self {
        let order = self.order();
        let (kind, word) = content(rest, value, guard);
        let mut entries: Vec<_> = order
            .slots()
            .map(|slot| (self.slice(slot), self.kind(slot), Word::load(&self.words[slot])))
            .collect();
        entries.insert(position, (Part::of(rest).slice, kind, word));
        let is_append = position == WIDTH && self.next(guard).is_none();
        let cut = cut(&entries.iter().map(|entry| entry.0).collect::<Vec<_>>(), is_append);

        let moved = &entries[cut..];
        let order_right = Permutation::first(moved.len()).0;
        let version = VersionWord::locked(true);
        let node = Node::new(version, order_right, moved[0].0, self.high());
        let right = Self::made(Ref::allocate(node, guard));
        for (slot, &(slice, kind, word)) in moved.iter().enumerate() {
            right.fill_slot(slot, slice, kind, word);
        }
        let next = self.next(guard);
        right.next.store(next);
        right.set_prev(Some(self.node));

        if !mutant!(SplitQuietly) {
            self.begin();
        }
        if position < cut {
            let (order, slot) = order.truncate(cut - 1).insert(position);
            self.fill_slot(slot, entries[position].0, kind, word);
            self.order.store(order.0, Ordering::Release);
        } else {
            self.order.store(order.truncate(cut).0, Ordering::Release);
        }
        self.high.store(right.low - 1, Ordering::Relaxed);
        if let Some(next) = next
            && !mutant!(PrevForgotten)
        {
            next.set_prev(Some(right.node));
        }
        self.next.store(Some(right.node));
        if !mutant!(SplitQuietly) {
            self.end();
        }
        right
    }

    /// Gives the slices of `gone`, the right neighbor, to this node, and takes `gone` out of the
    /// list. It has no entries.
    pub(crate) fn absorb(&mut self, gone: &mut Self, guard: &'g Guard) {
        debug_assert!(self.next(guard) == Some(gone.node));
        let next = gone.next(guard);
        self.begin();
        gone.begin();
        self.high.store(gone.high(), Ordering::Relaxed);
        self.next.store(next);
        if let Some(next) = next {
            next.set_prev(Some(self.node));
        }
        // The neighbors may be freed before this node.
        gone.next.store(None);
        gone.set_prev(None);
        if mutant!(NotMarkedDeleted) {
            gone.end()
        } else {
            gone.end_deleted()
        }
        self.end();
    }
}

/// The kind and the word of a new entry.
fn content(rest: &[u8], value: Word, guard: &Guard) -> (u64, Word) {
    let part = Part::of(rest);
    if part.is_long() {
        (kind::TAIL, Tail::allocate(&rest[SLICE..], value, guard).word())
    } else {
        (part.class, value)
    }
}

/// Where to split entries with these slices, near the middle but not between equal slices. After
/// all old entries if the new one is the layer's last, because then more will probably follow.
fn cut(slices: &[u64], is_append: bool) -> usize {
    let may_cut = |at: usize| at > 0 && at < slices.len() && slices[at - 1] != slices[at];
    if is_append && may_cut(slices.len() - 1) {
        return slices.len() - 1;
    }
    let middle = slices.len() / 2;
    let nearest = (0..=middle).flat_map(|distance| [middle - distance, middle + distance]);
    let mut cuts = nearest.filter(|&at| may_cut(at));
    cuts.next().expect("a full node has keys with different slices")
}

/// A layer with two different keys. If they have more slices in common, a layer in a layer and so
/// on, at most as deep as keys are long.
fn layer_of_two<'g, V: Value>(
    a: &[u8],
    a_value: Word,
    b: &[u8],
    b_value: Word,
    guard: &'g Guard,
) -> Ref<'g, Layer<V>> {
    let mut root = Locked::made(Ref::allocate(
        Node::new(VersionWord::locked(true), Permutation::EMPTY.0, 0, u64::MAX),
        guard,
    ));
    let (part_a, part_b) = (Part::of(a), Part::of(b));
    if part_a == part_b {
        debug_assert!(part_a.is_long(), "equal keys");
        let inner = layer_of_two::<V>(&a[SLICE..], a_value, &b[SLICE..], b_value, guard);
        root.fill_slot(0, part_a.slice, kind::LAYER, Word::of(inner));
        root.order.store(Permutation::first(1).0, Ordering::Relaxed);
    } else {
        root.insert(0, a, a_value, guard);
        root.insert(usize::from(part_a < part_b), b, b_value, guard);
    }
    Ref::allocate(Layer::new(root.node), guard)
}
