//! The state that a stream's handles on any thread share with the stream's tasks at the endpoint.
//!
//! ```text
//!   handle                      task at the endpoint
//!   SharedIncoming  <- InPipe   <- InPump   <- Source
//!   SharedOutgoing  -> OutPipe  -> OutPump  -> Sink
//! ```
//!
//! Both pipes are bounded: the pump takes no batch from the stream while the reader has
//! [`MAX_UNREAD`] of them or [`MOST_AHEAD`] bytes, and a writer waits while [`BATCH`] bytes are
//! unsent.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BufMut;

use super::{Sink, Source};
use crate::buf::MsgBuf;
use crate::protocol::{CallError, Cause, RejectReason};
use crate::service::{DecodeError, Metadata};
use crate::status::Status;
use crate::stream::{BATCH, Batch};
use crate::sync::{Mutex, MutexGuard};

/// The most batches in an [`InPipe`] and in its reader's hands. With two, the next batch is there
/// when the reader has read one.
const MAX_UNREAD: usize = 2;

/// Bytes of unread batches from which the pump takes no further batch. Batches in the pipe do not
/// count against the memory of the stream's session. With this limit they are at most one large
/// message, like the one in the hands of a reader at the endpoint, and one batch of small ones.
const MOST_AHEAD: usize = 2 * BATCH;

/// The error of a stream whose endpoint has ended.
const SHUT_DOWN: CallError = CallError::MaybeExecuted(Cause::Shutdown);

fn lock<S>(state: &Mutex<S>) -> MutexGuard<'_, S> {
    // No code that can panic runs under these locks.
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// The other side's items.
pub(crate) struct InPipe {
    reader: Reader,
    state: Mutex<InState>,
}

/// The side that reads the items of an [`InPipe`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    Caller,
    Handler,
}

#[derive(Default)]
struct InState {
    batches: VecDeque<Batch>,
    /// Number of batches that the reader has not given back, those in `batches` included.
    unread: usize,
    /// Bytes of memory of these batches.
    bytes: usize,
    /// The memory of batches that were read.
    returned: Vec<MsgBuf>,
    /// Metadata of a server's first item.
    metadata: Metadata,
    /// How the stream ended, after its last batch.
    end: Option<Result<(), CallError>>,
    /// Whether the reader was dropped.
    dropped: bool,
    reader: Option<Waker>,
    pump: Option<Waker>,
}

impl InPipe {
    pub(crate) fn new(reader: Reader) -> Self {
        Self { reader, state: Mutex::default() }
    }

    fn push(&self, batch: Batch) {
        let mut state = lock(&self.state);
        state.unread += 1;
        state.bytes += batch.footprint();
        state.batches.push_back(batch);
        let reader = state.reader.take();
        drop(state);
        wake(reader);
    }

    fn end(&self, end: Result<(), CallError>) {
        let mut state = lock(&self.state);
        if state.end.is_none() {
            state.end = Some(end);
        }
        let (reader, pump) = (state.reader.take(), state.pump.take());
        drop(state);
        drop(pump);
        wake(reader);
    }

    /// The handler has ended: a task that has kept the reader gets the end after the batches that
    /// are in the pipe, and the pump stops.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(Ok(()));
        let (reader, pump) = (state.reader.take(), state.pump.take());
        drop(state);
        wake(reader);
        wake(pump);
    }

    /// Takes the memory that the reader gave back. Also returns whether the pipe has room for a
    /// batch. `None` if the reader was dropped or the handler has ended. Otherwise, stores the waker
    /// of `cx`, which the reader wakes when it gives back more or is dropped.
    fn take_returned(&self, cx: &Context<'_>) -> Option<(Vec<MsgBuf>, bool)> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if state.dropped || state.end.is_some() {
            return None;
        }
        let has_room = state.unread < MAX_UNREAD && state.bytes < MOST_AHEAD;
        let returned = (std::mem::take(&mut state.returned), has_room);
        let before = state.pump.replace(waker);
        drop(state);
        drop(before);
        Some(returned)
    }
}

/// The reader's side.
impl Source for InPipe {
    fn poll_batch(&self, cx: &Context<'_>) -> Poll<Result<Option<Batch>, CallError>> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if let Some(batch) = state.batches.pop_front() {
            return Poll::Ready(Ok(Some(batch)));
        }
        match &mut state.end {
            Some(end) => Poll::Ready(std::mem::replace(end, Ok(())).map(|()| None)),
            None => {
                let before = state.reader.replace(waker);
                drop(state);
                drop(before);
                Poll::Pending
            }
        }
    }

    fn batch_read(&self, memory: MsgBuf) {
        let mut state = lock(&self.state);
        state.unread -= 1;
        state.bytes -= memory.footprint();
        state.returned.push(memory);
        let pump = state.pump.take();
        drop(state);
        wake(pump);
    }

    fn drop_reader(&self) {
        let mut state = lock(&self.state);
        state.dropped = true;
        let (batches, pump) = (std::mem::take(&mut state.batches), state.pump.take());
        drop(state);
        drop(batches);
        wake(pump);
    }

    fn metadata(&self) -> Metadata {
        lock(&self.state).metadata.clone()
    }

    fn malformed(&self, error: &DecodeError) -> CallError {
        self.drop_reader();
        match self.reader {
            Reader::Caller => CallError::ResponseLost(Cause::Malformed),
            Reader::Handler => CallError::Status(malformed_item(error)),
        }
    }
}

