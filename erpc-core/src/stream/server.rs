//! The server's end of a session's streams.

use std::collections::VecDeque;

use super::MAX_HELD;
use super::batch::Batch;
use super::frame::{FRAME_HEAD, StreamOp, StreamRequest, StreamResult, empty_op, items_op};
use super::inbox::Inbox;
use super::outbox::{Outbox, Taken};
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::mutants::mutant;
use crate::status::{Code, Status};
use crate::wire::encode_status;
use crate::wire::extension::{EXTENSION_HEAD, put_extension};

/// The encoded status of a stream that ended well: code and length of the message, both 0.
const OK: [u8; 8] = [0; 8];

/// The server's end of the streams of one session: the current stream, and calls that arrived
/// before their stream was opened. `H` identifies a call that waits for its answer.
///
/// ```text
///   request, cancelled     the client's calls         poll_answer  next answer to send, until None
///   next_batch             reads the client's items   put, finish  handler's items, and its end
/// ```
///
/// Most methods for handlers take the stream's number, because the client may have ended that
/// stream, and begun another, before the handler knows. After any other method, the caller must
/// call [`StreamServer::poll_answer`], at the latest at the end of the turn. Every call is answered
/// once.
#[derive(Debug)]
pub struct StreamServer<H> {
    /// Number of the newest stream that the client has opened, or closed before it was opened; 0
    /// for none.
    newest: u32,
    /// The newest stream, while it is alive.
    live: Option<Live<H>>,
    /// Calls of streams that are not open yet.
    held: Vec<Held<H>>,
    answers: VecDeque<(H, Short)>,
    /// The largest message that the client accepts, in bytes.
    limit: usize,
}

#[derive(Debug)]
struct Live<H> {
    /// The client's batches, each with its push to answer; `None` for OPEN, which is answered as a
    /// pull.
    inbox: Inbox<Option<H>>,
    outbox: Outbox,
    /// Waiting pulls, the oldest first.
    pulls: VecDeque<H>,
    /// True once the handler has stopped reading.
    reader_gone: bool,
    /// The handler's final status in wire form, once it has ended.
    end: Option<Vec<u8>>,
}

#[derive(Debug)]
struct Held<H> {
    call: H,
    request: StreamRequest,
    batch: Option<Batch>,
}

/// An answer without items.
#[derive(Debug)]
enum Short {
    /// The call is complete. With `true`, also no more items are accepted or sent.
    Empty(bool),
    Failed(Status),
}

/// Answer to a call.
#[derive(Debug)]
pub enum StreamAnswer {
    /// An extended message.
    Reply(MsgBuf),
    /// A failure.
    Failed(Status),
}

/// Effect of a client's call on the handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Effect {
    /// True if the stream that was current is over; its handler must be dropped.
    pub stop: bool,
    /// True if a new stream begins; its handler must be started, after the old handler was dropped.
    pub start: bool,
}

/// Result of reading the client's items.
#[derive(Debug)]
pub enum ServerNext {
    /// Items, at least one.
    Batch(Batch),
    /// No items yet.
    Wait,
    /// No more items.
    End,
}

