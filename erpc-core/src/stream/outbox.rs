//! This side's items, gathered in batches.

use std::collections::VecDeque;

use bytes::BufMut;

use super::BATCH;
use super::frame::{FRAME_HEAD, ITEM_HEAD, frame_head};
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::mutants::mutant;
use crate::wire::extension::{EXTENSION_HEAD, put_extension};

/// Offset of the extension's `op` in a message.
const OP: usize = 2;

/// Initial size of a batch in bytes, frame included, until batches turn out to be larger. A reply
/// of this size fits the buffer that its slot keeps.
const SMALL: usize = 512;

/// Assumed limit of a message in bytes until the other side's limit is known. An endpoint that is
/// configured to accept less may refuse the first message.
const CAUTIOUS: usize = 1 << 10;

/// Items of one side that wait for calls to carry them.
#[derive(Debug)]
pub(super) struct Outbox {
    /// The entries of the first batch's extension.
    entries: Vec<u8>,
    /// Full batches that wait for a call to carry them.
    ready: VecDeque<Gather>,
    /// The batch to which items are added.
    open: Option<Gather>,
    /// The number of the next batch to be taken.
    seq: u32,
    /// Initial size of the next batch in bytes: the size of the batch last taken, rounded up to a
    /// power of two, from [`SMALL`] to `BATCH + SMALL`.
    room: usize,
    /// The largest message that the other side accepts, in bytes, once that is known.
    limit: Option<usize>,
    /// Bytes of the final status, which follow the items of the last batch. 0 at a client.
    tail: usize,
    /// True once the user adds no more items. Gathered batches are still sent.
    ended: bool,
    /// True once the last batch was taken.
    over: bool,
}

/// A batch taken out of an outbox.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) seq: u32,
    /// `None` for an end without items.
    pub(super) gather: Option<Gather>,
    /// True if this is the stream's last batch.
    pub(super) last: bool,
}

impl Outbox {
    pub(super) fn new(entries: Vec<u8>) -> Self {
        Self {
            entries,
            ready: VecDeque::new(),
            open: None,
            seq: 0,
            room: SMALL,
            limit: None,
            tail: 0,
            ended: false,
            over: false,
        }
    }

    /// Sets the entries of the first batch's extension. Must be called before the first item is
    /// added.
    pub(super) fn set_entries(&mut self, entries: Vec<u8>) {
        debug_assert!(self.is_first() && self.open.is_none(), "the first batch has begun");
        self.entries = entries;
    }

    /// Sets the largest message that the other side accepts, in bytes.
    pub(super) fn set_limit(&mut self, bytes: usize) {
        self.limit = Some(bytes);
    }

    /// If an item of `len` bytes is too large for the other side, the size of the largest item that
    /// can be sent. `None` if the item is small enough, or while the other side's limit is unknown.
    pub(super) fn too_large(&self, len: usize) -> Option<usize> {
        let most = self.limit?.saturating_sub(self.head() + ITEM_HEAD);
        (len > most).then_some(most)
    }

    /// Whether an item of `len` bytes may be added now, if `lanes` calls can each take a batch.
    /// While the other side's limit is unknown, the limit is [`CAUTIOUS`].
    pub(super) fn has_room(&self, len: usize, lanes: usize) -> bool {
        let known = self.limit.is_some() || self.head() + ITEM_HEAD + len <= CAUTIOUS;
        known && (self.joins(len) || self.open.is_none() || self.ready.len() < lanes)
    }

    /// Whether an item of `len` bytes fits the batch that is being gathered.
    fn joins(&self, len: usize) -> bool {
        let limit = self.limit.unwrap_or(CAUTIOUS);
        self.open.as_ref().is_some_and(|open| open.fits(len, limit))
    }

    /// Bytes in front of an item that is the first of the next batch.
    fn head(&self) -> usize {
        let entries = if self.is_first() { self.entries.len() } else { 0 };
        EXTENSION_HEAD + entries + FRAME_HEAD
    }

    /// Whether the next batch to be gathered is the stream's first.
    fn is_first(&self) -> bool {
        self.seq == 0 && self.ready.is_empty()
    }

    /// Adds an item of `len` bytes, which `encode` writes. The caller has checked that there is
    /// room.
    pub(super) fn put(
        &mut self,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        debug_assert!(!self.ended, "an item was added after the end");
        if !self.joins(len) {
            let full = self.open.take();
            self.ready.extend(full.filter(|_| !mutant!(StreamBatchLost)));
        }
        let first = self.is_first();
        let open = match &mut self.open {
            Some(open) => open,
            none => {
                let entries: &[u8] = if first { &self.entries } else { &[] };
                none.insert(Gather::new(entries, self.room.max(len), pool)?)
            }
        };
        open.put(len, encode, pool)
    }

    /// Ends the items. The final status adds `tail` bytes to the last batch.
    pub(super) fn end(&mut self, tail: usize) {
        (self.ended, self.tail) = (true, tail);
    }