/// The endpoint's side of an [`InPipe`]. If it is dropped before the stream has ended, the reader
/// gets an error.
pub(crate) struct InPump {
    pipe: Arc<InPipe>,
    /// The error that the reader gets if the pump is dropped before the stream has ended.
    otherwise: CallError,
}

impl InPump {
    pub(crate) fn new(pipe: &Arc<InPipe>) -> Self {
        Self { pipe: Arc::clone(pipe), otherwise: CallError::NotExecuted(Cause::Shutdown) }
    }

    /// Ends the stream before it has begun.
    pub(crate) fn fail(mut self, error: CallError) {
        self.otherwise = error;
    }

    /// Moves batches from `source` to the pipe until the stream has ended or the reader is gone.
    pub(crate) async fn run(mut self, source: Rc<dyn Source>) {
        self.otherwise = SHUT_DOWN;
        let mut known = false;
        poll_fn(|cx| {
            loop {
                let Some((returned, has_room)) = self.pipe.take_returned(cx) else {
                    source.drop_reader();
                    return Poll::Ready(());
                };
                returned.into_iter().for_each(|memory| source.batch_read(memory));
                if !has_room {
                    return Poll::Pending;
                }
                let batch = std::task::ready!(source.poll_batch(cx));
                if !std::mem::replace(&mut known, true) {
                    lock(&self.pipe.state).metadata = source.metadata();
                }
                let end = match batch {
                    Ok(Some(batch)) => {
                        self.pipe.push(batch);
                        continue;
                    }
                    Ok(None) => Ok(()),
                    Err(error) => Err(error),
                };
                self.pipe.end(end);
                return Poll::Ready(());
            }
        })
        .await;
    }
}

impl Drop for InPump {
    fn drop(&mut self) {
        self.pipe.end(Err(self.otherwise.clone()));
    }
}

/// This side's items.
#[derive(Default)]
pub(crate) struct OutPipe {
    state: Mutex<OutState>,
}

#[derive(Default)]
struct OutState {
    items: VecDeque<Vec<u8>>,
    /// Bytes of the items.
    bytes: usize,
    /// Why no more items are accepted.
    end: Option<CallError>,
    /// Whether the writer was dropped.
    dropped: bool,
    writers: Vec<Waker>,
    pump: Option<Waker>,
}

impl OutPipe {
    /// Puts an encoded item into the pipe, once there is room. Then `item` is `None`.
    pub(super) fn poll_put(
        &self,
        cx: &Context<'_>,
        item: &mut Option<Vec<u8>>,
    ) -> Poll<Result<(), CallError>> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if let Some(error) = &state.end {
            return Poll::Ready(Err(error.clone()));
        }
        if state.bytes >= BATCH {
            if !state.writers.iter().any(|other| other.will_wake(&waker)) {
                state.writers.push(waker);
            }
            return Poll::Pending;
        }
        if let Some(item) = item.take() {
            state.bytes += item.len().max(1);
            state.items.push_back(item);
        }
        let pump = state.pump.take();
        drop(state);
        wake(pump);
        Poll::Ready(Ok(()))
    }

    /// Whether items are no longer accepted.
    pub(super) fn is_closed(&self) -> bool {
        lock(&self.state).end.is_some()
    }

    /// The writer was dropped: no more items follow.
    pub(super) fn drop_writer(&self) {
        let mut state = lock(&self.state);
        state.dropped = true;
        let pump = state.pump.take();
        drop(state);
        wake(pump);
    }

    /// Accepts no more items: the handler has ended. The pump still gets those that were put.
    pub(crate) fn close(&self) {
        let mut state = lock(&self.state);
        state.dropped = true;
        state.end.get_or_insert(CallError::Rejected(RejectReason::StreamEnded));
        let (writers, pump) = (std::mem::take(&mut state.writers), state.pump.take());
        drop(state);
        writers.into_iter().for_each(Waker::wake);
        wake(pump);
    }

    /// Takes all items. `None` after the last one. If the pipe has no item now, stores the waker of
    /// `cx`.
    fn poll_items(&self, cx: &Context<'_>) -> Poll<Option<VecDeque<Vec<u8>>>> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if state.items.is_empty() {
            if state.dropped {
                return Poll::Ready(None);
            }
            let before = state.pump.replace(waker);
            drop(state);
            drop(before);
            return Poll::Pending;
        }
        let items = std::mem::take(&mut state.items);
        drop(state);
        Poll::Ready(Some(items))
    }

    /// An item of `len` bytes has left the pipe.
    fn left(&self, len: usize) {
        let mut state = lock(&self.state);
        state.bytes -= len.max(1);
        let writers =
            if state.bytes < BATCH { std::mem::take(&mut state.writers) } else { Vec::new() };
        drop(state);
        writers.into_iter().for_each(Waker::wake);
    }

    fn end(&self, error: CallError) {
        let mut state = lock(&self.state);
        state.end.get_or_insert(error);
        let (items, writers) =
            (std::mem::take(&mut state.items), std::mem::take(&mut state.writers));
        drop(state);
        drop(items);
        writers.into_iter().for_each(Waker::wake);
    }
}

