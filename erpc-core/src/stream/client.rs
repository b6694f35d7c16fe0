//! The client's end of a stream.

use super::batch::Batch;
use super::frame::{SEQ_AT, StreamOp, StreamReply, StreamResult};
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
///   put, end_items         sends this side's items    poll_call   next call to send, until None
///   next_batch, batch_read reads the server's items   replied     reports the end of such a call
///   fail, drop_reader      ends the stream            is_over     no call is in flight or follows
/// ```
///
/// After any other method, the caller must call [`StreamClient::poll_call`], at the latest at the
/// end of the turn. The caller must send each call that it returns, and report each outcome once to
/// [`StreamClient::replied`].
#[derive(Debug)]
pub struct StreamClient {
    /// The stream's number on its session.
    number: u32,
    inbox: Inbox<()>,
    outbox: Outbox,
    /// True while the reader has a batch with unread items.
    reading: bool,
    /// Calls in flight: OPEN and pulls in `pulls`, pushes in `pushes`.
    pulls: usize,
    pushes: usize,
    /// Current limit for batches that are pulled or unread, 1 to [`MAX_PULLS`].
    depth: usize,
    opened: bool,
    /// The OPEN and the pushes that the server has certainly not executed, in the order of their
    /// batches. They will be sent again, on another session.
    unexecuted: Vec<(StreamOp, MsgBuf)>,
    /// Whether the calls in `unexecuted` may be sent, because the stream has its new session.
    moved: bool,
    /// True once the server has answered a call.
    answered: bool,
    /// True once the server has answered that further pulls return nothing.
    dry: bool,
    reader_gone: bool,
    /// Entries of the extension of the server's first batch.
    entries: Vec<u8>,
    close: Close,
    outcome: StreamOutcome,
}

/// Progress of telling the server that the stream is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Close {
    Not,
    Wanted,
    Sent,
    Done,
    /// CLOSE failed, or there was no memory for it. The state of the stream at the server is
    /// unknown.
    Lost,
}

#[derive(Debug)]
enum StreamOutcome {
    Running,
    /// The server's last batch has arrived and ended the stream. Batches before it may be missing
    /// or unread.
    Ended(StreamResult),
    /// The stream failed on this side, or one of its calls failed. The reader still gets the
    /// batches that arrived in order.
    Failed(CallError),
    /// The reader has received the outcome.
    Told,
}

/// Result of reading the server's items.
#[derive(Debug)]
pub enum ClientNext {
    /// Items, at least one.
    Batch(Batch),
    /// No items yet.
    Wait,
    /// No more items. An error is returned once; later calls return `Ok`.
    End(Result<(), CallError>),
}

