//! The endpoint's ends of streams, for tests of the pipes.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll};

#[cfg(loom)]
use super::Sink;
use super::Source;
use crate::buf::{MsgBuf, Pool};
use crate::protocol::CallError;
use crate::service::DecodeError;
use crate::stream::{Batch, Items};

/// Bytes in front of an item: its length.
const ITEM_HEAD: usize = 4;

/// A source of `count` batches with one item each. Then its stream waits for more, or ends.
pub(super) struct Batches {
    pool: RefCell<Pool>,
    /// Bytes of an item.
    len: usize,
    count: usize,
    /// Whether the stream ends after the last batch.
    ends: bool,
    /// Number of batches taken from the source.
    pub(super) taken: Cell<usize>,
    /// Number of batches whose memory came back.
    pub(super) read: Cell<usize>,
    /// Whether the reader was dropped.
    pub(super) dropped: Cell<bool>,
}

impl Batches {
    pub(super) fn new(len: usize, count: usize) -> Self {
        Self {
            pool: RefCell::new(Pool::new(16 << 20)),
            len,
            count,
            ends: false,
            taken: Cell::new(0),
            read: Cell::new(0),
            dropped: Cell::new(false),
        }
    }

    /// The same source, which ends after its last batch.
    #[cfg(loom)]
    pub(super) fn ending(self) -> Self {
        Self { ends: true, ..self }
    }
}

impl Source for Batches {
    fn poll_batch(&self, _: &Context<'_>) -> Poll<Result<Option<Batch>, CallError>> {
        if self.taken.get() == self.count {
            return if self.ends { Poll::Ready(Ok(None)) } else { Poll::Pending };
        }
        self.taken.set(self.taken.get() + 1);
        let mut message = self.pool.borrow_mut().alloc(ITEM_HEAD + self.len).expect("memory");
        message.resize(ITEM_HEAD + self.len);
        let head = (self.len as u32).to_le_bytes();
        message.as_mut_slice()[..ITEM_HEAD].copy_from_slice(&head);
        let items = Items { count: 1, from: 0, to: ITEM_HEAD + self.len };
        Poll::Ready(Ok(Some(Batch::new(message, 0, items))))
    }

    fn batch_read(&self, memory: MsgBuf) {
        self.read.set(self.read.get() + 1);
        self.pool.borrow_mut().recycle(memory);
    }

    fn drop_reader(&self) {
        self.dropped.set(true);
    }

    fn malformed(&self, _: &DecodeError) -> CallError {
        unreachable!("a pipe reports malformed items itself")
    }
}

/// A sink that counts its items.
#[cfg(loom)]
#[derive(Default)]
pub(super) struct Counts {
    pub(super) items: Cell<usize>,
    /// Whether the writer was dropped.
    pub(super) ended: Cell<bool>,
}

#[cfg(loom)]
impl Sink for Counts {
    fn poll_put(
        &self,
        _: &Context<'_>,
        _: usize,
        _: &mut dyn FnMut(&mut &mut [u8]),
    ) -> Poll<Result<(), CallError>> {
        self.items.set(self.items.get() + 1);
        Poll::Ready(Ok(()))
    }

    fn is_closed(&self) -> bool {
        false
    }

    fn drop_writer(&self) {
        self.ended.set(true);
    }
}