/// The endpoint's side of an [`OutPipe`]. If it is dropped before the stream has ended, the writer
/// gets an error.
pub(crate) struct OutPump {
    pipe: Arc<OutPipe>,
    /// The error that the writer gets if the pump is dropped before the stream has ended.
    otherwise: CallError,
}

impl OutPump {
    pub(crate) fn new(pipe: &Arc<OutPipe>) -> Self {
        Self { pipe: Arc::clone(pipe), otherwise: CallError::NotExecuted(Cause::Shutdown) }
    }

    /// Ends the stream before it has begun.
    pub(crate) fn fail(mut self, error: CallError) {
        self.otherwise = error;
    }

    /// Moves items from the pipe to `sink` until the writer is gone.
    ///
    /// # Errors
    /// The error of an item that `sink` refused. If it [concerns only that item](is_of_item), it
    /// must end the stream nevertheless: the writer's `send` of the item has returned already.
    pub(crate) async fn run(mut self, sink: Rc<dyn Sink>) -> Result<(), CallError> {
        self.otherwise = SHUT_DOWN;
        while let Some(items) = poll_fn(|cx| self.pipe.poll_items(cx)).await {
            for item in items {
                let put = |cx: &mut Context<'_>| {
                    sink.poll_put(cx, item.len(), &mut |out| out.put_slice(&item))
                };
                let put = poll_fn(put).await;
                self.pipe.left(item.len());
                if let Err(error) = put {
                    self.pipe.end(error.clone());
                    return Err(error);
                }
            }
        }
        sink.drop_writer();
        Ok(())
    }
}

impl Drop for OutPump {
    fn drop(&mut self) {
        self.pipe.end(self.otherwise.clone());
    }
}

/// Whether a stream that refuses an item with `error` goes on.
pub(crate) fn is_of_item(error: &CallError) -> bool {
    matches!(error, CallError::Rejected(RejectReason::TooLarge { .. } | RejectReason::NoMemory(_)))
}

/// The status of a stream with an item that the handler's side cannot decode.
#[cold]
pub(crate) fn malformed_item(error: &DecodeError) -> Status {
    Status::invalid_argument(format!("a message cannot be decoded: {error}"))
}

#[cfg(all(test, not(loom)))]
mod tests {
    use std::pin::pin;

    use super::super::testing::Batches;
    use super::*;

    #[test]
    fn a_pipe_is_ahead_of_its_reader_by_two_small_batches_or_one_large_message() {
        for (len, ahead) in [(1_000, 2), (BATCH, 2), (4 * BATCH, 1)] {
            let source = Rc::new(Batches::new(len, usize::MAX));
            let pipe = Arc::new(InPipe::new(Reader::Handler));
            let mut pump = pin!(InPump::new(&pipe).run(Rc::clone(&source) as _));
            let cx = &mut Context::from_waker(Waker::noop());
            assert!(pump.as_mut().poll(cx).is_pending());
            assert_eq!(source.taken.get(), ahead, "{len} bytes each");
            let Poll::Ready(Ok(Some(batch))) = pipe.poll_batch(cx) else { panic!("a batch") };
            assert!(pump.as_mut().poll(cx).is_pending());
            assert_eq!(source.taken.get(), ahead, "the reader has not read the batch");
            pipe.batch_read(batch.into_message());
            assert!(pump.as_mut().poll(cx).is_pending());
            assert_eq!((source.taken.get(), source.read.get()), (ahead + 1, 1));
        }
    }

    #[test]
    fn a_reader_that_outlives_the_handler_gets_the_end_after_its_batches() {
        let source = Rc::new(Batches::new(10, 1));
        let pipe = Arc::new(InPipe::new(Reader::Handler));
        let mut pump = Box::pin(InPump::new(&pipe).run(Rc::clone(&source) as _));
        let cx = &mut Context::from_waker(Waker::noop());
        assert!(pump.as_mut().poll(cx).is_pending());
        pipe.close();
        assert!(pump.as_mut().poll(cx).is_ready());
        assert!(source.dropped.get(), "the stream drops further batches");
        drop(pump);
        assert!(matches!(pipe.poll_batch(cx), Poll::Ready(Ok(Some(_)))));
        assert!(matches!(pipe.poll_batch(cx), Poll::Ready(Ok(None))));
    }
}
