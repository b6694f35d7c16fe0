//! Removal of keys.

use super::{Masstree, lock_border};
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Value};
use crate::node::{Entry, Look};
use crate::sync::Backoff;

impl<V: Value> Masstree<V> {
    /// Removes a key. Returns the value that it had, or `None` if it was absent.
    ///
    /// Nodes and layers that have no entries left leave the tree, and their memory is freed after
    /// the last guard of this time is dropped.
    pub fn remove<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Option<V::Ref<'g>> {
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut layer, mut rest, mut depth) = (self.first(guard), key, 0);
            loop {
                let part = Part::of(rest);
                let border = layer.descend(part.slice, guard);
                match border.look(rest, guard) {
                    Look::Layer(next) => {
                        (layer, rest, depth) = (next, &rest[SLICE..], depth + 1);
                        continue;
                    }
                    Look::Absent => return None,
                    Look::Value(_) => {}
                    Look::Astray => {
                        backoff.wait();
                        continue 'again;
                    }
                }
                let Some(mut border) = lock_border(border, part.slice, guard) else {
                    backoff.wait();
                    continue 'again;
                };
                let Ok(position) = border.search(part) else { return None };
                match border.entry(position, guard) {
                    // A layer since the look.
                    Entry::Layer(next) => {
                        (layer, rest, depth) = (next, &rest[SLICE..], depth + 1);
                        continue;
                    }
                    Entry::Tail(tail) if tail.bytes() != &rest[SLICE..] => return None,
                    Entry::Tail(_) | Entry::Value(_) => {}
                }
                let removed = border.remove(position, guard);
                let is_empty = border.is_empty();
                drop(border);
                if is_empty {
                    self.prune(key, depth, guard);
                }
                return Some(removed.retire::<V>(guard));
            }
        }
    }
}
