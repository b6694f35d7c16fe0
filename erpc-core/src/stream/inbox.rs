//! Received batches, put in order.

use std::collections::VecDeque;

use super::MAX_UNREAD;
use super::batch::Batch;
use crate::mutants::mutant;

/// Batches that have arrived, in any order, and are unread. `X` is data kept with each batch: at a
/// server, the call to answer.
#[derive(Debug)]
pub(super) struct Inbox<X> {
    /// The number of the next batch to read.
    next: u32,
    /// Batch `next` and later ones, at most [`MAX_UNREAD`]. `None` for a batch that is missing.
    batches: VecDeque<Option<InboxEntry<X>>>,
    /// The number of the last batch, once it is known.
    last: Option<u32>,
}

/// A batch (`None` if it has no items) and its data.
type InboxEntry<X> = (Option<Batch>, X);

/// The batch was refused: it is a duplicate, or too far ahead, or after the last batch, or it
/// claims to be the last although a later batch or the last is known. Contains the batch's data.
#[derive(Debug)]
pub(super) struct Misplaced<X>(pub(super) X);

impl<X> Inbox<X> {
    pub(super) fn new() -> Self {
        Self { next: 0, batches: VecDeque::new(), last: None }
    }

    /// Inserts a batch; with `end` it is the last.
    pub(super) fn insert(
        &mut self,
        seq: u32,
        end: bool,
        batch: Option<Batch>,
        with: X,
    ) -> Result<(), Misplaced<X>> {
        let ahead = seq.wrapping_sub(self.next) as usize;
        let beyond = self.last.is_some_and(|last| ahead > last.wrapping_sub(self.next) as usize);
        // The batch claims to be the last, but a later one has arrived, or the last is known
        // already.
        let early = end && (self.last.is_some() || ahead + 1 < self.batches.len());
        let there = matches!(self.batches.get(ahead), Some(Some(_)));
        if ahead >= MAX_UNREAD || beyond || early || there || self.is_over() {
            return Err(Misplaced(with));
        }
        if self.batches.len() <= ahead {
            self.batches.resize_with(ahead + 1, || None);
        }
        self.batches[ahead] = Some((batch, with));
        if end {
            self.last = Some(seq);
        }
        Ok(())
    }

    /// The next batch in order, if it has arrived.
    pub(super) fn pop(&mut self) -> Option<InboxEntry<X>> {
        if mutant!(StreamOrderIgnored)
            && let Some(there) = self.batches.iter().position(Option::is_some)
        {
            self.batches.swap(0, there);
        }
        let next = self.batches.front_mut()?.take()?;
        self.batches.pop_front();
        self.next = self.next.wrapping_add(1);
        Some(next)
    }

    /// Whether [`Inbox::pop`] would return a batch.
    pub(super) fn is_readable(&self) -> bool {
        matches!(self.batches.front(), Some(Some(_)))
    }

    /// Number of batches that have arrived and are unread.
    pub(super) fn unread(&self) -> usize {
        self.batches.iter().flatten().count()
    }

    /// Number of batches that are known to exist and have not arrived.
    pub(super) fn missing(&self) -> usize {
        let known = match self.last {
            Some(last) => last.wrapping_add(1).wrapping_sub(self.next) as usize,
            None => self.batches.len(),
        };
        known - self.unread()
    }

    /// Whether all batches of the stream have arrived.
    pub(super) fn is_complete(&self) -> bool {
        self.last.is_some() && self.missing() == 0
    }

    /// Whether the last batch is known.
    pub(super) fn has_end(&self) -> bool {
        self.last.is_some()
    }

    /// Whether the last batch was read.
    pub(super) fn is_over(&self) -> bool {
        self.last.is_some_and(|last| last.wrapping_add(1) == self.next)
    }

    /// The data of each unread batch.
    pub(super) fn with(&self) -> impl Iterator<Item = &X> {
        self.batches.iter().flatten().map(|(_, with)| with)
    }

    /// Bytes of memory of the unread batches.
    pub(super) fn footprint(&self) -> usize {
        let batches = self.batches.iter().flatten().filter_map(|(batch, _)| batch.as_ref());
        batches.map(Batch::footprint).sum()
    }

    /// The reader is gone: drops the unread batches and returns their data. The caller must not
    /// insert batches afterwards.
    pub(super) fn discard(&mut self) -> impl Iterator<Item = X> + use<X> {
        std::mem::take(&mut self.batches).into_iter().flatten().map(|(_, with)| with)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn insert(inbox: &mut Inbox<u32>, seq: u32, end: bool) -> bool {
        inbox.insert(seq, end, None, seq).is_ok()
    }

    fn read(inbox: &mut Inbox<u32>) -> Vec<u32> {
        std::iter::from_fn(|| inbox.pop().map(|(_, seq)| seq)).collect()
    }

    #[test]
    fn batches_are_read_in_order_whatever_order_they_arrive_in() {
        let mut inbox = Inbox::new();
        assert!(insert(&mut inbox, 2, true) && insert(&mut inbox, 1, false));
        assert!(!inbox.is_readable() && inbox.unread() == 2 && read(&mut inbox).is_empty());
        assert!(insert(&mut inbox, 0, false) && !inbox.is_over());
        assert_eq!(read(&mut inbox), [0, 1, 2]);
        assert!(inbox.is_over());
    }

    #[test]
    fn an_impossible_batch_is_refused() {
        let mut inbox = Inbox::new();
        assert!(insert(&mut inbox, 0, false) && !insert(&mut inbox, 0, false), "twice");
        assert_eq!(read(&mut inbox), [0]);
        assert!(!insert(&mut inbox, 0, false), "read already");
        assert!(!insert(&mut inbox, 1 + MAX_UNREAD as u32, false), "too far ahead");
        assert!(insert(&mut inbox, MAX_UNREAD as u32, false));
        assert!(!insert(&mut inbox, 2, true), "a batch after the last one has arrived");
        assert!(insert(&mut inbox, 2, false) && insert(&mut inbox, 1, false));
        let mut inbox = Inbox::new();
        assert!(insert(&mut inbox, 1, true));
        assert!(
            !insert(&mut inbox, 2, false) && !insert(&mut inbox, 0, true),
            "after the last batch"
        );
        assert!(insert(&mut inbox, 0, false));
        assert_eq!(read(&mut inbox), [0, 1]);
        assert!(!insert(&mut inbox, 2, false) && !insert(&mut inbox, 2, true), "over");
    }
}