    /// Drops all batches that were not taken, and ends the items. No item may be added afterwards.
    pub(super) fn abandon(&mut self) {
        self.ready.clear();
        self.open = None;
        (self.ended, self.over) = (true, true);
    }

    pub(super) fn is_ended(&self) -> bool {
        self.ended
    }

    /// Takes the next batch or the end; `None` if there is neither.
    pub(super) fn take(&mut self) -> Option<Taken> {
        let gather = self.ready.pop_front().or_else(|| self.open.take());
        let limit = self.limit.unwrap_or(CAUTIOUS);
        // If the final status does not fit after the items of this batch, the end is sent in a
        // batch of its own.
        let fits = |gather: &Gather| gather.message.len() + self.tail <= limit;
        let room = self.tail == 0 || gather.as_ref().is_none_or(fits);
        let empty = self.ready.is_empty() && self.open.is_none() || mutant!(StreamEndEarly);
        let last = self.ended && empty && room;
        if gather.is_none() && (!last || self.over) {
            return None;
        }
        if let Some(gather) = &gather {
            self.room = gather.message.len().next_power_of_two().clamp(SMALL, BATCH + SMALL);
        }
        self.over = last;
        Some(Taken { seq: self.skip(), gather, last })
    }

    /// Takes the next batch number. An OPEN without items takes one, too, although items may
    /// follow.
    pub(super) fn skip(&mut self) -> u32 {
        let seq = self.seq;
        self.seq = seq.wrapping_add(1);
        seq
    }

    /// A batch without items, for a [`Taken`] that has none. Batch 0 gets the entries of the
    /// extension.
    pub(super) fn empty(&self, seq: u32, pool: &mut Pool) -> Result<Gather, NoMemory> {
        Gather::new(if seq == 0 { &self.entries } else { &[] }, 0, pool)
    }
}

/// A message to which items are being added.
#[derive(Debug)]
pub(super) struct Gather {
    /// Extension, fixed part of the frame, and items.
    message: MsgBuf,
    /// Offset of the frame in the message.
    frame: usize,
    count: u32,
}

impl Gather {
    /// A message with room for `room` bytes in total. It grows when it needs more.
    pub(super) fn new(entries: &[u8], room: usize, pool: &mut Pool) -> Result<Self, NoMemory> {
        let frame = EXTENSION_HEAD + entries.len();
        let mut message = pool.alloc(room.max(frame + FRAME_HEAD))?;
        put_extension(0, entries, &mut message);
        message.put_slice(&[0; FRAME_HEAD]);
        Ok(Self { message, frame, count: 0 })
    }

    /// Whether the message may take another item of `len` bytes: its items stay within [`BATCH`]
    /// bytes, and the message stays within `limit` bytes. The first item always fits.
    fn fits(&self, len: usize, limit: usize) -> bool {
        let more = len.saturating_add(ITEM_HEAD);
        let there = self.message.len() - self.frame - FRAME_HEAD;
        self.count == 0
            || there.saturating_add(more) <= BATCH
                && self.message.len().saturating_add(more) <= limit
    }

    fn put(
        &mut self,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        self.reserve(len.saturating_add(ITEM_HEAD), pool)?;
        let at = self.message.len();
        self.message.resize(at + ITEM_HEAD + len);
        let (head, mut rest) = self.message.as_mut_slice()[at..].split_at_mut(ITEM_HEAD);
        encode(&mut rest);
        // Bytes that the codec did not write may belong to an older message and must not be sent.
        let written = len - rest.len();
        head.copy_from_slice(&(written as u32).to_le_bytes());
        self.message.resize(at + ITEM_HEAD + written);
        self.count += 1;
        Ok(())
    }

    /// Makes room for `more` bytes. Copies the message into a buffer of at least four times its
    /// length (at most a full batch), so a batch is copied only a few times, and only while batches
    /// grow.
    fn reserve(&mut self, more: usize, pool: &mut Pool) -> Result<(), NoMemory> {
        let there = self.message.len();
        let wanted = there.saturating_add(more);
        if wanted > self.message.capacity() {
            let mut larger = pool.alloc(wanted.max((4 * there).min(BATCH + SMALL)))?;
            larger.put_slice(self.message.as_slice());
            pool.recycle(std::mem::replace(&mut self.message, larger));
        }
        Ok(())
    }

    /// Appends bytes after the items.
    pub(super) fn append(&mut self, bytes: &[u8], pool: &mut Pool) -> Result<(), NoMemory> {
        self.reserve(bytes.len(), pool)?;
        self.message.put_slice(bytes);
        Ok(())
    }

