//! The operations.

mod batch;
#[expect(unsafe_code, reason = "frees nodes that nobody else can reach")]
mod free;
#[expect(unsafe_code, reason = "retires nodes that have left the tree")]
mod prune;
mod put;
mod read;
mod remove;
mod scan;

pub use batch::BATCH;
pub use scan::Scan;

use std::fmt;
use std::marker::PhantomData;

use crate::key::Part;
use crate::memory::{Guard, Link, Ref, Value, pin};
use crate::mutants::mutant;
use crate::node::{Layer, Locked, Look, Node};
use crate::sync::Backoff;

/// An ordered map from byte strings of up to [`MAX_KEY`](crate::MAX_KEY) bytes to values.
///
/// Any number of threads may call all operations at the same time. Reads and scans take no lock,
/// write no shared memory, and never wait for a writer that only inserts or replaces. They wait
/// while a writer splits, merges or removes from the one node that they look at. Writers lock the
/// nodes that they change.
///
/// `get`, `put` and `remove` are linearizable. A [`Scan`] sees each border node at one moment, but
/// different nodes at different moments: see there.
///
/// Every operation takes a [`Guard`], which keeps what the operation returns; see [`pin`].
///
/// ```
/// use erpc_masstree::{Masstree, pin};
///
/// let tree = Masstree::<Box<String>>::new();
/// let guard = pin();
/// tree.put(b"beta", Box::new("2".to_owned()), &guard)?;
/// tree.put(b"alpha", Box::new("1".to_owned()), &guard)?;
///
/// let mut scan = tree.scan((b"a".as_slice())..(b"z".as_slice()), &guard);
/// assert_eq!(scan.next(), Some((b"alpha".as_slice(), &"1".to_owned())));
/// assert_eq!(tree.remove(b"alpha", &guard), Some(&"1".to_owned()));
/// assert_eq!(tree.get(b"alpha", &guard), None);
/// # Ok::<(), erpc_masstree::KeyTooLong>(())
/// ```
pub struct Masstree<V: Value> {
    /// The layer of the first slices. Always there.
    first: Link<Layer<V>>,
    values: PhantomData<V>,
}

impl<V: Value> Masstree<V> {
    /// A map without keys. It takes one node of 320 bytes.
    #[must_use]
    pub fn new() -> Self {
        let guard = pin();
        let root = Ref::allocate(Node::border(0, u64::MAX), &guard);
        let first = Link::new(Some(Ref::allocate(Layer::new(root), &guard)));
        Self { first, values: PhantomData }
    }

    #[inline]
    pub(crate) fn first<'g>(&self, guard: &'g Guard) -> Ref<'g, Layer<V>> {
        self.first.load(guard).expect("the first layer is always there")
    }

    /// The layer of the keys that begin with the first `depth` slices of this one. Nothing if there
    /// is none.
    fn layer_at<'g>(
        &self,
        key: &[u8],
        depth: usize,
        guard: &'g Guard,
    ) -> Option<Ref<'g, Layer<V>>> {
        let mut backoff = Backoff::new();
        'again: loop {
            let mut layer = self.first(guard);
            for rest in (0..depth).map(|depth| &key[crate::key::SLICE * depth..]) {
                layer = match layer.descend(Part::of(rest).slice, guard).look(rest, guard) {
                    Look::Layer(next) => next,
                    Look::Absent | Look::Value(_) => return None,
                    Look::Astray => {
                        backoff.wait();
                        continue 'again;
                    }
                };
            }
            return Some(layer);
        }
    }
}

/// Locks the border node that the slice belongs to: this one, or one right of it. Nothing if the
/// writer is astray.
fn lock_border<'g, V: Value>(
    node: Ref<'g, Node<V>>,
    slice: u64,
    guard: &'g Guard,
) -> Option<Locked<'g, V>> {
    let mut node = node;
    loop {
        let locked = Locked::lock(node);
        if locked.is_deleted() && !mutant!(DeletedLocked) || slice < locked.low() {
            return None;
        }
        if slice <= locked.high() {
            return Some(locked);
        }
        node = locked.next(guard)?;
    }
}

impl<V: Value> Default for Masstree<V> {
    fn default() -> Self {
        Self::new()
    }
}

impl<V: Value> fmt::Debug for Masstree<V> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Masstree").finish_non_exhaustive()
    }
}
