//! The client's end of a stream.

use std::cell::{Cell, OnceCell, RefCell, RefMut};
use std::rc::{Rc, Weak};
use std::task::{Context as TaskContext, Poll};

use super::pool::StreamLease;
use crate::buf::MsgBuf;
use crate::calling::link::LinkPhase;
use crate::calling::response::named;
use crate::calling::retry::is_repeatable;
use crate::calling::streams::StreamCaller;
use crate::endpoint::parts::EndpointParts;
use crate::event_loop::Context;
use crate::event_loop::flush::Flush;
use crate::executor::scheduler::Scheduler;
use crate::executor::sleep::Sleep;
use crate::executor::tasks::{TaskId, WakeSlot};
use crate::executor::waiters::StreamWaiters;
use crate::protocol::{CallError, Cause, NewCall, RejectReason, Rejected, SessionId, SessionStats};
use crate::service::{DecodeError, Metadata, MetadataRef, Sink, Source};
use crate::stream::{BATCH, Batch, ClientNext, StreamClient, StreamOp};
use crate::time::Instant;
use crate::transport::Transport;

/// A stream and its session. No other stream or call uses that session.
pub(crate) struct ClientStream<T: Transport> {
    me: Weak<Self>,
    endpoint: Rc<EndpointParts<T>>,
    method: u32,
    /// The method's full name.
    name: &'static str,
    /// Deadline of the stream. Each of its calls has the same deadline, so that the protocol ends
    /// the call in time; only the call that closes the stream has none.
    deadline: Instant,
    state: RefCell<ClientStreamState<T>>,
    /// Whether the stream is in the list of streams to flush.
    dirty: Cell<bool>,
    /// The channel of the stream; not set for a stream of a session.
    home: OnceCell<Box<dyn StreamHome<T>>>,
    /// Number of times that the stream has left a server.
    moves: Cell<u32>,
}

/// Finds another server for a stream.
pub(super) trait StreamHome<T: Transport> {
    /// Whether the stream may leave its server for another one.
    fn can_move(&self) -> bool;

    /// Whether the channel's retry budget allows the stream to leave its server, which has not
    /// executed it because of `error`. Takes the move from the budget.
    fn grants_move(&self, error: &CallError) -> bool;

    /// Starts to look for a server for `stream`. Returns false if no search is possible any more.
    fn search(&self, stream: &Rc<ClientStream<T>>, left: Option<LeftServer<T::Route>>) -> bool;
}

/// The server that a stream has left.
#[derive(Clone, Copy)]
pub(super) struct LeftServer<R> {
    pub(super) peer: R,
    /// How many servers the stream has left, at least one.
    pub(super) moves: u32,
}

/// Most times that a stream moves to another server, because its server has refused the stream or
/// could not be reached.
const MOST_MOVES: u32 = 8;

struct ClientStreamState<T: Transport> {
    machine: StreamClient,
    /// `None` before the stream has a session, while it looks for another server, and once it is
    /// over.
    lease: Option<StreamLease<T>>,
    /// Whether the machine knows the server's limit for requests.
    knows_limit: bool,
    /// Ends the stream at its deadline. `None` without a deadline, and once the stream is over.
    timer: Option<DeadlineTask>,
    /// The deadline has passed, and the stream has not been ended for that reason yet.
    late: bool,
    waiting: StreamWaiters,
}

/// The task that waits for a stream's deadline. Dropping this value aborts the task.
struct DeadlineTask {
    scheduler: Rc<Scheduler>,
    task: TaskId,
}

impl Drop for DeadlineTask {
    fn drop(&mut self) {
        self.scheduler.executor().abort(self.task);
    }
}

impl<T: Transport> ClientStreamState<T> {
    /// Ends the stream with an error of this side. At a deadline, the caller checks first that no
    /// call is in flight: the call's own error would be more precise.
    fn end_early(&mut self, cause: Cause) {
        self.machine.fail(match self.machine.has_begun() {
            true => CallError::MaybeExecuted(cause),
            false => CallError::NotExecuted(cause),
        });
    }

    /// The session, if it is open and the machine does not know the server's request limit yet.
    fn may_learn(&self) -> Option<SessionId> {
        let lease = self.lease.as_ref().filter(|_| !self.knows_limit)?;
        (lease.link().phase() == LinkPhase::Open).then(|| lease.link().id()).flatten()
    }

    /// Sets the server's request limit.
    fn learn(&mut self, stats: Option<SessionStats>) {
        if let Some(stats) = stats {
            self.knows_limit = true;
            self.machine.set_limit(stats.max_request as usize);
        }
    }
}

