//! Reads of single keys.

use super::Masstree;
use crate::key::{Part, SLICE};
use crate::memory::{Guard, Value};
use crate::node::Look;
use crate::sync::Backoff;

impl<V: Value> Masstree<V> {
    /// The value of a key. `None` also for a key that is longer than [`MAX_KEY`](crate::MAX_KEY).
    ///
    /// Touches at most one node per level of each layer that the key passes through. To read several
    /// keys, [`get_many`](Self::get_many) is faster.
    #[inline]
    pub fn get<'g>(&'g self, key: &[u8], guard: &'g Guard) -> Option<V::Ref<'g>> {
        let mut backoff = Backoff::new();
        'again: loop {
            let (mut layer, mut rest) = (self.first(guard), key);
            loop {
                match layer.descend(Part::of(rest).slice, guard).look(rest, guard) {
                    Look::Value(value) => return Some(value),
                    Look::Absent => return None,
                    Look::Layer(next) => (layer, rest) = (next, &rest[SLICE..]),
                    Look::Astray => {
                        backoff.wait();
                        continue 'again;
                    }
                }
            }
        }
    }
}
