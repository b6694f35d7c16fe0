//! The end of an attempt that does not commit.

use std::pin::Pin;
use std::rc::Rc;

use erpc::Transport;
use smallvec::SmallVec;

use super::Inner;
use super::deliver::{Doubt, Message, Messages, Places, in_foreground, unlock};
use super::execute::{Lock, LockState};
use super::transaction::Attempt;
use crate::check::Outcome;
use crate::cluster::NodeId;
use crate::mutants::mutant;
use crate::table::Owner;

impl<T: Transport> Attempt<T> {
    /// Aborts the attempt: frees its locks. Waits for that as long as all nodes answer.
    pub(super) async fn release(&self) {
        let Some((end, doubt)) = self.end_without_commit() else { return };
        in_foreground(&self.inner, end, &doubt, self.time_left()).await;
    }

    /// Aborts the attempt, whose task was dropped, in the background.
    pub(super) fn give_up(&self) {
        if let Some((end, _)) = self.end_without_commit() {
            self.inner.in_background(end);
        }
    }

    /// The end of an attempt that has no record in a log. None if the attempt has ended already, or
    /// there is nothing left to do.
    fn end_without_commit(
        &self,
    ) -> Option<(Pin<Box<impl Future<Output = ()> + use<T>>>, Rc<Doubt>)> {
        if !self.keys.end() {
            return None;
        }
        self.note(Outcome::Aborted);
        let locks = self.locks.borrow();
        let messages = unlocks(self.id, &locks);
        if messages.is_empty() {
            self.inner.sequences.end(self.sequence);
            return None;
        }
        self.inner
            .counting
            .requests(locks.iter().filter(|lock| lock.state != LockState::Free).count());
        let (inner, sequence) = (Rc::clone(&self.inner), self.sequence);
        let doubt = Rc::<Doubt>::default();
        let of_end = Rc::clone(&doubt);
        let end = async move { inner.end_with(sequence, &messages, &of_end).await };
        Some((Box::pin(end), doubt))
    }
}

impl<T: Transport> Inner<T> {
    /// Delivers the last messages of a transaction.
    pub(super) async fn end_with(
        self: &Rc<Self>,
        sequence: u64,
        messages: &[(NodeId, Message)],
        doubt: &Rc<Doubt>,
    ) {
        // A node that is lost has no locks any more.
        let _lost = self.deliver(messages, doubt).await;
        self.sequences.end(sequence);
    }
}

/// What unlocks the buckets that a transaction may have locked, for each primary.
pub(super) fn unlocks(transaction: Owner, locks: &[Lock]) -> Messages {
    if locks.is_empty() {
        return Messages::new();
    }
    let mut nodes: SmallVec<[(NodeId, Places, bool); 3]> = SmallVec::new();
    for lock in locks.iter().filter(|lock| lock.state != LockState::Free) {
        let is_forgotten = mutant!(SentLocksForgotten) && lock.state == LockState::Sent;
        if mutant!(AbortKeepsLocks) || is_forgotten {
            continue;
        }
        let is_sent = lock.state == LockState::Sent;
        match nodes.iter_mut().find(|(node, _, _)| *node == lock.node) {
            Some((_, places, bury)) => {
                places.push(lock.place);
                *bury |= is_sent;
            }
            None => nodes.push((lock.node, Places::from_slice(&[lock.place]), is_sent)),
        }
    }
    nodes.sort_by_key(|(node, _, _)| *node);
    let messages = |(node, places, bury): &(NodeId, Places, bool)| {
        unlock(*node, transaction, places, *bury).collect::<Messages>()
    };
    nodes.iter().flat_map(messages).collect()
}

impl<T: Transport> Drop for Attempt<T> {
    fn drop(&mut self) {
        self.give_up();
    }
}