impl<T: Transport> ClientStream<T> {
    /// A stream on the session of `lease`, or without a session until [`ClientStream::bind`].
    /// `entries` are the metadata of its first request.
    pub(crate) fn new(
        endpoint: &Rc<EndpointParts<T>>,
        method: u32,
        name: &'static str,
        deadline: Instant,
        entries: Vec<u8>,
        lease: Option<StreamLease<T>>,
    ) -> Rc<Self> {
        let machine = StreamClient::new(lease.as_ref().map_or(0, StreamLease::number), entries);
        let stream = Rc::new_cyclic(|me| Self {
            me: Weak::clone(me),
            endpoint: Rc::clone(endpoint),
            method,
            name,
            deadline,
            state: RefCell::new(ClientStreamState {
                machine,
                lease,
                knows_limit: false,
                timer: None,
                late: false,
                waiting: StreamWaiters::default(),
            }),
            dirty: Cell::new(false),
            home: OnceCell::new(),
            moves: Cell::new(0),
        });
        stream.learn_now(&mut stream.state.borrow_mut());
        stream.arm();
        stream.mark();
        stream
    }

    /// Starts the deadline timer. Calls have the deadline too, but a stream whose reader does not
    /// read makes no calls.
    fn arm(&self) {
        if self.deadline == Instant::NEVER || self.endpoint.is_closed() {
            return;
        }
        let (stream, sleep) =
            (Weak::clone(&self.me), Sleep::new(self.endpoint.scheduler(), self.deadline));
        let task = self.endpoint.scheduler().spawn_internal(async move {
            sleep.await;
            if let Some(stream) = stream.upgrade() {
                stream.state.borrow_mut().late = true;
                stream.settle();
            }
        });
        let timer = DeadlineTask { scheduler: Rc::clone(self.endpoint.scheduler()), task };
        self.state.borrow_mut().timer = Some(timer);
    }

    /// Reads the server's request limit if the session is open and the limit is not known yet. If a
    /// turn is running, the stream's next flush reads the limit instead.
    fn learn_now(&self, state: &mut ClientStreamState<T>) {
        if let Some(id) = state.may_learn()
            && let Some(mut rpc) = self.endpoint.rpc()
        {
            state.learn(rpc.context_at(self.endpoint.scheduler().now()).session_stats(id));
        }
    }

    /// The stream's deadline.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Sets the channel of the stream, which may find other servers.
    pub(super) fn set_home(&self, home: Box<dyn StreamHome<T>>) {
        debug_assert!(self.home.get().is_none(), "a stream has one channel");
        drop(self.home.set(home));
    }

    /// Looks for a server for a stream that has no session.
    pub(super) fn search(&self, left: Option<LeftServer<T::Route>>) {
        let Some(stream) = self.me.upgrade() else { return };
        if !self.home.get().is_some_and(|home| home.search(&stream, left)) {
            self.end_unbound(CallError::NotExecuted(Cause::Shutdown));
        }
    }

    /// Gives a session to a stream that has none.
    pub(crate) fn bind(&self, lease: StreamLease<T>) {
        let mut state = self.state.borrow_mut();
        state.machine.bind(lease.number());
        state.lease = Some(lease);
        state.knows_limit = false;
        self.learn_now(&mut state);
        // Wake the waiting writers, so that they can now wait for the session to open.
        let writers = std::mem::take(&mut state.waiting.writers);
        drop(state);
        writers.wake(self.endpoint.scheduler().executor());
        self.mark();
    }

    /// Puts the client's only item, and ends the client's items. If the item is too large or there
    /// is no memory for it, the stream fails. Does nothing if the stream has already ended.
    pub(in crate::client) fn put_only(
        &self,
        len: usize,
        limit: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
    ) {
        let mut state = self.state.borrow_mut();
        if state.machine.sending().is_err() {
            return;
        }
        let limit = state.machine.too_large(len).map_or(limit, |most| most.min(limit));
        let put = match len > limit {
            true => Err(RejectReason::TooLarge { size: len, limit }),
            false => state
                .machine
                .put(len, encode, &mut self.endpoint.pool())
                .map_err(RejectReason::NoMemory),
        };
        match put {
            Ok(()) => state.machine.end_items(),
            Err(reason) => state.machine.fail(CallError::Rejected(reason)),
        }
    }

    /// Queues the stream to be flushed at the end of the running turn, or at the start of the next
    /// one. Does nothing once the endpoint is closed: a closed endpoint flushes no more, and a
    /// queued stream would keep it in memory.
    fn mark(&self) {
        if !self.endpoint.is_closed()
            && !self.dirty.replace(true)
            && let Some(stream) = self.me.upgrade()
        {
            self.endpoint.flushes().push(stream);
            self.endpoint.scheduler().wake_loop();
        }
    }

