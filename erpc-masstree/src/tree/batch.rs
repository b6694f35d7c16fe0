//! Reads of many keys at once.

use super::Masstree;
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Ref, Value};
use crate::node::{Look, Node};

/// Keys whose reads are interleaved. More do not help: their lines exceed what a processor fetches
/// at a time.
pub const BATCH: usize = 16;

/// The read of one key.
struct Walk<'g, 'k, V> {
    node: Ref<'g, Node<V>>,
    key: &'k [u8],
    /// What is left of the key in the node's layer.
    rest: &'k [u8],
    slice: u64,
    /// The key's index.
    index: usize,
}

impl<V: Value> Masstree<V> {
    /// Reads keys in any number, and calls `found` with the index and the value of each, in any
    /// order.
    ///
    /// Up to [`BATCH`] reads take turns: each prefetches its next node and lets the others go on
    /// meanwhile, so their cache misses overlap. Each read is linearizable by itself; the batch is
    /// not one moment.
    ///
    /// ```
    /// # use erpc_masstree::{Masstree, pin};
    /// let (tree, guard) = (Masstree::<u64>::new(), pin());
    /// tree.put(b"b", 2, &guard)?;
    /// let mut values = [None; 2];
    /// tree.get_many(&["a", "b"], &guard, |index, value| values[index] = value);
    /// assert_eq!(values, [None, Some(2)]);
    /// # Ok::<(), erpc_masstree::KeyTooLong>(())
    /// ```
    #[inline]
    pub fn get_many<'g, K: AsRef<[u8]>>(
        &'g self,
        keys: &[K],
        guard: &'g Guard,
        mut found: impl FnMut(usize, Option<V::Ref<'g>>),
    ) {
        for (chunk, keys) in keys.chunks(BATCH).enumerate() {
            self.get_batch(keys, guard, |index, value| found(chunk * BATCH + index, value));
        }
    }

    /// Brings what reads of these keys touch into this processor's cache: the nodes, and the first
    /// 128 bytes of boxed values.
    ///
    /// For the hook of a server that sees a burst of requests before their handlers run.
    pub fn prefetch<K: AsRef<[u8]>>(&self, keys: &[K], guard: &Guard) {
        self.get_many(keys, guard, |_, value| value.into_iter().for_each(V::prefetch));
    }

    #[inline]
    fn get_batch<'g, K: AsRef<[u8]>>(
        &'g self,
        keys: &[K],
        guard: &'g Guard,
        mut found: impl FnMut(usize, Option<V::Ref<'g>>),
    ) {
        let root = self.first(guard).root(guard);
        let mut walks: [Option<Walk<'g, '_, V>>; BATCH] = [const { None }; BATCH];
        for (index, (walk, key)) in walks.iter_mut().zip(keys).enumerate() {
            let key = key.as_ref();
            *walk = Some(Walk { node: root, key, rest: key, slice: Part::of(key).slice, index });
        }
        let mut active = keys.len();
        while active > 0 {
            let mut at = 0;
            while at < active {
                let walk = walks[at].as_mut().expect("the first ones are active");
                match self.step(walk, guard) {
                    None => at += 1,
                    Some(value) => {
                        let index = walk.index;
                        active -= 1;
                        walks.swap(at, active);
                        found(index, value);
                    }
                }
            }
        }
    }

    /// Goes to the next node, which another round will find in the cache. Or else returns the
    /// result.
    #[inline]
    fn step<'g>(
        &'g self,
        walk: &mut Walk<'g, '_, V>,
        guard: &'g Guard,
    ) -> Option<Option<V::Ref<'g>>> {
        let next = if walk.node.is_border() {
            match walk.node.look(walk.rest, guard) {
                Look::Value(value) => return Some(Some(value)),
                Look::Absent => return Some(None),
                Look::Layer(layer) => {
                    walk.rest = &walk.rest[SLICE..];
                    walk.slice = Part::of(walk.rest).slice;
                    Some(layer.root(guard))
                }
                Look::Astray => None,
            }
        } else {
            walk.node.child(walk.slice, guard)
        };
        // Astray, which is rare. Starts again.
        let Some(next) = next else { return Some(self.get(walk.key, guard)) };
        next.prefetch();
        walk.node = next;
        None
    }
}