impl<H: Copy + PartialEq> StreamServer<H> {
    /// A server end for a client that accepts responses of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { newest: 0, live: None, held: Vec::new(), answers: VecDeque::new(), limit }
    }

    /// Takes a call that has arrived. `batch` holds its items, `None` if there are none.
    pub fn request(&mut self, call: H, request: StreamRequest, batch: Option<Batch>) -> Effect {
        let mut effect = Effect::default();
        let again = mutant!(StreamReopened) && request.ask == StreamOp::Open && self.live.is_none();
        let is_new = request.stream > self.newest || again && request.stream == self.newest;
        match request.ask {
            StreamOp::Open if is_new => {
                effect = Effect { stop: self.stop(), start: true };
                self.newest = request.stream;
                let mut live = Live::new(self.limit);
                live.pulls.push_back(call);
                // The first batch of an empty inbox is never misplaced.
                let _ = live.inbox.insert(request.seq, request.end, batch, None);
                self.live = Some(live);
                self.take_held();
            }
            StreamOp::Close if is_new => {
                effect.stop = self.stop();
                self.newest = request.stream;
                self.take_held();
                self.answer(call, Short::Empty(true));
            }
            StreamOp::Pull | StreamOp::Push if is_new && self.held.len() < MAX_HELD => {
                self.held.push(Held { call, request, batch });
            }
            StreamOp::Pull | StreamOp::Push if is_new => {
                let status =
                    Status::resource_exhausted("too many calls for streams that are not open");
                self.answer(call, Short::Failed(status));
            }
            StreamOp::Close if request.stream == self.newest => {
                effect.stop = self.stop();
                self.answer(call, Short::Empty(true));
            }
            _ => self.of_newest(Held { call, request, batch }),
        }
        effect
    }

    /// Takes a pull or a push of the newest stream, a repeated OPEN, or any call of an older
    /// stream.
    fn of_newest(&mut self, held: Held<H>) {
        let Held { call, request, batch } = held;
        let live = self.live.as_mut().filter(|_| request.stream == self.newest);
        let answer = match (live, request.ask) {
            (Some(live), StreamOp::Pull) if live.pulls.len() < MAX_HELD => {
                live.pulls.push_back(call);
                return;
            }
            (Some(live), StreamOp::Push) if !live.reader_gone => {
                let push = (!mutant!(StreamPushAnsweredEarly)).then_some(call);
                match live.inbox.insert(request.seq, request.end, batch, push) {
                    Ok(()) if push.is_none() => Short::Empty(false),
                    Ok(()) => return,
                    Err(_misplaced) => Short::Failed(Status::invalid_argument(
                        "the batch is a duplicate, or too far ahead",
                    )),
                }
            }
            (Some(_), StreamOp::Open | StreamOp::Pull) => Short::Failed(Status::invalid_argument(
                "the stream is open already, or has too many pulls",
            )),
            // The stream is over, or the handler has stopped reading.
            _ => Short::Empty(true),
        };
        self.answer(call, answer);
    }

    /// Gives the held calls to the newest stream, if they are its own. Held calls of older streams
    /// are too late and are answered.
    fn take_held(&mut self) {
        let newest = self.newest;
        let (due, held) = std::mem::take(&mut self.held)
            .into_iter()
            .partition(|held: &Held<H>| held.request.stream <= newest);
        self.held = held;
        let due: Vec<Held<H>> = due;
        if !mutant!(StreamHeldForgotten) {
            due.into_iter().for_each(|held| self.of_newest(held));
        }
    }

    /// Whether a call opens a stream, or continues one that is not open. If the stream shall not
    /// begin, refuse all these calls: the client makes all of them elsewhere, or none.
    #[must_use]
    pub fn is_early(&self, request: &StreamRequest) -> bool {
        request.stream > self.newest && request.ask != StreamOp::Close
    }

    /// Takes out the calls whose streams are not open. The caller has to answer them.
    pub fn take_early(&mut self) -> Vec<H> {
        std::mem::take(&mut self.held).into_iter().map(|held| held.call).collect()
    }

    /// Handles the cancel of a call by the client. A client cancels calls only together with their
    /// stream, so the call's stream is closed if it is open.
    pub fn cancelled(&mut self, call: H) -> Effect {
        let held = self.held.iter().position(|held| held.call == call);
        if let Some(at) = held {
            self.held.swap_remove(at);
        } else if !self.live.as_ref().is_some_and(|live| live.has(call)) {
            return Effect::default();
        }
        self.answer(
            call,
            Short::Failed(Status::new(Code::Cancelled, "the client cancelled the call")),
        );
        let stop = held.is_none() && self.stop_but(Some(call));
        Effect { stop, start: false }
    }

    fn stop(&mut self) -> bool {
        self.stop_but(None)
    }

    /// Ends the current stream and answers all waiting calls except `answered`. Returns whether the
    /// stream's handler must be dropped.
    fn stop_but(&mut self, answered: Option<H>) -> bool {
        let Some(mut live) = self.live.take() else { return false };
        let waiting = live.pulls.drain(..).chain(live.inbox.discard().flatten());
        for call in waiting.filter(|call| Some(*call) != answered) {
            self.answers.push_back((call, Short::Empty(true)));
        }
        live.end.is_none() && !mutant!(StreamStopUntold)
    }

    fn answer(&mut self, call: H, answer: Short) {
        self.answers.push_back((call, answer));
    }

    fn live(&mut self, stream: u32) -> Option<&mut Live<H>> {
        self.live.as_mut().filter(|_| stream == self.newest)
    }

    /// Number of the newest stream that the client has opened or closed; 0 for none.
    #[must_use]
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Whether there is no state to keep: no stream is alive and no call waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.live.is_none() && self.held.is_empty() && self.answers.is_empty()
    }

    /// Bytes of memory of the client's items that no handler has read yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        let held = self.held.iter().filter_map(|held| held.batch.as_ref());
        let live = self.live.as_ref().map_or(0, |live| live.inbox.footprint());
        live + held.map(Batch::footprint).sum::<usize>()
    }

    /// The client's next items. The push that brought them is answered now.
    pub fn next_batch(&mut self, stream: u32) -> ServerNext {
        let live = self.live.as_mut().filter(|_| stream == self.newest);
        let Some(live) = live else { return ServerNext::End };
        while let Some((batch, push)) = live.inbox.pop() {
            self.answers.extend(push.map(|push| (push, Short::Empty(false))));
            if let Some(batch) = batch {
                return ServerNext::Batch(batch);
            }
        }
        if live.inbox.is_over() { ServerNext::End } else { ServerNext::Wait }
    }

    /// Whether [`StreamServer::next_batch`] would return something other than `Wait`.
    #[must_use]
    pub fn is_readable(&self, stream: u32) -> bool {
        let live = self.live.as_ref().filter(|_| stream == self.newest);
        live.is_none_or(|live| live.inbox.is_readable() || live.inbox.is_over())
    }

    /// Records that the handler stops reading: further batches are answered and dropped.
    pub fn drop_reader(&mut self, stream: u32) {
        let Some(live) = self.live(stream) else { return };
        live.reader_gone = true;
        let pushes = live.inbox.discard().flatten().filter(|_| !mutant!(StreamPushesForgotten));
        self.answers.extend(pushes.map(|push| (push, Short::Empty(true))));
    }

    /// Whether the handler may send items: the client has not closed the stream, and the handler
    /// has not ended it.
    #[must_use]
    pub fn is_sending(&self, stream: u32) -> bool {
        let live = self.live.as_ref().filter(|_| stream == self.newest);
        live.is_some_and(|live| live.end.is_none())
    }

    /// If an item of `len` bytes is too large for the client, the size of the largest item that can
    /// be sent. `None` if the item is small enough.
    #[must_use]
    pub fn too_large(&self, len: usize) -> Option<usize> {
        self.live.as_ref().and_then(|live| live.outbox.too_large(len))
    }

    /// Whether an item of `len` bytes may be added now.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.live.as_ref().is_some_and(|live| live.outbox.has_room(len, live.pulls.len()))
    }

    /// Adds an item of `len` bytes, which `encode` writes. Before, the caller must check
    /// [`StreamServer::is_sending`] and [`StreamServer::has_room`].
    ///
    /// # Errors
    /// [`NoMemory`]; the item is not sent.
    pub fn put(
        &mut self,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
        pool: &mut Pool,
    ) -> Result<(), NoMemory> {
        self.live.as_mut().map_or(Ok(()), |live| live.outbox.put(len, encode, pool))
    }

    /// Sets the metadata sent with the handler's first item, as entries of an extension. Must be
    /// called before the first [`StreamServer::put`].
    pub fn set_entries(&mut self, stream: u32, entries: Vec<u8>) {
        if let Some(live) = self.live(stream) {
            live.outbox.set_entries(entries);
        }
    }

    /// Ends the stream after its handler has ended. The items that the handler has put are sent
    /// before the end.
    pub fn finish(&mut self, stream: u32, end: StreamResult) {
        let limit = self.limit;
        if let Some(live) = self.live(stream) {
            let mut bytes = if mutant!(StreamStatusLost) { OK.to_vec() } else { encoded(&end) };
            if let Err(status) = &end
                && FRAME_HEAD + EXTENSION_HEAD + bytes.len() > limit
            {
                let short = Status::new(status.code(), "(the status was too long to be sent)");
                bytes = encoded(&Err(short));
            }
            live.outbox.end(bytes.len());
            live.end = Some(bytes);
            self.drop_reader(stream);
        }
    }

    /// The next call to answer, and its answer; `None` if there is none.
    pub fn poll_answer(&mut self, pool: &mut Pool) -> Option<(H, StreamAnswer)> {
        if let Some((call, short)) = self.answers.pop_front() {
            return Some((
                call,
                match short {
                    Short::Empty(end) => empty(end, pool),
                    Short::Failed(status) => StreamAnswer::Failed(status),
                },
            ));
        }
        let live = self.live.as_mut()?;
        let call = *live.pulls.front()?;
        let taken = live.outbox.take()?;
        if !mutant!(StreamPullAnsweredTwice) {
            live.pulls.pop_front();
        }
        let last = taken.last;
        let message = live.batch(taken, self.newest, pool);
        if last && !mutant!(StreamEndLeavesPulls) || message.is_err() {
            // After the last batch, the remaining pulls have nothing to wait for. If memory ran
            // out, this was the last batch, too, because only the end of a stream needs memory
            // here. In both cases the handler has ended.
            let running = self.stop();
            debug_assert!(!running, "a stream ended before its handler");
        }
        Some((call, message.map_or_else(|error| no_memory(&error), StreamAnswer::Reply)))
    }
}

