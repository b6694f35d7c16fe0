//! The users at both ends of a stream: writers and readers of items.

use erpc_core::stream::Batch;

use crate::oracle::Oracle;
use crate::stream_script::{Direction, Flow, Pauses};

/// The pauses of a user.
#[derive(Debug)]
struct Pace {
    pauses: Pauses,
    /// The item at which the user is. A pause may come before it.
    at: u32,
    pausing: bool,
}

impl Pace {
    fn new(pauses: Pauses) -> Self {
        Self { pauses, at: 0, pausing: false }
    }

    /// Whether the user has to wait before item `number`. Calls `wake` with the length of a pause
    /// that begins, in ns.
    fn waits(&mut self, number: u32, wake: impl FnOnce(u64)) -> bool {
        if number != self.at
            && let Some(nanos) = self.pauses.before(number)
        {
            self.pausing = true;
            wake(nanos);
        }
        self.at = number;
        self.pausing
    }
}

/// A user that sends items.
#[derive(Debug)]
pub(super) struct Writer {
    pub(super) sent: u32,
    pace: Pace,
    /// The writer sends no more items.
    pub(super) is_done: bool,
}

impl Writer {
    pub(super) fn new(flow: &Flow) -> Self {
        Self { sent: 0, pace: Pace::new(flow.writer), is_done: false }
    }

    pub(super) fn waits(&mut self, wake: impl FnOnce(u64)) -> bool {
        self.pace.waits(self.sent, wake)
    }

    pub(super) fn go_on(&mut self) {
        self.pace.pausing = false;
    }
}

/// A user that reads items.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) read: u32,
    /// The batch that is being read.
    pub(super) batch: Option<Batch>,
    pace: Pace,
    leaves_after: Option<u32>,
    /// The reader reads no more: there are no more items, or it has left.
    pub(super) is_done: bool,
}

impl Reader {
    pub(super) fn new(flow: &Flow) -> Self {
        let leaves_after = flow.leaves_after;
        Self { read: 0, batch: None, pace: Pace::new(flow.reader), leaves_after, is_done: false }
    }

    /// Whether the reader wants to leave now.
    pub(super) fn leaves(&self) -> bool {
        !self.is_done && self.leaves_after == Some(self.read)
    }

    /// Whether the reader has to wait before the next item.
    pub(super) fn waits(&mut self, wake: impl FnOnce(u64)) -> bool {
        self.pace.waits(self.read, wake)
    }

    pub(super) fn go_on(&mut self) {
        self.pace.pausing = false;
    }

    /// Reads an item of the batch. Returns false if there is no batch.
    pub(super) fn read(&mut self, id: u32, of: Direction, oracle: &mut Oracle) -> bool {
        let Some(batch) = &mut self.batch else { return false };
        match batch.next_item() {
            Some(item) => {
                oracle.item_read(id, of, item);
                self.read += 1;
            }
            None => oracle.blame_stream(id, "brings a batch without items"),
        }
        true
    }

    /// Takes the batch if all its items were read.
    pub(super) fn take_read(&mut self) -> Option<Batch> {
        self.batch.take_if(|batch| batch.left() == 0)
    }
}