impl StreamClient {
    /// A stream that begins with the next [`StreamClient::poll_call`]. `entries` are the extension
    /// entries of OPEN.
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
            unexecuted: Vec::new(),
            moved: false,
            answered: false,
            dry: false,
            reader_gone: false,
            entries: Vec::new(),
            close: Close::Not,
            outcome: StreamOutcome::Running,
        }
    }

    /// Sets the number of the stream on its session. Must be called before OPEN is sent. After
    /// [`StreamClient::keep`], the calls that were kept are sent again.
    pub fn bind(&mut self, number: u32) {
        debug_assert!(!self.opened, "OPEN was sent with another number");
        self.number = number;
        self.moved = !self.unexecuted.is_empty();
    }

    /// Takes back the request of a call that ended, instead of [`StreamClient::replied`]: the
    /// server has certainly not executed it. The stream then [leaves](StreamClient::has_left) its
    /// session, and the call is sent again on the next one.
    ///
    /// # Errors
    /// The request, if the stream cannot begin elsewhere: the server has answered a call of it, or
    /// the stream has ended.
    pub fn keep(&mut self, ask: StreamOp, request: MsgBuf) -> Result<(), MsgBuf> {
        if !self.keeps(ask) {
            return Err(request);
        }
        match ask {
            StreamOp::Open => self.pulls -= 1,
            _ => self.pushes -= 1,
        }
        let seq = |call: &(StreamOp, MsgBuf)| (call.0 != StreamOp::Open, seq_of(&call.1));
        let call = (ask, request);
        let at = self.unexecuted.partition_point(|other| seq(other) < seq(&call));
        self.unexecuted.insert(at, call);
        self.moved = false;
        if self.has_left() {
            self.opened = false;
        }
        Ok(())
    }

    /// Whether [`StreamClient::keep`] keeps a call of this kind now.
    #[must_use]
    pub fn keeps(&self, ask: StreamOp) -> bool {
        let is_first = match ask {
            StreamOp::Open => true,
            StreamOp::Push => !self.answered,
            StreamOp::Pull | StreamOp::Close => false,
        };
        is_first && matches!(self.outcome, StreamOutcome::Running) && self.close == Close::Not
    }

    /// Whether the stream has left its session: no call is in flight, and the calls that were
    /// [kept](StreamClient::keep) wait for a new session.
    #[must_use]
    pub fn has_left(&self) -> bool {
        let opens = self.unexecuted.first().is_some_and(|(ask, _)| *ask == StreamOp::Open);
        opens && !self.moved && !self.is_calling()
    }

    /// Whether OPEN was sent. If so, the handler may have run.
    #[must_use]
    pub fn has_begun(&self) -> bool {
        self.opened
    }

    /// Whether this side may send items.
    ///
    /// # Errors
    /// The stream's error, until the reader has received it. [`RejectReason::StreamEnded`] after
    /// that, if the stream ended well or was closed, if the client has ended its items, or if the
    /// server accepts no more of them.
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

    /// Sets the largest request that the server accepts, in bytes. Until then, a call with items
    /// has at most 1,024 bytes, and [`StreamClient::has_room`] admits only items that fit into it.
    pub fn set_limit(&mut self, bytes: usize) {
        self.outbox.set_limit(bytes);
    }

    /// If an item of `len` bytes is too large for the server, the size of the largest item that can
    /// be sent. `None` if the item is small enough, or while the server's limit is unknown.
    #[must_use]
    pub fn too_large(&self, len: usize) -> Option<usize> {
        self.outbox.too_large(len)
    }

    /// Whether an item of `len` bytes may be added now.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        let lanes = usize::from(!self.opened) + MAX_PUSHES - self.pushes;
        self.outbox.has_room(len, lanes)
    }

    /// Adds an item of `len` bytes, which `encode` writes. Before, the caller must check
    /// [`StreamClient::sending`] and [`StreamClient::has_room`].
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

    /// Ends this side's items.
    pub fn end_items(&mut self) {
        self.outbox.end(0);
    }

    /// Ends the stream at any time: its reader is gone, and unread batches are dropped.
    pub fn drop_reader(&mut self) {
        self.reader_gone = true;
        self.reading = false;
        self.inbox.discard().for_each(drop);
        if matches!(self.outcome, StreamOutcome::Running) {
            self.stop();
        }
    }

    /// Ends the stream with an error of this side. No effect if the stream has failed already, if
    /// all batches up to its end have arrived, or if the reader has received the outcome.
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

    /// Drops all unsent items. Only CLOSE is still sent, if OPEN was.
    fn stop(&mut self) {
        self.outbox.abandon();
        self.unexecuted.clear();
        self.moved = false;
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

    /// The metadata of the server's first item, as entries of an extension.
    #[must_use]
    pub fn entries(&self) -> &[u8] {
        &self.entries
    }

    /// Records that the reader has taken the last item from its batch. From now on the next batch
    /// may be pulled, even if the reader does not call [`StreamClient::next_batch`] for a while.
    pub fn batch_read(&mut self) {
        self.reading = false;
    }

    /// Whether [`StreamClient::next_batch`] would return something other than `Wait`.
    #[must_use]
    pub fn is_readable(&self) -> bool {
        self.inbox.is_readable()
            || match self.outcome {
                StreamOutcome::Running => false,
                StreamOutcome::Ended(_) => self.inbox.is_over(),
                StreamOutcome::Failed(_) | StreamOutcome::Told => true,
            }
    }

    /// The next call to send, an extended request; `None` if there is none.
    ///
    /// # Errors
    /// [`NoMemory`]: the stream cannot continue. The caller must call [`StreamClient::fail`],
    /// cancel the stream's calls, and poll once more: the next call is CLOSE. If there is no
    /// memory for CLOSE either, the stream [is spoilt](StreamClient::is_spoilt).
    pub fn poll_call(&mut self, pool: &mut Pool) -> Result<Option<(StreamOp, MsgBuf)>, NoMemory> {
        if self.close == Close::Wanted {
            // If there is no memory, the server does not learn of the end, and the session is not
            // used again.
            self.close = Close::Lost;
            let message = self.bare(StreamOp::Close, pool)?;
            self.close = Close::Sent;
            return Ok(Some((StreamOp::Close, message)));
        }
        if self.close != Close::Not || !matches!(self.outcome, StreamOutcome::Running) {
            return Ok(None);
        }
        if !self.unexecuted.is_empty() {
            return Ok(self.again());
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

    /// The next of the calls that were kept, under the stream's new number. `None` while the stream
    /// has no new session.
    fn again(&mut self) -> Option<(StreamOp, MsgBuf)> {
        if !self.moved {
            return None;
        }
        let (ask, mut request) = self.unexecuted.remove(0);
        self.moved = !self.unexecuted.is_empty();
        let offset = frame_at(request.as_slice());
        request.write_at(offset, &self.number.to_le_bytes());
        match ask {
            StreamOp::Open => (self.opened, self.pulls) = (true, 1),
            _ => self.pushes += 1,
        }
        Some((ask, request))
    }

    /// The OPEN or the push that carries the items in the outbox. OPEN is sent even without items.
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

    /// Reports the end of a call: an extended reply, a reply without an extension (`Ok(None)`), or
    /// an error.
    pub fn replied(&mut self, ask: StreamOp, result: Result<Option<MsgBuf>, CallError>) {
        match ask {
            StreamOp::Open | StreamOp::Pull => self.pulls -= 1,
            StreamOp::Push => self.pushes -= 1,
            StreamOp::Close if result.is_err() => self.close = Close::Lost,
            StreamOp::Close => self.close = Close::Done,
        }
        match result {
            // The match above has noted that CLOSE ended. The content of its reply does not matter.
            _ if ask == StreamOp::Close => {}
            Ok(Some(message)) => {
                self.answered = true;
                // Only a pull brings a batch. If more batches are missing than pulls are in flight,
                // the server has left one out.
                let taken = self.take_reply(ask, message);
                if taken.is_none() || self.inbox.missing() > self.pulls {
                    self.fail(CallError::ResponseLost(Cause::Malformed));
                }
            }
            Ok(None) => self.fail(CallError::ResponseLost(Cause::Malformed)),
            Err(error) => {
                let never_ran = ask == StreamOp::Open && never_ran(&error);
                self.fail(of_stream(ask, error));
                // No handler runs, so the server has nothing to close, unless it holds pushes that
                // wait for the stream to open.
                if never_ran && self.pushes == 0 && self.close == Close::Wanted {
                    self.close = Close::Done;
                }
            }
        }
    }

    /// Processes the reply to a call. `None` if the reply does not fit the call.
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
                // No other pull is in flight, so the last batch cannot arrive any more.
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

    /// Whether pulls or pushes are in flight, OPEN included.
    #[must_use]
    pub fn is_calling(&self) -> bool {
        self.pulls > 0 || self.pushes > 0
    }

    /// Whether the stream has no call in flight and makes no more. If so, the session may serve
    /// another stream, unless this one [is spoilt](StreamClient::is_spoilt). Received items can
    /// still be read.
    #[must_use]
    pub fn is_over(&self) -> bool {
        let ended = match self.close {
            Close::Not => !matches!(self.outcome, StreamOutcome::Running),
            Close::Wanted | Close::Sent => false,
            Close::Done | Close::Lost => true,
        };
        ended && (!self.is_calling() || mutant!(StreamOverTooSoon))
    }

    /// Whether the session must not serve another stream: the server could not learn of this
    /// stream's end.
    #[must_use]
    pub fn is_spoilt(&self) -> bool {
        self.close == Close::Lost
    }
}

/// The offset of the frame in a request that this end has made.
fn frame_at(request: &[u8]) -> usize {
    Extension::split(request).map_or(0, |(_, frame)| request.len() - frame.len())
}

/// The number of the batch in a request that this end has made.
fn seq_of(request: &MsgBuf) -> u32 {
    let request = request.as_slice();
    let at = frame_at(request) + SEQ_AT;
    let seq = request.get(at..).and_then(|rest| rest.first_chunk().copied());
    seq.map_or(0, u32::from_le_bytes)
}

/// Whether a failed OPEN proves that no handler runs. `RESOURCE_EXHAUSTED` does not: the server may
/// have lacked memory for the handler's first items.
fn never_ran(error: &CallError) -> bool {
    match error {
        CallError::NotExecuted(_)
        | CallError::NoServer(_)
        | CallError::Rejected(_)
        | CallError::NoSuchMethod(_) => true,
        CallError::Status(status) => status.code() != Code::ResourceExhausted,
        CallError::MaybeExecuted(_) | CallError::ResponseLost(_) => false,
    }
}

/// Converts the error of a call to that of its stream. If OPEN was sent earlier, the handler may
/// have run.
fn of_stream(ask: StreamOp, error: CallError) -> CallError {
    match error {
        CallError::NotExecuted(cause) if ask != StreamOp::Open => CallError::MaybeExecuted(cause),
        CallError::Rejected(RejectReason::DeadlineExceeded) if ask != StreamOp::Open => {
            CallError::MaybeExecuted(Cause::DeadlineExceeded)
        }
        error => error,
    }
}
