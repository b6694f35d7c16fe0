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

/// How a stream ends well: code and length of the message, both 0.
const OK: [u8; 8] = [0; 8];

/// The server's end of the streams of one session: the one that lives, and what came too early for the
/// next. `H` names a call that waits for its answer.
///
/// ```text
///   request, cancelled     what the client asks for       poll_answer  what to answer, until None
///   next_batch             the client's items             put, finish  the handler's, and its end
/// ```
///
/// What the handler does names its stream: the client may have ended it, and begun another, before the
/// handler knows. After anything was done, [`StreamServer::poll_answer`] is to be asked, at the latest at the end
/// of the turn. Every call is answered once.
#[derive(Debug)]
pub struct StreamServer<H> {
    /// The newest stream that the client has opened, or closed before that; 0 none.
    newest: u32,
    /// That stream, while it lives.
    live: Option<Live<H>>,
    /// Calls of streams to come.
    held: Vec<Held<H>>,
    answers: VecDeque<(H, Short)>,
    /// The largest message that the client takes.
    limit: usize,
}

#[derive(Debug)]
struct Live<H> {
    /// The client's batches, with the push to answer; OPEN is answered as a pull.
    inbox: Inbox<Option<H>>,
    outbox: Outbox,
    /// Pulls that wait, the oldest first.
    pulls: VecDeque<H>,
    /// The handler reads no more.
    reader_gone: bool,
    /// How the handler has ended, as it travels.
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
    /// Done with; with `true`, and no more is taken or sent.
    Empty(bool),
    Failed(Status),
}

/// How a call is answered.
#[derive(Debug)]
pub enum StreamAnswer {
    /// With an extended message.
    Reply(MsgBuf),
    /// With a failure.
    Failed(Status),
}

/// What a call of the client's means for the handlers.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[must_use]
pub struct Effect {
    /// The stream that lived is over; its handler is to be dropped.
    pub stop: bool,
    /// A stream begins, after that; its handler is to be started.
    pub start: bool,
}

/// What a handler that reads gets.
#[derive(Debug)]
pub enum ServerNext {
    /// Items, at least one.
    Batch(Batch),
    /// Nothing yet.
    Wait,
    /// There are no more.
    End,
}

impl<H: Copy + PartialEq> StreamServer<H> {
    /// For a client that takes responses of up to `limit` bytes.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self { newest: 0, live: None, held: Vec::new(), answers: VecDeque::new(), limit }
    }

    /// A call has come; `batch` are its items, `None` if there are none.
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
                // The first of an empty inbox is never misplaced.
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

    /// A pull or a push of the newest stream, or any call of an older one.
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
                        "the batch came before, or cannot come yet",
                    )),
                }
            }
            (Some(_), StreamOp::Open | StreamOp::Pull) => {
                Short::Failed(Status::invalid_argument("the stream is open, or pulled too often"))
            }
            // The stream is over, or its items are no longer read.
            _ => Short::Empty(true),
        };
        self.answer(call, answer);
    }

    /// What was held for the newest stream is for it to take; for older ones it is too late.
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

    /// The client has given a call up. It does so only with all of the stream, so this closes it.
    pub fn cancelled(&mut self, call: H) -> Effect {
        let held = self.held.iter().position(|held| held.call == call);
        if let Some(at) = held {
            self.held.swap_remove(at);
        } else if !self.live.as_ref().is_some_and(|live| live.has(call)) {
            return Effect::default();
        }
        self.answer(call, Short::Failed(Status::new(Code::Cancelled, "the client gave up")));
        let stop = held.is_none() && self.stop_but(Some(call));
        Effect { stop, start: false }
    }

    fn stop(&mut self) -> bool {
        self.stop_but(None)
    }

    /// Ends the stream that lives: whatever waits is answered, but for one call. Whether there is a handler
    /// to be dropped.
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

    /// The number of the stream that was opened last.
    #[must_use]
    pub fn newest(&self) -> u32 {
        self.newest
    }

    /// Whether there is nothing to remember: no stream lives, and no call waits.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.live.is_none() && self.held.is_empty() && self.answers.is_empty()
    }

    /// Bytes of memory that the client's items take that no handler has read yet.
    #[must_use]
    pub fn unread(&self) -> usize {
        let held = self.held.iter().filter_map(|held| held.batch.as_ref());
        let live = self.live.as_ref().map_or(0, |live| live.inbox.footprint());
        live + held.map(Batch::footprint).sum::<usize>()
    }

    /// The client's next items. The push that brought them is answered.
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

    /// Whether [`StreamServer::next_batch`] would not say to wait.
    #[must_use]
    pub fn is_readable(&self, stream: u32) -> bool {
        let live = self.live.as_ref().filter(|_| stream == self.newest);
        live.is_none_or(|live| live.inbox.is_readable() || live.inbox.is_over())
    }

    /// The handler reads no more: what comes is answered and dropped.
    pub fn drop_reader(&mut self, stream: u32) {
        let Some(live) = self.live(stream) else { return };
        live.reader_gone = true;
        let pushes = live.inbox.discard().flatten().filter(|_| !mutant!(StreamPushesForgotten));
        self.answers.extend(pushes.map(|push| (push, Short::Empty(true))));
    }

    /// Whether the handler may send items: the client has not closed the stream, and it has not ended.
    #[must_use]
    pub fn is_sending(&self, stream: u32) -> bool {
        let live = self.live.as_ref().filter(|_| stream == self.newest);
        live.is_some_and(|live| live.end.is_none())
    }

    /// The largest item that the client takes, if one of `len` bytes is larger: it can never be sent.
    #[must_use]
    pub fn too_large(&self, len: usize) -> Option<usize> {
        self.live.as_ref().and_then(|live| live.outbox.too_large(len))
    }

    /// Whether an item of `len` bytes may be put in now.
    #[must_use]
    pub fn has_room(&self, len: usize) -> bool {
        self.live.as_ref().is_some_and(|live| live.outbox.has_room(len, live.pulls.len()))
    }

    /// Puts in an item of `len` bytes, which `encode` writes. To be asked before: [`StreamServer::is_sending`] and
    /// [`StreamServer::has_room`].
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

    /// What goes beside the handler's first item, as entries of an extension. To be said before that is put in.
    pub fn set_entries(&mut self, stream: u32, entries: Vec<u8>) {
        if let Some(live) = self.live(stream) {
            live.outbox.set_entries(entries);
        }
    }

    /// The handler is done: the stream ends behind the items that are there.
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

    /// What is to be answered next, if anything.
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
            // What still waits has nothing to wait for. Memory is short only for an end: the handler is done.
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

    /// Whether the call waits here.
    fn has(&self, call: H) -> bool {
        self.pulls.contains(&call) || self.inbox.with().any(|push| *push == Some(call))
    }

    /// The reply that a batch makes.
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

/// The status that ends a stream.
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
