//! The streams of a client on one session.

use std::cell::{Cell, RefCell};
use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::{Rc, Weak};
use std::task::{Context as TaskContext, Poll};

use super::answer::no_memory;
use super::requests::Requests;
use crate::buf::MsgBuf;
use crate::event_loop::Context;
use crate::event_loop::flush::Flush;
use crate::executor::sleep::Sleep;
use crate::executor::tasks::{TaskId, WakeSlot};
use crate::executor::waiters::StreamWaiters;
use crate::log;
use crate::protocol::{
    self, Body, CallError, Cause, ClientId, ClientStats, DEFAULT_SLOTS, RejectReason, RequestHandle,
};
use crate::service::{
    Arrival, CallTask, DecodeError, MetadataRef, ServerStream, Sink, Source, StreamMethod, late,
    malformed_item,
};
use crate::status::Status;
use crate::stream::{
    BATCH, Batch, Effect, ServerNext, StreamAnswer, StreamOp, StreamRequest, StreamResult,
    StreamServer,
};
use crate::time::Instant;
use crate::transport::Transport;
use crate::wire::extension::Extension;

/// The streams of one session. At most one is alive at a time.
pub(crate) struct ServerStreams<T: Transport> {
    me: Weak<Self>,
    client: ClientId,
    /// Weak, because the endpoint holds the handlers' tasks, which hold this object.
    requests: Weak<Requests<T>>,
    state: RefCell<SessionStreams>,
    /// Whether this is in the list of streams to flush.
    dirty: Cell<bool>,
}

struct SessionStreams {
    machine: StreamServer<RequestHandle>,
    /// The task of the live stream's handler.
    task: Option<TaskId>,
    waiting: StreamWaiters,
}

impl<T: Transport> Requests<T> {
    /// Handles a call of a stream.
    ///
    /// # Errors
    /// The status to answer the call with, if it cannot be served.
    pub(super) fn stream_request(
        &self,
        cx: &mut Context<'_, T>,
        method: &Rc<dyn StreamMethod>,
        request: protocol::Request<'_, T::Route>,
        peer: Option<SocketAddr>,
    ) -> Result<(), Status> {
        let protocol::Request { handle: call, body, extended, deadline, .. } = request;
        let bytes = body.as_slice();
        if !extended {
            return Err(Status::invalid_argument(
                "the method streams, and the request is a plain call; are both sides built from the same .proto?",
            ));
        }
        let (request, metadata, offset) = parse(bytes)?;
        let arrival = match request.ask {
            StreamOp::Open => {
                self.running.in_time(deadline, || self.scheduler().now())?;
                Some(Arrival { call, peer, deadline, metadata: metadata.to_owned() })
            }
            _ => None,
        };
        let stats = cx.client_stats(call.client());
        if stats.is_some_and(|stats| usize::from(stats.slots) < DEFAULT_SLOTS) {
            // Pulls wait at the server. With fewer slots they could occupy all, and the client could
            // never push.
            return Err(Status::failed_precondition(
                "a stream needs a session with at least 8 slots; raise EndpointConfig::slots at the client and the server",
            ));
        }
        let limit = stats.map_or(0, |stats| stats.max_response);
        let streams = self.streams_of(call.client(), limit as usize);
        if self.draining.get() && streams.state.borrow().machine.is_early(&request) {
            // While the endpoint drains, the protocol refuses the call that would open the stream, if
            // its first packet arrives. If that packet arrived before, the call comes here. The other
            // calls of the stream may have been refused meanwhile, so all are refused.
            cx.refuse(call);
            return Ok(());
        }
        let unread = streams.state.borrow().machine.unread();
        // One batch is always accepted; otherwise a stream of large messages could not make
        // progress.
        if unread > 0 && !cx.may_keep(call.client(), unread + bytes.len()) {
            return Err(too_much());
        }
        let batch = match request.items.count {
            0 => None,
            _ => {
                let message = match body {
                    Body::Message(message) => message,
                    Body::Packet(bytes) => self.pool().copy(bytes).map_err(|_| no_memory())?,
                };
                Some(Batch::new(message, offset, request.items))
            }
        };
        let effect = streams.state.borrow_mut().machine.request(call, request, batch);
        streams.affect(self, effect);
        if let (true, Some(arrival)) = (effect.start, arrival) {
            let end = StreamEnd { streams: Rc::clone(&streams), number: request.stream };
            let end: Rc<dyn ServerStream> = Rc::new(end);
            let task = Rc::clone(method).start(arrival, Rc::clone(&end));
            let task = match deadline {
                Instant::NEVER => task,
                _ => Box::pin(in_time(Sleep::new(self.scheduler(), deadline), task, end)),
            };
            let task = self.scheduler().executor().start_boxed(task);
            streams.state.borrow_mut().task = Some(task);
        }
        streams.flush_to(cx, self);
        Ok(())
    }

