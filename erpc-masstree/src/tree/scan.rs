//! Ordered scans.

use std::cmp::Ordering;
use std::fmt;
use std::ops::{Bound, RangeBounds};

use super::Masstree;
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Ref, Tail, Value};
use crate::mutants::mutant;
use crate::node::{Entry, Item, Layer, Node, Snapshot};
use crate::sync::Backoff;

/// Keys and values in order. See [`Masstree::scan`].
pub struct Scan<'g, V: Value> {
    tree: &'g Masstree<V>,
    guard: &'g Guard,
    direction: Direction,
    /// Where the scan goes on if it has to find its place again, unless `key` has been returned.
    near: Bound<Vec<u8>>,
    /// Where it ends.
    far: Bound<Vec<u8>>,
    /// The slices of the layers above the present one, and then the rest of the key that was
    /// returned last.
    key: Vec<u8>,
    /// Whether `key` is the last key, and not only a prefix.
    has_key: bool,
    /// Length of the slices of the layers above the present one.
    prefix: usize,
    /// Where the scan is in each layer, from the first one down. Empty before the scan has begun,
    /// and after it has ended.
    levels: Vec<Level<'g, V>>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Direction {
    Forward,
    Backward,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// The place of the next key is not known: at the beginning, and after another thread has
    /// removed what the scan looked at.
    Seek,
    Walk,
    End,
}

/// The present border node of a layer.
struct Level<'g, V> {
    layer: Ref<'g, Layer<V>>,
    border: Snapshot<'g, V>,
    /// Entries that the scan has passed, in its direction.
    passed: usize,
    /// The parent of the border node, and the border node's place there. Only for prefetches, so it
    /// does not matter whether they have changed.
    above: Option<(Ref<'g, Node<V>>, usize)>,
}

/// How many border nodes further than the present one are prefetched. The way from one to the next
/// leads through memory, so one or two would arrive too late.
const AHEAD: usize = 4;

/// The way to the next border node of a layer.
enum Step {
    Moved,
    /// This was the layer's last node.
    LayerEnds,
    /// The node or the layer has left the tree.
    Lost,
}

impl<V: Value> Masstree<V> {
    /// The keys within the bounds in ascending order, with their values.
    ///
    /// The scan is not one moment. It copies one border node after the other, of up to 15 entries.
    /// All entries of a node are of one moment, between the call of `scan` and the return of the
    /// first of them. So a key that is present all the time is returned once, one that is absent
    /// all the time is not, and keys ascend strictly. A key that is inserted or removed meanwhile
    /// may be returned or not.
    ///
    /// A scan may be dropped at any time. While it exists, `guard` keeps memory from being freed:
    /// for long scans, begin a new one after the last key from time to time.
    ///
    /// ```
    /// use std::ops::Bound;
    /// # use erpc_masstree::{Masstree, pin};
    /// # let (tree, guard) = (Masstree::<u64>::new(), pin());
    /// for (key, value) in [("a", 1), ("b", 2), ("c", 3)] {
    ///     tree.put(key.as_bytes(), value, &guard)?;
    /// }
    /// let after_a = (Bound::Excluded(b"a".as_slice()), Bound::Unbounded);
    /// let mut scan = tree.scan(after_a, &guard);
    /// while let Some((key, value)) = scan.next() {
    ///     println!("{key:?}: {value}");
    /// }
    /// # Ok::<(), erpc_masstree::KeyTooLong>(())
    /// ```
    pub fn scan<'g, 'b>(
        &'g self,
        bounds: impl RangeBounds<&'b [u8]>,
        guard: &'g Guard,
    ) -> Scan<'g, V> {
        let (start, end) = (own(bounds.start_bound()), own(bounds.end_bound()));
        self.start(Direction::Forward, start, end, guard)
    }

    /// The keys within the bounds in descending order, with their values. Otherwise like
    /// [`scan`](Self::scan).
    pub fn scan_back<'g, 'b>(
        &'g self,
        bounds: impl RangeBounds<&'b [u8]>,
        guard: &'g Guard,
    ) -> Scan<'g, V> {
        let (start, end) = (own(bounds.start_bound()), own(bounds.end_bound()));
        self.start(Direction::Backward, end, start, guard)
    }

    fn start<'g>(
        &'g self,
        direction: Direction,
        near: Bound<Vec<u8>>,
        far: Bound<Vec<u8>>,
        guard: &'g Guard,
    ) -> Scan<'g, V> {
        Scan {
            tree: self,
            guard,
            direction,
            near,
            far,
            key: Vec::new(),
            has_key: false,
            prefix: 0,
            levels: Vec::new(),
            state: State::Seek,
        }
    }
}

fn own(bound: Bound<&&[u8]>) -> Bound<Vec<u8>> {
    bound.map(|key| key.to_vec())
}

