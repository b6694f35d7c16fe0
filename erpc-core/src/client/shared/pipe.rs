//! The state that a stream's handles on any thread share with the stream's tasks at the endpoint.
//!
//! ```text
//!   handle                      task at the endpoint
//!   SharedIncoming  <- InPipe   <- InPump   <- ClientStream
//!   SharedOutgoing  -> OutPipe  -> OutPump  -> ClientStream
//! ```
//!
//! Both pipes are bounded: the pump takes no batch from the stream while the reader has
//! [`MAX_UNREAD`] of them, and a writer waits while [`BATCH`] bytes are unsent.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::BufMut;

use crate::buf::MsgBuf;
use crate::client::stream::caller::ClientStream;
use crate::protocol::{CallError, Cause, RejectReason};
use crate::service::{Metadata, Sink, Source};
use crate::stream::{BATCH, Batch};
use crate::sync::{Mutex, MutexGuard};
use crate::transport::Transport;

/// The most batches in an [`InPipe`] and in its reader's hands. With two, the next batch is there
/// when the reader has read one.
const MAX_UNREAD: usize = 2;

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

/// The server's items.
#[derive(Default)]
pub(super) struct InPipe {
    state: Mutex<InState>,
}

#[derive(Default)]
struct InState {
    batches: VecDeque<Batch>,
    /// Number of batches that the reader has not given back, those in `batches` included.
    unread: usize,
    /// The memory of batches that were read.
    returned: Vec<MsgBuf>,
    /// Metadata of the server's first item.
    metadata: Metadata,
    /// How the stream ended, after its last batch.
    end: Option<Result<(), CallError>>,
    /// Whether the reader was dropped.
    dropped: bool,
    reader: Option<Waker>,
    pump: Option<Waker>,
}

impl InPipe {
    /// The next batch. `None` at the end, also after an error.
    pub(super) fn poll_batch(&self, cx: &Context<'_>) -> Poll<Result<Option<Batch>, CallError>> {
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

    /// Gives back the memory of a batch that was read, so that the stream gets further batches.
    pub(super) fn give_back(&self, memory: MsgBuf) {
        let mut state = lock(&self.state);
        state.unread -= 1;
        state.returned.push(memory);
        let pump = state.pump.take();
        drop(state);
        wake(pump);
    }

    /// The reader was dropped.
    pub(super) fn drop_reader(&self) {
        let mut state = lock(&self.state);
        state.dropped = true;
        let (batches, pump) = (std::mem::take(&mut state.batches), state.pump.take());
        drop(state);
        drop(batches);
        wake(pump);
    }

    /// Metadata of the server's first item. Empty before it has arrived.
    pub(super) fn metadata(&self) -> Metadata {
        lock(&self.state).metadata.clone()
    }

    fn push(&self, batch: Batch) {
        let mut state = lock(&self.state);
        state.unread += 1;
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

    /// Takes the memory that the reader gave back. Also returns whether the pipe has room for a
    /// batch. `None` if the reader was dropped. Otherwise, stores the waker of `cx`, which the
    /// reader wakes when it gives back more or is dropped.
    fn take_returned(&self, cx: &Context<'_>) -> Option<(Vec<MsgBuf>, bool)> {
        let waker = cx.waker().clone();
        let mut state = lock(&self.state);
        if state.dropped {
            return None;
        }
        let returned = (std::mem::take(&mut state.returned), state.unread < MAX_UNREAD);
        let before = state.pump.replace(waker);
        drop(state);
        drop(before);
        Some(returned)
    }
}

/// The endpoint's side of an [`InPipe`]. If it is dropped before the stream has ended, the reader
/// gets an error.
pub(super) struct InPump {
    pipe: Arc<InPipe>,
    /// The error that the reader gets if the pump is dropped before the stream has ended.
    otherwise: CallError,
}

impl InPump {
    pub(super) fn new(pipe: &Arc<InPipe>) -> Self {
        Self { pipe: Arc::clone(pipe), otherwise: CallError::NotExecuted(Cause::Shutdown) }
    }

    /// Ends the stream before it has begun.
    pub(super) fn fail(mut self, error: CallError) {
        self.otherwise = error;
    }

    /// Moves batches from `source` to the pipe until the stream has ended or the reader is gone.
    pub(super) async fn run(mut self, source: Rc<dyn Source>) {
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

/// The client's items.
#[derive(Default)]
pub(super) struct OutPipe {
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
pub(super) struct OutPump {
    pipe: Arc<OutPipe>,
    /// The error that the writer gets if the pump is dropped before the stream has ended.
    otherwise: CallError,
}

impl OutPump {
    pub(super) fn new(pipe: &Arc<OutPipe>) -> Self {
        Self { pipe: Arc::clone(pipe), otherwise: CallError::NotExecuted(Cause::Shutdown) }
    }

    /// Moves items from the pipe to `stream` until the writer is gone or the stream accepts no
    /// more.
    pub(super) async fn run<T: Transport>(mut self, stream: Rc<ClientStream<T>>) {
        self.otherwise = SHUT_DOWN;
        while let Some(items) = poll_fn(|cx| self.pipe.poll_items(cx)).await {
            for item in items {
                let put = |cx: &mut Context<'_>| {
                    stream.poll_put(cx, item.len(), &mut |out| out.put_slice(&item))
                };
                let put = poll_fn(put).await;
                self.pipe.left(item.len());
                if let Err(error) = put {
                    if let CallError::Rejected(
                        RejectReason::TooLarge { .. } | RejectReason::NoMemory(_),
                    ) = error
                    {
                        // The writer's `send` of this item has returned already, so the error can
                        // only end the whole stream.
                        stream.end(error.clone());
                    }
                    return self.pipe.end(error);
                }
            }
        }
        stream.drop_writer();
    }
}

impl Drop for OutPump {
    fn drop(&mut self) {
        self.pipe.end(self.otherwise.clone());
    }
}
