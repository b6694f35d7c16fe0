//! Insertion and replacement.

use super::{Masstree, lock_border};
use crate::key::{self, KeyTooLong, Part, SLICE};
use crate::memory::{Guard, Ref, Value, Word};
use crate::mutants::mutant;
use crate::node::{Entry, Layer, Locked, Look};
use crate::sync::Backoff;

impl<V: Value> Masstree<V> {
    /// Sets the value of a key. Returns the value that it replaces.
    ///
    /// # Errors
    ///
    /// The key is longer than [`MAX_KEY`](crate::MAX_KEY). The map is then as before.
    pub fn put<'g>(
        &'g self,
        key: &[u8],
        value: V,
        guard: &'g Guard,
    ) -> Result<Option<V::Ref<'g>>, KeyTooLong> {
        key::check(key)?;
        let value = Word::of_value(value);
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut layer, mut rest) = (self.first(guard), key);
            loop {
                let part = Part::of(rest);
                let border = layer.descend(part.slice, guard);
                // Passes through layers without a lock.
                if part.is_long()
                    && let Look::Layer(next) = border.look(rest, guard)
                {
                    (layer, rest) = (next, &rest[SLICE..]);
                    continue;
                }
                let Some(mut border) = lock_border(border, part.slice, guard) else {
                    backoff.wait();
                    continue 'again;
                };
                match border.search(part) {
                    Err(position) => {
                        insert(layer, border, position, rest, value, guard);
                        return Ok(None);
                    }
                    Ok(position) => match border.entry(position, guard) {
                        Entry::Layer(next) => (layer, rest) = (next, &rest[SLICE..]),
                        Entry::Tail(tail) if tail.bytes() != &rest[SLICE..] => {
                            border.make_layer(position, tail, rest, value, guard);
                            return Ok(None);
                        }
                        Entry::Tail(_) | Entry::Value(_) => {
                            let old = border.replace(position, value, guard);
                            drop(border);
                            return Ok(Some(old.retire::<V>(guard)));
                        }
                    },
                }
            }
        }
    }
}

fn insert<'g, V: Value>(
    layer: Ref<'g, Layer<V>>,
    mut border: Locked<'g, V>,
    position: usize,
    rest: &[u8],
    value: Word,
    guard: &'g Guard,
) {
    if !border.is_full() {
        return border.insert(position, rest, value, guard);
    }
    let right = border.split(position, rest, value, guard);
    let key = right.low();
    grow(layer, border, key, right, guard);
}

/// Makes `right`, which has split off from `left`, a child of the parent of `left`. Both stay locked
/// until then, so that neither is removed before. Goes on with the parent if that splits too.
fn grow<'g, V: Value>(
    layer: Ref<'g, Layer<V>>,
    mut left: Locked<'g, V>,
    mut key: u64,
    mut right: Locked<'g, V>,
    guard: &'g Guard,
) {
    if mutant!(UnlockedBeforeParent) {
        let nodes = (left.node(), right.node());
        drop((left, right));
        (left, right) = (Locked::lock(nodes.0), Locked::lock(nodes.1));
    }
    loop {
        let Some(mut parent) = left.lock_parent(guard) else {
            let root = Locked::parent_of(&left, key, &right, guard);
            layer.set_root(root.node());
            return;
        };
        let Some(split) = parent.adopt(&left, key, &right, guard) else { return };
        (key, right) = split;
        left = parent;
    }
}
