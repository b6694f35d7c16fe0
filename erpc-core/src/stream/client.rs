//! The client's end of a stream.

use super::batch::Batch;
use super::frame::{StreamOp, StreamReply, StreamResult};
use super::inbox::Inbox;
use super::outbox::{Gather, Outbox};
use super::{BATCH, MAX_PULLS, MAX_PUSHES};
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::mutants::mutant;
use crate::protocol::{CallError, Cause, RejectReason};
use crate::status::{Code, Status};
use crate::wire::extension::Extension;

/// The client's end of one stream.
///
/// ```text
///   put, end_items         this side's items              poll_call   what to call now, until None
///   next_batch, batch_read the server's                   replied     how such a call ended
///   close, drop_reader     no more is wanted              is_over     the session is free again
/// ```
///
/// After anything was done to it, [`StreamClient::poll_call`] is to be asked, at the latest at the end of the
/// turn. What comes of it must be called, and [`StreamClient::replied`] told of the outcome, once each.
#[derive(Debug)]
pub struct StreamClient {
    /// The stream's number on its session.
    number: u32,
    inbox: Inbox<()>,
    outbox: Outbox,
    /// The reader has a batch with unread items.
    reading: bool,
    /// Calls on their way: OPEN and pulls, pushes.
    pulls: usize,
    pushes: usize,
    /// Batches that may be asked for or unread now.
    depth: usize,
    opened: bool,
    /// The server has said that another pull would bring nothing.
    dry: bool,
    reader_gone: bool,
    /// The entries of the extension of the server's first batch.
    entries: Vec<u8>,
    close: Close,
    outcome: StreamOutcome,
}

/// How far the stream is in being told to the server as closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Close {
    Not,
    Wanted,
    Sent,
    Done,
    /// The call failed, or there was no memory for it: what the server has of it is not known.
    Lost,
}

#[derive(Debug)]
enum StreamOutcome {
    Running,
    /// With the last batch of the server's.
    Ended(StreamResult),
    /// From outside of the stream. What had come in order is still read.
    Failed(CallError),
    /// And the reader was told.
    Told,
}

/// What a reader of the server's items gets.
#[derive(Debug)]
pub enum ClientNext {
    /// Items, at least one.
    Batch(Batch),
    /// Nothing yet.
    Wait,
    /// There are no more; `Ok` also after an error was told.
    End(Result<(), CallError>),
}

impl StreamClient {
    /// A stream that begins with the next [`StreamClient::poll_call`]; `entries` are those of OPEN's extension.
    #[must_use]
    pub fn new(number: u32, entries: Vec<u8>) -> Self {
        Self {
            number,
            inbox: Inbox::new(),
            outbox: Outbox::new(entries),
            reading: false,
            pulls: 0,
            pushes: 0,
            depth: 1,
            opened: false,
            dry: false,
            reader_gone: false,
            entries: Vec::new(),
            close: Close::Not,
            outcome: StreamOutcome::Running,
        }
    }

    /// Gives the stream the number that it has on its session.
    pub fn bind(&mut self, number: u32) {
        debug_assert!(!self.opened, "OPEN has gone out under another number");
        self.number = number;
    }