    /// The message, ready to be sent.
    pub(super) fn finish(mut self, op: u8, stream: u32, seq: u32) -> MsgBuf {
        let bytes = self.message.as_mut_slice();
        bytes[OP] = op;
        let head = frame_head(stream, seq, self.count);
        bytes[self.frame..self.frame + FRAME_HEAD].copy_from_slice(&head);
        self.message
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::stream::{Batch, StreamRequest};
    use crate::wire::extension::{Extension, push_entry};

    fn put(outbox: &mut Outbox, item: &[u8], pool: &mut Pool) {
        outbox.put(item.len(), &mut |out| out.put_slice(item), pool).unwrap();
    }

    /// Number of extension entries, and the items, of a taken batch.
    fn read(message: MsgBuf) -> (usize, Vec<Vec<u8>>) {
        let bytes = message.as_slice();
        let (extension, frame) = Extension::split(bytes).unwrap();
        let offset = bytes.len() - frame.len();
        let request = StreamRequest::parse(extension.op(), frame).unwrap();
        let entries = extension.entries().count();
        let mut batch = Batch::new(message, offset, request.items);
        (entries, std::iter::from_fn(|| batch.next_item().map(<[u8]>::to_vec)).collect())
    }

    #[test]
    fn items_of_any_size_are_gathered_into_batches() {
        let mut pool = Pool::new(1 << 20);
        let mut entries = Vec::new();
        push_entry(&mut entries, "k", b"v").unwrap();
        let mut outbox = Outbox::new(entries);
        outbox.set_limit(1 << 20);
        let items: Vec<Vec<u8>> =
            [3, 0, 600, 9_000, BATCH + 1, 1].map(|len| vec![len as u8; len]).into();
        for item in &items {
            assert!(outbox.has_room(item.len(), 2));
            put(&mut outbox, item, &mut pool);
        }
        assert!(
            outbox.has_room(BATCH - 9, 2)
                && !outbox.has_room(BATCH, 2)
                && outbox.has_room(BATCH, 3)
        );
        outbox.end(0);
        let taken: Vec<Taken> = std::iter::from_fn(|| outbox.take()).collect();
        let numbers: Vec<(u32, bool)> = taken.iter().map(|taken| (taken.seq, taken.last)).collect();
        assert_eq!(numbers, [(0, false), (1, false), (2, true)]);
        let messages = taken.into_iter().map(|taken| taken.gather.unwrap().finish(3, 7, taken.seq));
        let batches: Vec<_> = messages
            .map(|message| {
                let mut copy = MsgBuf::detached(message.len()).unwrap();
                copy.put_slice(message.as_slice());
                // The messages are pushes (`op` 3): the parser accepts an OPEN only with number 0.
                read(copy)
            })
            .collect();
        assert_eq!(batches[0], (1, items[..4].to_vec()));
        assert_eq!(batches[1], (0, items[4..5].to_vec()));
        assert_eq!(batches[2], (0, items[5..].to_vec()));
        assert_eq!(pool.stats().in_use, 0);
    }

    #[test]
    fn no_message_exceeds_the_limit_of_the_other_side() {
        const LIMIT: usize = 5_000;
        let (mut pool, mut outbox) = (Pool::new(1 << 20), Outbox::new(Vec::new()));
        let item = vec![1; 300];
        // The limit is not known yet.
        assert!(outbox.has_room(300, 1) && !outbox.has_room(CAUTIOUS, 9));
        assert_eq!(outbox.too_large(1 << 20), None);
        (0..4).for_each(|_| put(&mut outbox, &item, &mut pool));
        outbox.set_limit(LIMIT);
        assert_eq!(outbox.too_large(LIMIT - 24), None);
        assert_eq!(outbox.too_large(LIMIT - 23), Some(LIMIT - 24));
        (0..40).for_each(|_| put(&mut outbox, &item, &mut pool));
        put(&mut outbox, &vec![2; LIMIT - 24], &mut pool);
        outbox.end(8);
        let taken: Vec<Taken> = std::iter::from_fn(|| outbox.take()).collect();
        let sizes: Vec<usize> =
            taken.iter().flat_map(|taken| &taken.gather).map(|g| g.message.len()).collect();
        assert_eq!(sizes, [20 + 3 * 304, 20 + 16 * 304, 20 + 16 * 304, 20 + 9 * 304, LIMIT]);
        let end = taken.last().unwrap();
        assert!(end.gather.is_none() && end.last, "the end does not fit after the last item");
        assert_eq!(taken.iter().filter(|taken| taken.last).count(), 1);
    }

    #[test]
    fn an_end_without_items_is_taken_once() {
        let mut outbox = Outbox::new(Vec::new());
        assert!(outbox.take().is_none());
        outbox.end(0);
        let taken = outbox.take().unwrap();
        assert!(taken.gather.is_none() && taken.last && outbox.take().is_none());
    }

    #[test]
    fn bytes_that_a_codec_reserves_but_does_not_write_are_not_sent() {
        let mut pool = Pool::new(1 << 20);
        let mut outbox = Outbox::new(Vec::new());
        outbox.put(100, &mut |out| out.put_slice(b"short"), &mut pool).unwrap();
        put(&mut outbox, b"next", &mut pool);
        let taken = outbox.take().unwrap();
        let (_, items) = read(taken.gather.unwrap().finish(1, 1, 0));
        assert_eq!(items, [&b"short"[..], b"next"]);
    }
}
