//! Received batches.

use super::frame::{Items, item};
use crate::buf::MsgBuf;

/// A batch of items in the message that brought them. Items are read in place.
#[derive(Debug)]
pub struct Batch {
    message: MsgBuf,
    /// Offset in the message of the next item's length field.
    at: usize,
    left: u32,
}

impl Batch {
    /// The batch of `items`, as found by a parser, in a frame that begins at byte `frame` of
    /// `message`.
    #[must_use]
    pub fn new(message: MsgBuf, frame: usize, items: Items) -> Self {
        Self { message, at: frame + items.from, left: items.count }
    }

    /// The next item; `None` after the last.
    #[inline]
    pub fn next_item(&mut self) -> Option<&[u8]> {
        self.left = self.left.checked_sub(1)?;
        let range = item(self.message.as_slice(), self.at)?;
        self.at = range.end;
        self.message.as_slice().get(range)
    }

    /// Number of unread items.
    #[must_use]
    #[inline]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Bytes of memory that the message occupies, bookkeeping included.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.message.footprint()
    }

    /// The message, so that the caller can reuse its memory.
    #[must_use]
    pub fn into_message(self) -> MsgBuf {
        self.message
    }
}
