//! Interior nodes.

use super::version::VersionWord;
use super::{Layer, Locked, Node, WIDTH};
use crate::memory::{Guard, Ref, Word};
use crate::sync::{Backoff, Ordering};

impl<V: 'static> Layer<V> {
    /// The border node that the interior nodes give for this slice. The right one is this node, or
    /// right of it; or else the caller sees that it is astray and starts again.
    #[inline]
    pub(crate) fn descend<'g>(&self, slice: u64, guard: &'g Guard) -> Ref<'g, Node<V>> {
        let mut backoff = Backoff::new();
        let mut node = self.root(guard);
        while !node.is_border() {
            node = match node.child(slice, guard) {
                Some(child) => child,
                None => {
                    backoff.wait();
                    self.root(guard)
                }
            };
            node.prefetch();
        }
        node
    }
}

impl<'g, V: 'static> Ref<'g, Node<V>> {
    /// The child of this interior node for the slice. Nothing if the node has left the tree.
    #[inline]
    pub(crate) fn child(self, slice: u64, guard: &'g Guard) -> Option<Self> {
        loop {
            let version = self.stable();
            if version.is_deleted() {
                return None;
            }
            let count = self.count();
            // Compares all keys, also those not in use: without branches that depend on the data
            // this is faster than a binary search.
            let smaller: usize =
                self.keys.iter().map(|key| usize::from(key.load(Ordering::Relaxed) <= slice)).sum();
            let child = self.link(smaller.min(count), guard);
            if self.is_still(version) {
                return child;
            }
        }
    }

    /// All children of this interior node. The caller keeps it from changing.
    pub(crate) fn children(self, guard: &'g Guard) -> impl Iterator<Item = Self> {
        (0..=self.count()).filter_map(move |at| self.link(at, guard))
    }

    /// The place of this child, as far as can be seen without a lock.
    pub(crate) fn seen_at(self, child: Self, guard: &'g Guard) -> Option<usize> {
        (0..=WIDTH).find(|&at| self.link(at, guard) == Some(child))
    }

    /// Brings the child at this place into the cache, if there is one.
    #[inline]
    pub(crate) fn prefetch_child(self, at: usize, guard: &'g Guard) {
        if at <= WIDTH
            && let Some(child) = self.link(at, guard)
        {
            child.prefetch();
        }
    }

    /// The child at this place.
    #[inline]
    pub(super) fn link(self, at: usize, guard: &'g Guard) -> Option<Self> {
        let word = Word::load(&self.words[at]);
        // SAFETY: the words of interior nodes lead to children or nowhere. A child is retired after
        // all words that lead to it have been overwritten (`Locked::remove_child`), so it was not
        // retired when the guard was taken.
        (!word.is_null()).then(|| unsafe { word.follow(guard) })
    }
}

impl<V: 'static> Node<V> {
    /// Keys of this interior node. It has one child more.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.order.load(Ordering::Relaxed) as usize
    }

    pub(super) fn key(&self, at: usize) -> u64 {
        self.keys[at].load(Ordering::Relaxed)
    }

    fn set_key(&self, at: usize, key: u64) {
        self.keys[at].store(key, Ordering::Relaxed);
    }

    fn set_count(&self, count: usize) {
        self.order.store(count as u64, Ordering::Relaxed);
        // So that `child` does not count them.
        self.keys[count..].iter().for_each(|key| key.store(u64::MAX, Ordering::Relaxed));
        self.words[count + 1..].iter().for_each(|word| Word::NULL.store(word));
    }

    fn interior() -> Self {
        let node = Self::new(VersionWord::locked(false), 0, 0, 0);
        node.set_count(0);
        node
    }
}