impl<H: Copy + PartialEq> Live<H> {
    fn new(limit: usize) -> Self {
        let mut outbox = Outbox::new(Vec::new());
        outbox.set_limit(limit);
        Self { inbox: Inbox::new(), outbox, pulls: VecDeque::new(), reader_gone: false, end: None }
    }

    /// Whether the call waits in this stream.
    fn has(&self, call: H) -> bool {
        self.pulls.contains(&call) || self.inbox.with().any(|push| *push == Some(call))
    }

    /// The reply that carries a batch.
    fn batch(&mut self, taken: Taken, stream: u32, pool: &mut Pool) -> Result<MsgBuf, NoMemory> {
        let Taken { seq, gather, last } = taken;
        let mut gather = match gather {
            Some(gather) => gather,
            None => self.outbox.empty(seq, pool)?,
        };
        if let (true, Some(end)) = (last, &self.end) {
            gather.append(end, pool)?;
        }
        Ok(gather.finish(items_op(last), stream, seq))
    }
}

/// The status that ends a stream, in wire form.
fn encoded(end: &StreamResult) -> Vec<u8> {
    match end {
        Ok(()) => OK.to_vec(),
        Err(status) => {
            let mut bytes = Vec::new();
            encode_status(status, &mut bytes);
            bytes
        }
    }
}

/// A reply without items.
fn empty(end: bool, pool: &mut Pool) -> StreamAnswer {
    let message = pool.alloc(EXTENSION_HEAD);
    match message {
        Ok(mut message) => {
            put_extension(empty_op(end), &[], &mut message);
            StreamAnswer::Reply(message)
        }
        Err(error) => no_memory(&error),
    }
}

#[cold]
fn no_memory(_: &NoMemory) -> StreamAnswer {
    StreamAnswer::Failed(Status::resource_exhausted(
        "the server has no memory for the stream's items",
    ))
}