    /// Handles the cancel of a call, which may belong to a stream.
    pub(super) fn stream_cancelled(&self, cx: &mut Context<'_, T>, call: RequestHandle) {
        let streams = self.streams.borrow().get(&call.client()).cloned();
        // If the session is gone, `client_gone` ends its streams shortly.
        let Some(streams) = streams.filter(|_| cx.client_stats(call.client()).is_some()) else {
            return;
        };
        let effect = streams.state.borrow_mut().machine.cancelled(call);
        streams.affect(self, effect);
        streams.flush_to(cx, self);
    }

    /// A client has opened a session.
    pub(crate) fn client_came(&self, cx: &Context<'_, T>, client: ClientId) {
        if let Some(peer) = cx.client_address(client) {
            self.clients.borrow_mut().insert(client, peer);
            log::client_came(cx.now(), &peer);
        }
    }

    /// Ends the streams of a client's session that is gone.
    pub(crate) fn client_gone(&self, now: Instant, client: ClientId, cause: Cause) {
        // A session that ended in the turn in which it began was never reported.
        if let Some(peer) = self.clients.borrow_mut().remove(&client) {
            log::client_gone(now, &peer, cause);
        }
        let streams = self.streams.borrow_mut().remove(&client);
        if let Some(streams) = streams {
            streams.end_task(self);
        }
        if self.draining.get() {
            let watchers = self.watchers.take();
            watchers.wake(self.scheduler().executor());
        }
    }

    /// Refuses the calls that continue streams that are not open.
    pub(super) fn refuse_early(&self, cx: &mut Context<'_, T>) {
        let all: Vec<_> = self.streams.borrow().values().cloned().collect();
        for streams in all {
            let early = streams.state.borrow_mut().machine.take_early();
            early.into_iter().for_each(|call| cx.refuse(call));
        }
    }

    /// Ends all streams with `status`. Returns the number of streams whose handlers were running.
    pub(super) fn cut_off_streams(&self, cx: &mut Context<'_, T>, status: &Status) -> usize {
        let all: Vec<_> = self.streams.borrow().values().cloned().collect();
        let mut count = 0;
        for streams in all {
            let mut state = streams.state.borrow_mut();
            let newest = state.machine.newest();
            let runs = state.machine.is_sending(newest);
            if runs {
                state.machine.finish(newest, Err(status.clone()));
                count += 1;
            }
            drop(state);
            if runs {
                streams.end_task(self);
                streams.flush_to(cx, self);
            }
        }
        count
    }

    /// The streams of a client, created on first use. The client accepts messages of up to `limit`
    /// bytes.
    fn streams_of(&self, client: ClientId, limit: usize) -> Rc<ServerStreams<T>> {
        let mut clients = self.streams.borrow_mut();
        let streams = clients.entry(client).or_insert_with(|| {
            Rc::new_cyclic(|me| ServerStreams {
                me: Weak::clone(me),
                client,
                requests: self.downgrade(),
                state: RefCell::new(SessionStreams {
                    machine: StreamServer::new(limit),
                    task: None,
                    waiting: StreamWaiters::default(),
                }),
                dirty: Cell::new(false),
            })
        });
        Rc::clone(streams)
    }
}