impl<'g, V: 'static> Locked<'g, V> {
    /// A new interior node, which no link leads to, with two children. The caller holds the locks
    /// of both, and both have no parent.
    pub(crate) fn parent_of(left: &Self, key: u64, right: &Self, guard: &'g Guard) -> Self {
        let parent = Self::made(Ref::allocate(Node::interior(), guard));
        Word::of(left.node()).store(&parent.words[0]);
        Word::of(right.node()).store(&parent.words[1]);
        parent.order.store(1, Ordering::Relaxed);
        parent.set_key(0, key);
        left.set_parent(Some(parent.node()));
        right.set_parent(Some(parent.node()));
        parent
    }

    /// Locks the parent. Nothing if this node is the layer's root.
    pub(crate) fn lock_parent(&self, guard: &'g Guard) -> Option<Self> {
        loop {
            let parent = Locked::lock(self.parent(guard)?);
            // Another thread may have moved this node meanwhile.
            if self.parent(guard) == Some(parent.node()) {
                return Some(parent);
            }
        }
    }

    /// The place of this child.
    ///
    /// # Panics
    ///
    /// If it is not a child. The caller holds both locks, and the child's link leads here.
    pub(crate) fn place_of(&self, child: Ref<'g, Node<V>>, guard: &'g Guard) -> usize {
        let mut places = 0..=self.count();
        places
            .find(|&at| self.node().link(at, guard) == Some(child))
            .expect("a node is a child of its parent")
    }

    /// Takes `right`, whose slices begin with `key`, as the child after `left`. If the node is full,
    /// the node splits. Then returns the upper half, and the first slice that it leads to.
    pub(crate) fn adopt(
        &mut self,
        left: &Self,
        key: u64,
        right: &Self,
        guard: &'g Guard,
    ) -> Option<(u64, Self)> {
        let (count, at) = (self.count(), self.place_of(left.node(), guard));
        self.begin();
        if count < WIDTH {
            right.set_parent(Some(self.node()));
            self.shift_in(at, key, right.node(), guard);
            return None;
        }
        let mut keys: Vec<u64> = (0..count).map(|at| self.key(at)).collect();
        let mut children: Vec<_> =
            (0..=count).filter_map(|at| self.node().link(at, guard)).collect();
        keys.insert(at, key);
        children.insert(at + 1, right.node());
        let middle = keys.len() / 2;
        let upper = Self::made(Ref::allocate(Node::interior(), guard));
        upper.fill(&keys[middle + 1..], &children[middle + 1..]);
        self.fill(&keys[..middle], &children[..=middle]);
        self.end();
        Some((keys[middle], upper))
    }

    /// Removes the child at this place, and the key between it and its neighbor.
    pub(crate) fn remove_child(&mut self, at: usize, guard: &'g Guard) {
        let count = self.count();
        debug_assert!(count > 0 && at <= count);
        self.begin();
        for place in at.saturating_sub(1)..count - 1 {
            self.set_key(place, self.key(place + 1));
        }
        for place in at..count {
            let child = self.node().link(place + 1, guard).map_or(Word::NULL, Word::of);
            child.store(&self.words[place]);
        }
        self.set_count(count - 1);
    }

    /// Keys of this interior node.
    pub(crate) fn keys(&self) -> usize {
        self.count()
    }

    pub(crate) fn first_key(&self) -> u64 {
        self.key(0)
    }

    /// The first child.
    pub(crate) fn first_child(&self, guard: &'g Guard) -> Option<Ref<'g, Node<V>>> {
        self.node().link(0, guard)
    }

    /// Changes the key before the child at this place, which is not the first.
    pub(crate) fn set_key_before(&mut self, at: usize, key: u64) {
        // Readers see the old key or the new one.
        self.set_key(at - 1, key);
    }

    /// Takes the interior node out of the tree. Its last child has left, or has become the root.
    pub(crate) fn delete_interior(&mut self) {
        self.begin();
        Word::NULL.store(&self.words[0]);
        self.end_deleted();
    }

    fn shift_in(&self, at: usize, key: u64, child: Ref<'g, Node<V>>, guard: &'g Guard) {
        let count = self.count();
        for place in (at..count).rev() {
            self.set_key(place + 1, self.key(place));
            let moved = self.node().link(place + 1, guard).map_or(Word::NULL, Word::of);
            moved.store(&self.words[place + 2]);
        }
        self.set_key(at, key);
        Word::of(child).store(&self.words[at + 1]);
        self.order.store(count as u64 + 1, Ordering::Relaxed);
    }

    /// Replaces all keys and children. Both lists were this node's or those of its other half.
    fn fill(&self, keys: &[u64], children: &[Ref<'g, Node<V>>]) {
        debug_assert_eq!(children.len(), keys.len() + 1);
        for (place, &key) in keys.iter().enumerate() {
            self.set_key(place, key);
        }
        for (place, &child) in children.iter().enumerate() {
            Word::of(child).store(&self.words[place]);
            child.set_parent(Some(self.node()));
        }
        self.set_count(keys.len());
    }
}