    /// Whether the stream has called, so that its handler may have run.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.opened
    }

    /// Whether this side may send items.
    ///
    /// # Errors
    /// Why not: how the stream ended, or [`RejectReason::StreamEnded`] if it ended well, was closed, or the
    /// server takes no more.
    pub fn sending(&self) -> Result<(), CallError> {
        let ended = CallError::Rejected(RejectReason::StreamEnded);
        match &self.outcome {
            StreamOutcome::Failed(error) => Err(error.clone()),
            StreamOutcome::Ended(Err(status)) => Err(CallError::Status(status.clone())),
            StreamOutcome::Ended(Ok(())) | StreamOutcome::Told => Err(ended),
            StreamOutcome::Running if self.outbox.is_ended() || self.close != Close::Not => {
                Err(ended)
            }
            StreamOutcome::Running => Ok(()),
        }
    }

    /// The server takes requests of so many bytes. Until it is told, [`StreamClient::has_room`] lets only small
    /// items in, and few of them into one call.
    pub fn set_limit(&mut self, bytes: usize) {
        self.outbox.set_limit(bytes);
    }

    /// The largest item that the server takes, if one of `len` bytes is larger: it can never be sent.
    #[must_use]
    pub fn too_large(&self, len: usize) -> Option<usize> {
        self.outbox.too_large(len)
    }

    /// Whether an item of `len` bytes may be put in now.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        let lanes = usize::from(!self.opened) + MAX_PUSHES - self.pushes;
        self.outbox.has_room(len, lanes)
    }

    /// Puts in an item of `len` bytes, which `encode` writes. To be asked before: [`StreamClient::sending`] and
    /// [`StreamClient::has_room`].
    ///
    /// # Errors
    /// [`NoMemory`]; the item is not sent.
    pub fn put(
        &mut self,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        self.outbox.put(len, encode, pool)
    }

    /// No items of this side come any more.
    pub fn end_items(&mut self) {
        self.outbox.end(0);
    }

    /// Ends the stream at any point: its reader is gone.
    pub fn drop_reader(&mut self) {
        self.reader_gone = true;
        self.reading = false;
        self.inbox.discard().for_each(drop);
        if matches!(self.outcome, StreamOutcome::Running) {
            self.stop();
        }
    }

    /// Ends the stream for a reason of this side's.
    pub fn fail(&mut self, error: CallError) {
        let complete = self.inbox.is_complete();
        match self.outcome {
            StreamOutcome::Ended(_) if complete => return,
            StreamOutcome::Running | StreamOutcome::Ended(_) => {
                self.outcome = StreamOutcome::Failed(error)
            }
            StreamOutcome::Failed(_) | StreamOutcome::Told => return,
        }
        self.stop();
    }

    /// Sends nothing any more but that.
    fn stop(&mut self) {
        self.outbox.abandon();
        if self.close == Close::Not {
            let tells = self.opened && !mutant!(StreamCloseUntold);
            self.close = if tells { Close::Wanted } else { Close::Done };
        }
    }

    /// The server's next items.
    pub fn next_batch(&mut self) -> ClientNext {
        self.reading = false;
        while let Some((batch, ())) = self.inbox.pop() {
            if let Some(batch) = batch {
                self.reading = true;
                return ClientNext::Batch(batch);
            }
        }
        match &self.outcome {
            StreamOutcome::Running => return ClientNext::Wait,
            StreamOutcome::Ended(_) if !self.inbox.is_over() => return ClientNext::Wait,
            StreamOutcome::Ended(_) | StreamOutcome::Failed(_) | StreamOutcome::Told => {}
        }
        ClientNext::End(match std::mem::replace(&mut self.outcome, StreamOutcome::Told) {
            StreamOutcome::Ended(end) => end.map_err(CallError::Status),
            StreamOutcome::Failed(error) => Err(error),
            StreamOutcome::Running | StreamOutcome::Told => Ok(()),
        })
    }

    /// What came beside the server's first item, as entries of an extension.
    #[must_use]
    pub fn entries(&self) -> &[u8] {
        &self.entries
    }

    /// The reader has taken the last item out of its batch. From here on the next may be asked for, also
    /// if the reader does not come back for a while.
    pub fn batch_read(&mut self) {
        self.reading = false;
    }

    /// Whether [`StreamClient::next_batch`] would not say to wait.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.inbox.is_readable()
            || match self.outcome {
                StreamOutcome::Running => false,
                StreamOutcome::Ended(_) => self.inbox.is_over(),
                StreamOutcome::Failed(_) | StreamOutcome::Told => true,
            }
    }

    /// What is to be called next, an extended request, if anything.
    ///
    /// # Errors
    /// [`NoMemory`]: the stream cannot go on; [`StreamClient::fail`], give its calls up, and ask once more, for what
    /// tells the server. If there is no memory for that either, the stream [is spoilt](StreamClient::is_spoilt).
    pub fn poll_call(&mut self, pool: &mut Pool) -> Result<Option<(StreamOp, MsgBuf)>, NoMemory> {
        if self.close == Close::Wanted {
            // Without memory the server is not told, and the session not used again.
            self.close = Close::Lost;
            let message = self.bare(StreamOp::Close, pool)?;
            self.close = Close::Sent;
            return Ok(Some((StreamOp::Close, message)));
        }
        if self.close != Close::Not || !matches!(self.outcome, StreamOutcome::Running) {
            return Ok(None);
        }
        if (!self.opened || self.pushes < MAX_PUSHES)
            && let Some(call) = self.items(pool)?
        {
            return Ok(Some(call));
        }
        let unread = self.inbox.unread() + usize::from(self.reading);
        let unread = if mutant!(StreamPullsUnbounded) { 0 } else { unread };
        if self.dry || self.inbox.has_end() || self.pulls + unread >= self.depth {
            return Ok(None);
        }
        let message = self.bare(StreamOp::Pull, pool)?;
        self.pulls += 1;
        Ok(Some((StreamOp::Pull, message)))
    }

    /// The call that brings the items that are there.
    fn items(&mut self, pool: &mut Pool) -> Result<Option<(StreamOp, MsgBuf)>, NoMemory> {
        let (seq, gather, last) = match self.outbox.take() {
            Some(taken) => (taken.seq, taken.gather, taken.last),
            None if self.opened => return Ok(None),
            None => (self.outbox.skip(), None, false),
        };
        let gather = match gather {
            Some(gather) => gather,
            None => self.outbox.empty(seq, pool)?,
        };
        let ask = if self.opened { StreamOp::Push } else { StreamOp::Open };
        match ask {
            StreamOp::Open => (self.opened, self.pulls) = (true, 1),
            _ => self.pushes += 1,
        }
        Ok(Some((ask, gather.finish(ask.op(last), self.number, seq))))
    }

    /// A call without items.
    fn bare(&self, ask: StreamOp, pool: &mut Pool) -> Result<MsgBuf, NoMemory> {
        Ok(Gather::new(&[], 0, pool)?.finish(ask.op(false), self.number, 0))
    }

    /// A call has ended: with an extended reply, with one that is not (`Ok(None)`), or with an error.
    pub fn replied(&mut self, ask: StreamOp, result: Result<Option<MsgBuf>, CallError>) {
        match ask {
            StreamOp::Open | StreamOp::Pull => self.pulls -= 1,
            StreamOp::Push => self.pushes -= 1,
            StreamOp::Close if result.is_err() => self.close = Close::Lost,
            StreamOp::Close => self.close = Close::Done,
        }
        match result {
            // Its end is all that counts.
            _ if ask == StreamOp::Close => {}
            Ok(Some(message)) => {
                // What is known to be missing must come with a pull that is on its way.
                let taken = self.take_reply(ask, message);
                if taken.is_none() || self.inbox.missing() > self.pulls {
                    self.fail(CallError::ResponseLost(Cause::Malformed));
                }
            }
            Ok(None) => self.fail(CallError::ResponseLost(Cause::Malformed)),
            Err(error) => {
                let never_ran = ask == StreamOp::Open && never_ran(&error);
                self.fail(of_stream(ask, error));
                // The server has nothing to close, unless it holds pushes for a stream to come.
                if never_ran && self.pushes == 0 && self.close == Close::Wanted {
                    self.close = Close::Done;
                }
            }
        }
    }

    /// `None`: the reply is not one to that call.
    fn take_reply(&mut self, ask: StreamOp, message: MsgBuf) -> Option<()> {
        let (extension, frame) = Extension::split(message.as_slice()).ok()?;
        let (offset, size) = (message.len() - frame.len(), message.len());
        let entries = extension.as_bytes();
        match (ask, StreamReply::parse(extension.op(), frame).ok()?) {
            (StreamOp::Open | StreamOp::Pull, StreamReply::Items { stream, seq, items, end }) => {
                let entries = (seq == 0 && !entries.is_empty()).then(|| entries.to_vec());
                let batch = (items.count > 0).then(|| Batch::new(message, offset, items));
                if stream != self.number {
                    return None;
                }
                if self.reader_gone {
                    return Some(());
                }
                if let Some(entries) = entries {
                    self.entries = entries;
                }
                self.inbox.insert(seq, end.is_some(), batch, ()).ok()?;
                self.depth = if size >= BATCH / 2 { (self.depth + 1).min(MAX_PULLS) } else { 1 };
                if let (Some(end), StreamOutcome::Running) = (end, &self.outcome) {
                    self.outcome = StreamOutcome::Ended(end);
                    self.outbox.abandon();
                }
            }
            (StreamOp::Open | StreamOp::Pull, StreamReply::Empty { end: true }) => {
                self.dry = true;
                // Another pull must have brought the end.
                if self.pulls == 0 && !self.inbox.is_complete() && !self.reader_gone {
                    self.fail(CallError::Status(Status::new(
                        Code::Cancelled,
                        "the server has closed the stream",
                    )));
                }
            }
            (StreamOp::Push, StreamReply::Empty { end }) => {
                if end {
                    self.outbox.abandon();
                }
            }
            _ => return None,
        }
        Some(())
    }

    /// Whether calls are on their way that bring something, or take it.
    #[must_use]
    pub fn is_calling(&self) -> bool {
        self.pulls > 0 || self.pushes > 0
    }

    /// Whether no call is on its way or will be made, so that the session may serve another stream. What
    /// was received can still be read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let ended = match self.close {
            Close::Not => !matches!(self.outcome, StreamOutcome::Running),
            Close::Wanted | Close::Sent => false,
            Close::Done | Close::Lost => true,
        };
        ended && (!self.is_calling() || mutant!(StreamOverTooSoon))
    }

    /// Whether the session must not serve another stream: the server could not be told of this one's end.
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        self.close == Close::Lost
    }
}

/// Whether a failed OPEN says that no handler runs. Not so if a resource was exhausted: that may have been the
/// memory for what the handler has sent.
fn never_ran(error: &CallError) -> bool {
    match error {
        CallError::NotExecuted(_) | CallError::Rejected(_) | CallError::NoSuchMethod(_) => true,
        CallError::Status(status) => status.code() != Code::ResourceExhausted,
        CallError::MaybeExecuted(_) | CallError::ResponseLost(_) => false,
    }
}

/// What a failed call means for its stream: if OPEN had been sent before, the handler may have run.
fn of_stream(ask: StreamOp, error: CallError) -> CallError {
    match error {
        CallError::NotExecuted(cause) if ask != StreamOp::Open => CallError::MaybeExecuted(cause),
        CallError::Rejected(RejectReason::DeadlineExceeded) if ask != StreamOp::Open => {
            CallError::MaybeExecuted(Cause::DeadlineExceeded)
        }
        error => error,
    }
}