/// Runs a handler, at most until its stream's deadline.
async fn in_time(sleep: Sleep, mut task: CallTask, end: Rc<dyn ServerStream>) {
    if sleep.limit(&mut task).await.is_err() {
        // Dropping a handler's values may panic; the panic hook has reported it.
        drop(catch_unwind(AssertUnwindSafe(|| drop(task))));
        end.finish(Err(late()));
    }
}

/// Parses a stream call: the request, its metadata, and the offset of its frame in bytes.
fn parse(bytes: &[u8]) -> Result<(StreamRequest, MetadataRef<'_>, usize), Status> {
    let (extension, frame) = Extension::split(bytes).map_err(|error| {
        Status::invalid_argument(format!("the request's extension is malformed: {error:?}"))
    })?;
    let request = StreamRequest::parse(extension.op(), frame).map_err(|error| {
        Status::invalid_argument(format!("the request is not a stream call: {error}"))
    })?;
    Ok((request, MetadataRef::new(extension.as_bytes()), bytes.len() - frame.len()))
}

#[cold]
fn too_much() -> Status {
    Status::resource_exhausted(
        "the handler has not read earlier messages, and the session has no memory for more",
    )
}

impl<T: Transport> ServerStreams<T> {
    /// Applies the effect of a client's call: stops the handler if needed. The caller of this
    /// function starts the next handler.
    fn affect(&self, requests: &Requests<T>, effect: Effect) {
        if effect.stop {
            self.end_task(requests);
        }
    }

    fn end_task(&self, requests: &Requests<T>) {
        let task = self.state.borrow_mut().task.take();
        if let Some(task) = task {
            // Dropping a handler's values may panic; the panic hook has reported it.
            drop(catch_unwind(AssertUnwindSafe(|| requests.scheduler().executor().abort(task))));
        }
    }

    /// Sends the pending answers, and wakes the handler if it can continue.
    fn flush_to(&self, cx: &mut Context<'_, T>, requests: &Requests<T>) {
        self.dirty.set(false);
        loop {
            let answer = self.state.borrow_mut().machine.poll_answer(&mut requests.pool());
            match answer {
                Some((call, StreamAnswer::Reply(message))) => cx.respond(call, message, true),
                Some((call, StreamAnswer::Failed(status))) => cx.respond_status(call, &status),
                None => break,
            }
        }
        let mut state = self.state.borrow_mut();
        let SessionStreams { machine, waiting, .. } = &mut *state;
        cx.keep(self.client, machine.unread());
        let mut woken = StreamWaiters::default();
        let stream = machine.newest();
        if machine.is_readable(stream) {
            woken.reader = std::mem::take(&mut waiting.reader);
        }
        if machine.has_room(BATCH) || !machine.is_sending(stream) {
            woken.writers = std::mem::take(&mut waiting.writers);
        }
        drop(state);
        woken.wake(requests.scheduler().executor());
    }

    /// Queues the streams to be flushed at the end of the turn.
    fn mark(&self) {
        if !self.dirty.replace(true)
            && let (Some(requests), Some(streams)) = (self.requests.upgrade(), self.me.upgrade())
            && !requests.scheduler().is_closed()
        {
            requests.flushes().push(streams);
            requests.scheduler().wake_loop();
        }
    }
}

impl<T: Transport> Flush<T> for ServerStreams<T> {
    fn flush(&self, cx: &mut Context<'_, T>) {
        if let Some(requests) = self.requests.upgrade() {
            self.flush_to(cx, &requests);
        }
    }

    fn shut_down(&self) {}
}