    fn call(
        &self,
        cx: &mut Context<'_, T>,
        session: SessionId,
        ask: StreamOp,
        request: MsgBuf,
    ) -> Result<(), Rejected> {
        let Some(stream) = self.me.upgrade() else { return Ok(()) };
        let deadline = if ask == StreamOp::Close { Instant::NEVER } else { self.deadline };
        let call = NewCall { method: self.method, request, token: 0, extended: true, deadline };
        self.endpoint.calls().streams().call(cx, session, stream, ask, call)
    }

    /// Handles a call that ended before anything of it was sent: keeps its request for another
    /// server, or fails it.
    fn unsent(&self, ask: StreamOp, error: CallError, request: MsgBuf) {
        let kept = match is_repeatable(&error) {
            true => self.keep(ask, &error, request),
            false => Err(request),
        };
        if let Err(request) = kept {
            self.endpoint.pool().recycle(request);
            self.state.borrow_mut().machine.replied(ask, Err(error));
        }
    }

    /// Cancels the stream's calls, as no memory is left for a close request. The cancels tell the
    /// server that the stream ends.
    #[cold]
    fn give_up(&self, cx: &mut Context<'_, T>) {
        let state = self.state.borrow();
        let id = state.lease.as_ref().and_then(|lease| lease.link().usable().ok());
        drop(state);
        if let Some(id) = id {
            self.endpoint.calls().streams().cancel(cx, id, self, Cause::NoMemory);
        }
    }

    /// Ends the stream with an error of this side.
    pub(crate) fn end(&self, error: CallError) {
        self.state.borrow_mut().machine.fail(error);
        self.settle();
        self.mark();
    }

    /// Ends the stream if it has no session now.
    pub(super) fn end_unbound(&self, error: CallError) {
        if self.state.borrow().lease.is_none() {
            self.end(error);
        }
    }

    /// Ends the stream if its deadline has passed, and wakes the tasks that can continue. Returns
    /// the session to the pool if the stream is over or has left its server. If it has left its
    /// server, looks for another one.
    fn settle(&self) {
        let mut state = self.state.borrow_mut();
        // A call in flight ends at the deadline by itself, and its error says whether anything was
        // executed.
        let late = state.late && !state.machine.is_calling();
        if late {
            state.late = false;
            state.end_early(Cause::DeadlineExceeded);
        }
        let ClientStreamState { machine, lease, waiting, timer, .. } = &mut *state;
        let mut woken = StreamWaiters::default();
        if machine.is_readable() {
            woken.reader = std::mem::take(&mut waiting.reader);
        }
        if machine.has_room(BATCH) || machine.sending().is_err() {
            woken.writers = std::mem::take(&mut waiting.writers);
        }
        let leaves = machine.has_left() && lease.is_some();
        let over = if machine.is_over() || leaves { lease.take() } else { None };
        let timer = if machine.is_over() { timer.take() } else { None };
        let spoilt = machine.is_spoilt();
        drop(state);
        drop(timer);
        if late {
            // The server has to learn that the stream has ended.
            self.mark();
        }
        woken.wake(self.endpoint.scheduler().executor());
        if let Some(lease) = over {
            let left = LeftServer { peer: lease.link().peer, moves: self.moves.get().max(1) };
            // If the stream has left its server, the session is closed: the server may be gone.
            lease.give_back(spoilt || leaves);
            if leaves {
                self.search(Some(left));
            }
        }
    }

    /// Waits for room. The server's request limit is known once the session is open; a large item
    /// waits until then.
    fn wait_for_room(
        &self,
        state: RefMut<'_, ClientStreamState<T>>,
        cx: &TaskContext<'_>,
    ) -> Poll<Result<(), CallError>> {
        let link = state.lease.as_ref().filter(|_| !state.knows_limit).map(StreamLease::link);
        let opening = link.is_some_and(|link| link.phase() == LinkPhase::Opening);
        if opening && let Some(link) = link {
            link.wait(self.endpoint.scheduler().executor(), cx);
        }
        let late = link.is_some() && !opening;
        drop(state);
        if late {
            // The session opened or ended in this turn. The stream's next flush reads the limit, or
            // fails the stream.
            self.mark();
        }
        Poll::Pending
    }

    /// Ends the stream if the endpoint was shut down: a task that waited would wait forever.
    fn look_for_shutdown(&self, state: &mut ClientStreamState<T>) {
        if self.endpoint.is_closed() {
            state.end_early(Cause::Shutdown);
        }
    }
}