impl<'g, V: Value> Scan<'g, V> {
    /// The next key with its value. `None` after the last one.
    #[expect(clippy::should_implement_trait, reason = "the key is lent until the next call")]
    #[inline]
    pub fn next(&mut self) -> Option<(&[u8], V::Ref<'g>)> {
        let mut backoff = Backoff::new();
        loop {
            match self.state {
                State::Walk => {}
                State::End => return None,
                State::Seek => {
                    self.seek(&mut backoff);
                    continue;
                }
            }
            let Some(level) = self.levels.last_mut() else {
                self.state = State::End;
                return None;
            };
            let Some(at) = level.take(self.direction) else {
                self.leave_border();
                continue;
            };
            let (item, entry) = (level.border.items()[at], level.border.entry(at, self.guard));
            let value = match entry {
                Entry::Layer(layer) => {
                    self.enter(layer, item.slice);
                    continue;
                }
                Entry::Value(word) => {
                    self.set_key(&item, &[]);
                    word
                }
                Entry::Tail(tail) => {
                    self.set_key(&item, tail.bytes());
                    tail.value()
                }
            };
            if !self.is_within() {
                self.state = State::End;
                return None;
            }
            self.has_key = true;
            let level = self.levels.last().expect("it was there before");
            let value = level.border.value(value, self.guard);
            return Some((&self.key, value));
        }
    }

    /// Sets the key to that of an entry of the present layer.
    #[inline]
    fn set_key(&mut self, item: &Item, tail: &[u8]) {
        self.key.truncate(self.prefix);
        let bytes = item.slice.to_be_bytes();
        if item.kind as usize == SLICE {
            self.key.extend_from_slice(&bytes);
        } else {
            self.key.extend_from_slice(&bytes[..SLICE.min(item.kind as usize)]);
            self.key.extend_from_slice(tail);
        }
    }

    /// Whether the scan has not passed its far bound.
    #[inline]
    fn is_within(&self) -> bool {
        let (far, inclusive) = match &self.far {
            Bound::Unbounded => return true,
            Bound::Included(far) => (far, true),
            Bound::Excluded(far) => (far, false),
        };
        match self.direction.cmp(&self.key, far) {
            Ordering::Less => true,
            Ordering::Equal => inclusive,
            Ordering::Greater => false,
        }
    }

    /// Goes on in the next border node of the layer, or in the layer above.
    fn leave_border(&mut self) {
        let level = self.levels.last_mut().expect("the present layer");
        match level.step(self.direction, self.guard) {
            Step::Moved => {}
            Step::LayerEnds => {
                self.levels.pop();
                self.set_prefix(self.prefix.saturating_sub(SLICE));
            }
            Step::Lost if mutant!(ScanEndsAtDeleted) => self.state = State::End,
            Step::Lost => self.state = State::Seek,
        }
    }

    /// Goes on in the layer of the keys with this slice.
    fn enter(&mut self, layer: Ref<'g, Layer<V>>, slice: u64) {
        if self.push(layer, self.direction.first_slice()) {
            self.set_prefix(self.prefix);
            self.key.extend_from_slice(&slice.to_be_bytes());
            self.prefix += SLICE;
        } else {
            self.state = State::Seek;
        }
    }

    /// Cuts the key down to the prefix of another layer.
    fn set_prefix(&mut self, prefix: usize) {
        if self.has_key {
            self.near = Bound::Excluded(self.key.clone());
            self.has_key = false;
        }
        self.key.truncate(prefix);
        self.prefix = prefix;
    }

    /// Goes to the first key after the last one, or to the scan's beginning.
    fn seek(&mut self, backoff: &mut Backoff) {
        // Lost on the way: another thread is about to remove a node or a layer.
        if !self.levels.is_empty() {
            backoff.wait();
        }
        self.set_prefix(0);
        let mut from = std::mem::replace(&mut self.near, Bound::Unbounded);
        if mutant!(ScanRepeats)
            && let Bound::Excluded(key) = from
        {
            from = Bound::Included(key);
        }
        if self.find(&from) {
            self.state = State::Walk;
        }
        self.near = from;
    }

    /// Whether the place of the bound has been found.
    fn find(&mut self, from: &Bound<Vec<u8>>) -> bool {
        self.levels.clear();
        let first = self.tree.first(self.guard);
        let (mut rest, inclusive) = match from {
            Bound::Unbounded => return self.push(first, self.direction.first_slice()),
            Bound::Included(key) => (key.as_slice(), true),
            Bound::Excluded(key) => (key.as_slice(), false),
        };
        let mut layer = first;
        loop {
            let part = Part::of(rest);
            if !self.push(layer, part.slice) {
                return false;
            }
            let level = self.levels.last_mut().expect("just pushed");
            match level.pass_before(part, rest, inclusive, self.direction, self.guard) {
                None => return true,
                Some(below) => {
                    self.key.extend_from_slice(&rest[..SLICE]);
                    self.prefix += SLICE;
                    (layer, rest) = (below, &rest[SLICE..]);
                }
            }
        }
    }

    /// Begins a layer with the border node of this slice. Returns false if that is not found.
    fn push(&mut self, layer: Ref<'g, Layer<V>>, slice: u64) -> bool {
        self.levels.push(Level { layer, border: Snapshot::empty(), passed: 0, above: None });
        let level = self.levels.last_mut().expect("just pushed");
        let is_found = level.border.take(layer.descend(slice, self.guard), slice, self.guard);
        level.prefetch(self.direction, self.guard);
        is_found
    }
}

