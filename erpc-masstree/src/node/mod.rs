//! Nodes, and what a reader or the holder of a node's lock does with one node.
//!
//! Border nodes hold the entries of a layer and form a list in the order of keys. Each border node
//! says itself which slices belong to it: those from `low` to `high`. At each moment every slice
//! belongs to exactly one border node of the layer. Interior nodes lead to the border nodes, as
//! hints: a reader who is led to a node left of the right one follows the list, and a reader who is
//! led elsewhere starts again. So the correctness of reads depends on border nodes only, as in
//! B-link trees (Lehman, Yao, TODS'81).

mod border;
mod interior;
mod locked;
mod permutation;
mod version;

pub(crate) use border::{Entry, Item, Look, Snapshot};
pub(crate) use locked::Locked;
pub(crate) use permutation::Permutation;
pub(crate) use version::Version;

use std::marker::PhantomData;

use version::VersionWord;

use crate::memory::{Guard, Link, Ref, Word, prefetch_lines};
use crate::sync::{AtomicPtr, AtomicU64, Ordering};

/// Entries of a border node, and keys of an interior node. Must exceed the number of keys that can
/// have the same slice in one layer, 10, because these stay in one node. Fewer under loom, so that
/// nodes split early; there only two keys may share a slice.
pub(crate) const WIDTH: usize = if cfg!(loom) { 3 } else { 15 };

/// A layer: the B+-tree of all keys that have the same slices before.
#[derive(Debug)]
pub(crate) struct Layer<V> {
    /// Changed by the holder of the present root's lock.
    root: Link<Node<V>>,
}

/// A border node or an interior node: five cache lines.
///
/// ```text
/// line 0     version, order, kinds, low, high, next, prev, parent
/// lines 1-2  keys
/// lines 3-4  words
/// ```
///
/// The holder of the lock changes all fields but two: `prev` is changed by the holder of the lock of
/// the left neighbor, and `parent` by the holder of the lock of the present parent.
#[repr(C, align(64))]
#[derive(Debug)]
pub(crate) struct Node<V> {
    version: VersionWord,
    /// Of a border node: which slots are in use, in which order. Of an interior node: the number of
    /// keys.
    order: AtomicU64,
    /// Of a border node: 4 bits for each slot; see [`kind`].
    kinds: AtomicU64,
    /// Of a border node: the first slice that belongs to it. Constant.
    low: u64,
    /// Of a border node: the last slice that belongs to it.
    high: AtomicU64,
    next: Link<Self>,
    prev: Link<Self>,
    /// Nothing if this is the layer's root, and after the node has left the layer.
    parent: Link<Self>,
    /// Of a border node: the entries' slices. Of an interior node: keys in order; the child after a
    /// key leads to that slice and larger ones.
    keys: [AtomicU64; WIDTH],
    /// So that `words` begins with a cache line.
    _free: u64,
    /// Of a border node: the entries' values, tails or layers. Of an interior node: the children,
    /// one more than keys.
    words: [AtomicPtr<()>; WIDTH + 1],
    values: PhantomData<V>,
}

#[cfg(not(loom))]
const _: () = assert!(size_of::<Node<u64>>() == 5 * 64);

/// What a slot of a border node holds: a key of 0 to 8 bytes in this layer with its value, or one of
/// these.
pub(crate) mod kind {
    /// The only key with this slice that goes on. The word leads to the rest of it.
    pub(crate) const TAIL: u64 = 9;
    /// All keys with this slice that go on. The word leads to their layer.
    pub(crate) const LAYER: u64 = 10;
}

impl<V: 'static> Layer<V> {
    /// A layer whose only node is this border node.
    pub(crate) fn new(root: Ref<'_, Node<V>>) -> Self {
        Self { root: Link::new(Some(root)) }
    }

    #[inline]
    pub(crate) fn root<'g>(&self, guard: &'g Guard) -> Ref<'g, Node<V>> {
        self.root.load(guard).expect("a layer has a root from the beginning")
    }

    /// The caller holds the lock of the present root.
    pub(crate) fn set_root(&self, root: Ref<'_, Node<V>>) {
        self.root.store(Some(root));
    }
}

impl<V: 'static> Node<V> {
    /// A border node without entries.
    pub(crate) fn border(low: u64, high: u64) -> Self {
        Self::new(VersionWord::new(true), Permutation::EMPTY.0, low, high)
    }

    fn new(version: VersionWord, order: u64, low: u64, high: u64) -> Self {
        Self {
            version,
            order: AtomicU64::new(order),
            kinds: AtomicU64::new(0),
            low,
            high: AtomicU64::new(high),
            next: Link::new(None),
            prev: Link::new(None),
            parent: Link::new(None),
            keys: [(); WIDTH].map(|()| AtomicU64::new(0)),
            _free: 0,
            words: [(); WIDTH + 1].map(|()| Word::NULL.atomic()),
            values: PhantomData,
        }
    }

    #[inline]
    pub(crate) fn stable(&self) -> Version {
        self.version.stable()
    }

    #[inline]
    pub(crate) fn is_still(&self, version: Version) -> bool {
        self.version.is_still(version)
    }

    #[inline]
    pub(crate) fn is_border(&self) -> bool {
        self.version.current().is_border()
    }

    #[inline]
    pub(crate) fn low(&self) -> u64 {
        self.low
    }

    #[inline]
    pub(crate) fn high(&self) -> u64 {
        self.high.load(Ordering::Relaxed)
    }

    #[inline]
    pub(crate) fn next<'g>(&self, guard: &'g Guard) -> Option<Ref<'g, Self>> {
        self.next.load(guard)
    }

    pub(crate) fn prev<'g>(&self, guard: &'g Guard) -> Option<Ref<'g, Self>> {
        self.prev.load(guard)
    }

    #[inline]
    pub(crate) fn parent<'g>(&self, guard: &'g Guard) -> Option<Ref<'g, Self>> {
        self.parent.load(guard)
    }

    /// The caller holds the lock of the left neighbor.
    pub(crate) fn set_prev(&self, prev: Option<Ref<'_, Self>>) {
        self.prev.store(prev);
    }

    /// The caller holds the lock of the present parent, or of this node if it has none.
    pub(crate) fn set_parent(&self, parent: Option<Ref<'_, Self>>) {
        self.parent.store(parent);
    }
}

/// For the check of a whole tree.
#[cfg(test)]
impl<V: 'static> Node<V> {
    /// Keys of an interior node.
    pub(crate) fn separators(&self) -> Vec<u64> {
        (0..self.count()).map(|at| self.key(at)).collect()
    }
}

impl<V: 'static> Ref<'_, Node<V>> {
    /// Brings all of the node into the cache.
    #[inline]
    pub(crate) fn prefetch(self) {
        prefetch_lines(self.address(), size_of::<Node<V>>());
    }
}