impl<T: Transport> Flush<T> for ClientStream<T> {
    /// Makes the calls that the machine asks for.
    fn flush(&self, cx: &mut Context<'_, T>) {
        self.dirty.set(false);
        loop {
            let mut state = self.state.borrow_mut();
            if let Some(id) = state.may_learn() {
                state.learn(cx.session_stats(id));
            }
            // A stream without a session is not bound yet, looks for another server, or is over.
            let Some(id) = state.lease.as_ref().map(|lease| lease.link().usable()) else { break };
            let call = state.machine.poll_call(&mut self.endpoint.pool());
            match call {
                Ok(Some((ask, request))) => {
                    drop(state);
                    match id {
                        Ok(session) => {
                            if let Err(rejected) = self.call(cx, session, ask, request) {
                                let error = CallError::Rejected(rejected.reason);
                                self.unsent(ask, error, rejected.request);
                            }
                        }
                        Err(cause) => self.unsent(ask, CallError::NotExecuted(cause), request),
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    state.machine.fail(CallError::Rejected(RejectReason::NoMemory(error)));
                    drop(state);
                    self.give_up(cx);
                    break;
                }
            }
        }
        self.settle();
    }

    /// Ends the stream because the endpoint has ended.
    fn shut_down(&self) {
        self.state.borrow_mut().end_early(Cause::Shutdown);
        self.settle();
    }
}

impl<T: Transport> StreamCaller<T> for ClientStream<T> {
    fn keep(&self, ask: StreamOp, error: &CallError, request: MsgBuf) -> Result<(), MsgBuf> {
        let Some(home) = self.home.get() else { return Err(request) };
        let can_move = home.can_move() && !self.endpoint.is_closed();
        if !can_move || self.moves.get() >= MOST_MOVES {
            return Err(request);
        }
        let mut state = self.state.borrow_mut();
        if ask == StreamOp::Open && state.machine.keeps(ask) {
            if !home.grants_move(error) {
                return Err(request);
            }
            self.moves.set(self.moves.get() + 1);
        }
        state.machine.keep(ask, request)
    }

    fn replied(&self, ask: StreamOp, result: Result<Option<MsgBuf>, CallError>) {
        let result = result.map_err(|error| named(error, self.name));
        self.state.borrow_mut().machine.replied(ask, result);
        self.settle();
    }
}

impl<T: Transport> Source for ClientStream<T> {
    fn poll_batch(&self, cx: &TaskContext<'_>) -> Poll<Result<Option<Batch>, CallError>> {
        let mut state = self.state.borrow_mut();
        self.look_for_shutdown(&mut state);
        let mut earlier = WakeSlot::Empty;
        let next = match state.machine.next_batch() {
            ClientNext::Batch(batch) => Poll::Ready(Ok(Some(batch))),
            ClientNext::End(end) => Poll::Ready(end.map(|()| None)),
            ClientNext::Wait => {
                let waiter = self.endpoint.scheduler().executor().wake_slot(cx);
                earlier = std::mem::replace(&mut state.waiting.reader, waiter);
                Poll::Pending
            }
        };
        drop(state);
        // Dropping a waker may run arbitrary code, which may use this stream.
        drop(earlier);
        self.mark();
        next
    }

    fn batch_read(&self, memory: MsgBuf) {
        self.state.borrow_mut().machine.batch_read();
        self.endpoint.pool().recycle(memory);
        self.mark();
    }

    fn drop_reader(&self) {
        self.state.borrow_mut().machine.drop_reader();
        self.mark();
    }

    fn metadata(&self) -> Metadata {
        MetadataRef::new(self.state.borrow().machine.entries()).to_owned()
    }

    fn malformed(&self, _: &DecodeError) -> CallError {
        self.drop_reader();
        CallError::ResponseLost(Cause::Malformed)
    }
}

impl<T: Transport> Sink for ClientStream<T> {
    fn poll_put(
        &self,
        cx: &TaskContext<'_>,
        len: usize,
        encode: &mut dyn FnMut(&mut &mut [u8]),
    ) -> Poll<Result<(), CallError>> {
        let mut state = self.state.borrow_mut();
        self.look_for_shutdown(&mut state);
        if let Err(error) = state.machine.sending() {
            return Poll::Ready(Err(error));
        }
        self.learn_now(&mut state);
        if let Some(limit) = state.machine.too_large(len) {
            let reason = RejectReason::TooLarge { size: len, limit };
            return Poll::Ready(Err(CallError::Rejected(reason)));
        }
        if !state.machine.has_room(len) {
            state.waiting.writers.add(self.endpoint.scheduler().executor(), cx);
            return self.wait_for_room(state, cx);
        }
        let put = state.machine.put(len, encode, &mut self.endpoint.pool());
        drop(state);
        self.mark();
        Poll::Ready(put.map_err(|error| CallError::Rejected(RejectReason::NoMemory(error))))
    }

    fn is_closed(&self) -> bool {
        self.state.borrow().machine.sending().is_err()
    }

    fn drop_writer(&self) {
        self.state.borrow_mut().machine.end_items();
        self.mark();
    }
}
