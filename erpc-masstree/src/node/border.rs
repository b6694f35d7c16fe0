//! Border nodes as optimistic readers see them.

use super::{Layer, Node, Permutation, WIDTH, kind};
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Ref, Tail, Value, Word};
use crate::mutants::mutant;
use crate::sync::{Backoff, Ordering};

/// What an entry leads to.
pub(crate) enum Entry<'g, V> {
    /// The value of a key that ends in this layer.
    Value(Word),
    /// The rest of a key, and its value.
    Tail(Tail<'g>),
    Layer(Ref<'g, Layer<V>>),
}

/// What a reader finds.
pub(crate) enum Look<'g, V: Value> {
    Absent,
    Value(V::Ref<'g>),
    /// The key goes on in this layer.
    Layer(Ref<'g, Layer<V>>),
    /// The node is not the right one, nor left of it. Start again.
    Astray,
}

/// An entry as it was at the moment of a snapshot.
#[derive(Clone, Copy)]
pub(crate) struct Item {
    pub(crate) slice: u64,
    pub(crate) kind: u64,
    word: Word,
}

/// All of a border node at one moment.
pub(crate) struct Snapshot<'g, V> {
    pub(crate) node: Option<Ref<'g, Node<V>>>,
    items: [Item; WIDTH],
    len: usize,
    pub(crate) low: u64,
    pub(crate) high: u64,
    pub(crate) next: Option<Ref<'g, Node<V>>>,
    pub(crate) prev: Option<Ref<'g, Node<V>>>,
}

/// The class of keys with this kind of entry.
#[inline]
pub(super) fn class(kind: u64) -> u64 {
    kind.min(Part::LONG)
}

impl<V: Value> Node<V> {
    /// The slot of the key, as a reader without a lock sees it.
    #[inline]
    fn slot_of(&self, part: Part) -> Option<usize> {
        // Before the slots: what they hold is then at least as new as the order.
        let order = Permutation(self.order.load(Ordering::Acquire));
        let mut hits = 0_u32;
        // Compares all slots, also those not in use: without branches that depend on the data this
        // is faster than a search in order.
        for (slot, key) in self.keys.iter().enumerate() {
            hits |= u32::from(key.load(Ordering::Relaxed) == part.slice) << slot;
        }
        let kinds = self.kinds.load(Ordering::Relaxed);
        while hits != 0 {
            let slot = hits.trailing_zeros() as usize;
            if class(kind_in(kinds, slot)) == part.class && order.contains(slot) {
                return Some(slot);
            }
            hits &= hits - 1;
        }
        None
    }

    /// The kind of this slot's entry.
    #[inline]
    pub(super) fn kind(&self, slot: usize) -> u64 {
        kind_in(self.kinds.load(Ordering::Relaxed), slot)
    }
}

#[inline]
fn kind_in(kinds: u64, slot: usize) -> u64 {
    kinds >> (4 * slot) & 0xf
}

impl<'g, V: Value> Ref<'g, Node<V>> {
    /// Looks for the rest of a key in this border node, or in those right of it.
    #[inline]
    pub(crate) fn look(self, rest: &[u8], guard: &'g Guard) -> Look<'g, V> {
        let (mut node, part) = (self, Part::of(rest));
        let mut backoff = Backoff::new();
        loop {
            let version = node.stable();
            if version.is_deleted() || part.slice < node.low {
                return Look::Astray;
            }
            if part.slice > node.high() && !mutant!(HighIgnored) {
                let next = node.next(guard);
                if node.is_still(version)
                    && let Some(next) = next
                {
                    node = next;
                }
                continue;
            }
            let found =
                node.slot_of(part).map(|slot| (node.kind(slot), Word::load(&node.words[slot])));
            if !node.is_still(version) {
                backoff.wait();
                continue;
            }
            let Some((kind, word)) = found else { return Look::Absent };
            // SAFETY: the version has not changed, so at this moment the node was in the tree, the
            // slot in use, and the kind that of the word.
            let entry = unsafe { Entry::new(kind, word, guard) };
            return match entry {
                // SAFETY: as above: this is the word of a value.
                Entry::Value(word) => Look::Value(unsafe { word.value::<V>(guard) }),
                Entry::Tail(tail) if tail.bytes() == &rest[SLICE..] => {
                    // SAFETY: a tail always holds a value's word. If the value has been retired
                    // since, then after the moment above, when the guard was held.
                    Look::Value(unsafe { tail.value().value::<V>(guard) })
                }
                Entry::Tail(_) => Look::Absent,
                Entry::Layer(layer) => Look::Layer(layer),
            };
        }
    }
}

impl<'g, V: Value> Snapshot<'g, V> {
    /// A snapshot of nothing, in front of a layer's first node.
    #[inline]
    pub(crate) fn empty() -> Self {
        let items = [Item { slice: 0, kind: 0, word: Word::NULL }; WIDTH];
        Self { node: None, items, len: 0, low: 0, high: 0, next: None, prev: None }
    }

    /// Copies the border node that the slice belongs to: this one, or one right of it. Returns
    /// false if the reader is astray. The snapshot is then empty.
    #[inline]
    pub(crate) fn take(&mut self, from: Ref<'g, Node<V>>, slice: u64, guard: &'g Guard) -> bool {
        let mut node = from;
        let mut backoff = Backoff::new();
        loop {
            let version = node.stable();
            if version.is_deleted() || slice < node.low {
                break;
            }
            self.node = Some(node);
            self.copy(node, guard);
            if !node.is_still(version) {
                backoff.wait();
                continue;
            }
            if slice <= self.high {
                return true;
            }
            let Some(next) = self.next else { break };
            node = next;
        }
        self.len = 0;
        false
    }

    /// Copies the node, whether or not it changes meanwhile.
    #[inline]
    fn copy(&mut self, node: Ref<'g, Node<V>>, guard: &'g Guard) {
        let order = Permutation(node.order.load(Ordering::Acquire));
        let kinds = node.kinds.load(Ordering::Relaxed);
        self.len = order.count();
        for (item, slot) in self.items.iter_mut().zip(order.slots()) {
            item.slice = node.keys[slot].load(Ordering::Relaxed);
            item.kind = kind_in(kinds, slot);
            item.word = Word::load(&node.words[slot]);
        }
        (self.low, self.high) = (node.low, node.high());
        (self.next, self.prev) = (node.next(guard), node.prev(guard));
    }
}

impl<'g, V: Value> Snapshot<'g, V> {
    /// The entries in order.
    #[inline]
    pub(crate) fn items(&self) -> &[Item] {
        &self.items[..self.len]
    }

    /// What this entry of the snapshot leads to.
    #[inline]
    pub(crate) fn entry(&self, at: usize, guard: &'g Guard) -> Entry<'g, V> {
        let Item { kind, word, .. } = self.items()[at];
        // SAFETY: after `take`, a snapshot has entries only if the version had not changed while
        // they were copied. So there was a moment at which the entry was in the tree, and a `Ref`
        // to the node, which borrows the guard, was there before.
        unsafe { Entry::new(kind, word, guard) }
    }

    /// The value in this entry, which is of the kind value.
    #[inline]
    pub(crate) fn value(&self, word: Word, guard: &'g Guard) -> V::Ref<'g> {
        // SAFETY: the word comes from `entry` or from the tail that it leads to; see there.
        unsafe { word.value::<V>(guard) }
    }
}

impl Item {
    #[inline]
    pub(crate) fn part(&self) -> Part {
        Part { slice: self.slice, class: class(self.kind) }
    }
}

impl<'g, V> Entry<'g, V> {
    /// # Safety
    ///
    /// Since the guard is held there was a moment at which a slot in use, of a node in the tree,
    /// had this kind and this word.
    #[inline]
    pub(super) unsafe fn new(kind: u64, word: Word, guard: &'g Guard) -> Self {
        match kind {
            // SAFETY: slots of this kind hold tails' words. Tails are retired after their slot has
            // changed.
            kind::TAIL => Self::Tail(unsafe { Tail::follow(word, guard) }),
            // SAFETY: slots of this kind hold layers' words. Layers are retired after their slot
            // has changed.
            kind::LAYER => Self::Layer(unsafe { word.follow(guard) }),
            _ => Self::Value(word),
        }
    }
}