impl<'g, V: Value> Level<'g, V> {
    /// The next entry of the border node.
    #[inline]
    fn take(&mut self, direction: Direction) -> Option<usize> {
        let len = self.border.items().len();
        let at = direction.place(self.passed, len)?;
        self.passed += 1;
        Some(at)
    }

    /// Passes the entries before the bound, whose rest in this layer is `rest`. Returns the layer
    /// below in which the bound lies.
    fn pass_before(
        &mut self,
        part: Part,
        rest: &[u8],
        inclusive: bool,
        direction: Direction,
        guard: &'g Guard,
    ) -> Option<Ref<'g, Layer<V>>> {
        let len = self.border.items().len();
        while let Some(at) = direction.place(self.passed, len) {
            let order = direction.cmp(&self.border.items()[at].part(), &part);
            if order == Ordering::Greater {
                return None;
            }
            let order = match self.border.entry(at, guard) {
                _ if order == Ordering::Less => Ordering::Less,
                Entry::Layer(layer) => {
                    self.passed += 1;
                    return Some(layer);
                }
                Entry::Tail(tail) => direction.cmp_tail(tail, &rest[SLICE..]),
                Entry::Value(_) => Ordering::Equal,
            };
            if order == Ordering::Greater || order == Ordering::Equal && inclusive {
                return None;
            }
            self.passed += 1;
        }
        None
    }

    /// Goes to the next border node of the layer.
    fn step(&mut self, direction: Direction, guard: &'g Guard) -> Step {
        let (is_last, slice) = match direction {
            Direction::Forward => (self.border.high == u64::MAX, self.border.high.wrapping_add(1)),
            Direction::Backward => (self.border.low == 0, self.border.low.wrapping_sub(1)),
        };
        if is_last {
            return Step::LayerEnds;
        }
        self.passed = 0;
        // The neighbor, or another node if the neighbor has split or has left the tree.
        let neighbor = self.neighbor(direction);
        if !neighbor.is_some_and(|neighbor| self.border.take(neighbor, slice, guard)) {
            let node = self.layer.descend(slice, guard);
            if mutant!(ScanEndsAtDeleted) || !self.border.take(node, slice, guard) {
                return Step::Lost;
            }
        }
        // A node that has taken over the slices of its neighbor also has entries that the scan has
        // passed.
        while let Some(at) = direction.place(self.passed, self.border.items().len())
            && direction.cmp(&self.border.items()[at].slice, &slice) == Ordering::Less
            && !mutant!(ScanGoesBack)
        {
            self.passed += 1;
        }
        self.prefetch(direction, guard);
        Step::Moved
    }

    /// Prefetches border nodes further on, which the parent names.
    fn prefetch(&mut self, direction: Direction, guard: &'g Guard) {
        let Some((node, parent)) = self.border.node.and_then(|n| Some((n, n.parent(guard)?)))
        else {
            return;
        };
        let (place, from) = match self.above {
            Some((known, place)) if known == parent => (direction.after(place, 1), AHEAD),
            _ => (parent.seen_at(node, guard), 1),
        };
        self.above = place.map(|place| (parent, place));
        let Some(place) = place else { return };
        for distance in from..=AHEAD {
            if let Some(place) = direction.after(place, distance) {
                parent.prefetch_child(place, guard);
            }
        }
        // The next parent's children are not known yet.
        if let Some(neighbor) = self.neighbor(direction) {
            neighbor.prefetch();
        }
    }

    /// The next border node in this direction, as it was at the moment of the snapshot.
    fn neighbor(&self, direction: Direction) -> Option<Ref<'g, Node<V>>> {
        match direction {
            Direction::Forward => self.border.next,
            Direction::Backward => self.border.prev,
        }
    }
}

impl Direction {
    /// The slice with which a layer begins.
    fn first_slice(self) -> u64 {
        match self {
            Self::Forward => 0,
            Self::Backward => u64::MAX,
        }
    }

    /// The place in ascending order of the entry after `passed` ones, of `len`.
    #[inline]
    fn place(self, passed: usize, len: usize) -> Option<usize> {
        let left = len.checked_sub(passed + 1)?;
        Some(if self == Self::Forward { passed } else { left })
    }

    /// The place `distance` further on.
    fn after(self, place: usize, distance: usize) -> Option<usize> {
        match self {
            Self::Forward => Some(place + distance),
            Self::Backward => place.checked_sub(distance),
        }
    }

    /// The order in which the scan meets the two.
    fn cmp<T: Ord + ?Sized>(self, a: &T, b: &T) -> Ordering {
        match self {
            Self::Forward => a.cmp(b),
            Self::Backward => b.cmp(a),
        }
    }

    fn cmp_tail(self, tail: Tail<'_>, rest: &[u8]) -> Ordering {
        self.cmp(tail.bytes(), rest)
    }
}

impl<V: Value> fmt::Debug for Scan<'_, V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Scan").finish_non_exhaustive()
    }
}
