//! Items as they came in.

use super::frame::{Items, item};
use crate::buf::MsgBuf;

/// A batch of items, in the message that brought them. Each is read where it lies.
#[derive(Debug)]
pub struct Batch {
    message: MsgBuf,
    /// Where in the message the next item's length stands.
    at: usize,
    left: u32,
}

impl Batch {
    /// The `items` of a frame that begins `frame` bytes into `message`, as a parser has found them.
    #[must_use]
    pub fn new(message: MsgBuf, frame: usize, items: Items) -> Self {
        Self { message, at: frame + items.from, left: items.count }
    }

    /// The next item.
    #[inline]
    pub fn next_item(&mut self) -> Option<&[u8]> {
        self.left = self.left.checked_sub(1)?;
        let range = item(self.message.as_slice(), self.at)?;
        self.at = range.end;
        self.message.as_slice().get(range)
    }

    /// How many items have not been read.
    #[must_use]
    #[inline]
    pub fn left(&self) -> u32 {
        self.left
    }

    /// Bytes of memory that the message takes.
    #[must_use]
    pub fn footprint(&self) -> usize {
        self.message.footprint()
    }

    /// The message, for its memory.
    #[must_use]
    pub fn into_message(self) -> MsgBuf {
        self.message
    }
}