/// The handler's end of one stream of a session.
struct StreamEnd<T: Transport> {
    streams: Rc<ServerStreams<T>>,
    number: u32,
}

impl<T: Transport> Source for StreamEnd<T> {
    fn poll_batch(&self, cx: &TaskContext<'_>) -> Poll<Result<Option<Batch>, CallError>> {
        let Some(requests) = self.streams.requests.upgrade() else { return Poll::Ready(Ok(None)) };
        let mut state = self.streams.state.borrow_mut();
        let mut earlier = WakeSlot::Empty;
        let next = match state.machine.next_batch(self.number) {
            ServerNext::Batch(batch) => Poll::Ready(Ok(Some(batch))),
            ServerNext::End => Poll::Ready(Ok(None)),
            ServerNext::Wait => {
                let waiter = requests.scheduler().executor().wake_slot(cx);
                earlier = std::mem::replace(&mut state.waiting.reader, waiter);
                Poll::Pending
            }
        };
        drop(state);
        // Drop the earlier waker only now, without a borrow: this may run arbitrary code, which may
        // use this stream.
        drop(earlier);
        if next.is_ready() {
            self.streams.mark();
        }
        next
    }

    fn batch_read(&self, memory: MsgBuf) {
        if let Some(requests) = self.streams.requests.upgrade() {
            requests.pool().recycle(memory);
        }
    }

    fn drop_reader(&self) {
        self.streams.state.borrow_mut().machine.drop_reader(self.number);
        self.streams.mark();
    }

    fn malformed(&self, error: &DecodeError) -> CallError {
        self.drop_reader();
        CallError::Status(malformed_item(error))
    }
}

impl<T: Transport> Sink for StreamEnd<T> {
    fn poll_put(
        &self,
        cx: &TaskContext<'_>,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
    ) -> Poll<Result<(), CallError>> {
        let ended = CallError::Rejected(RejectReason::StreamEnded);
        let Some(requests) = self.streams.requests.upgrade() else {
            return Poll::Ready(Err(ended));
        };
        let mut state = self.streams.state.borrow_mut();
        if !state.machine.is_sending(self.number) {
            return Poll::Ready(Err(ended));
        }
        if let Some(limit) = state.machine.too_large(len) {
            let reason = RejectReason::TooLarge { size: len, limit };
            return Poll::Ready(Err(CallError::Rejected(reason)));
        }
        if !state.machine.has_room(len) {
            state.waiting.writers.add(requests.scheduler().executor(), cx);
            return Poll::Pending;
        }
        let put = state.machine.put(len, encode, &mut requests.pool());
        drop(state);
        self.streams.mark();
        Poll::Ready(put.map_err(|error| CallError::Rejected(RejectReason::NoMemory(error))))
    }

    fn is_closed(&self) -> bool {
        !self.streams.state.borrow().machine.is_sending(self.number)
    }

    fn drop_writer(&self) {
        // The stream ends when its handler returns, with the handler's status.
    }
}

impl<T: Transport> ServerStream for StreamEnd<T> {
    fn set_metadata(&self, metadata: MetadataRef<'_>) {
        let entries = metadata.as_bytes().to_vec();
        self.streams.state.borrow_mut().machine.set_entries(self.number, entries);
    }

    fn finish(&self, end: StreamResult) {
        let mut state = self.streams.state.borrow_mut();
        // If the client has opened another stream, `task` belongs to that stream.
        if state.machine.is_sending(self.number) {
            state.machine.finish(self.number, end);
            state.task = None;
        }
        drop(state);
        self.streams.mark();
    }

    fn session_stats(&self) -> Option<ClientStats> {
        let requests = self.streams.requests.upgrade()?;
        let mut rpc = requests.rpc()?;
        rpc.context().client_stats(self.streams.client)
    }

    fn now(&self) -> Instant {
        let requests = self.streams.requests.upgrade();
        requests.map_or(Instant::NEVER, |requests| requests.scheduler().now())
    }
}
