//! Streams over sessions: the two ends of [`crate::stream`] bound to an endpoint.
//!
//! ```text
//!   Incoming, Outgoing   what users hold                          service/streaming/
//!        |
//!   ClientStream         one stream that this endpoint began      client.rs
//!   ServerStreams        those of one client's session            server.rs
//!        |
//!   flush                calls and answers, at the end of the turn in which something changed
//! ```
//!
//! A stream has a session to itself, so that a stalled one holds no slot, credit or place in a queue of
//! anybody else's calls. Sessions are taken from a [`StreamPool`] and go back there.

mod client;
mod open;
mod pool;

use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;
use std::task::Context as TaskContext;

use slab::Slab;

use crate::buf::{MsgBuf, NoMemory, Pool};
pub(crate) use crate::client::stream::client::ClientStream;
pub(crate) use crate::client::stream::pool::{Load, StreamPool};
use crate::endpoint::state::Shared;
use crate::event_loop::Context;
use crate::executor::tasks::{Executor, WakeSlot};
use crate::protocol::{Body, CallError, Cause, ClientId, Reply};
use crate::serving::stream::ServerStreams;
use crate::stream::Ask;
use crate::transport::Transport;

/// Set in the tokens of streams' calls; the rest is the place in [`Streams::calls`].
const STREAM: u64 = 1 << 63;

/// The streams of an endpoint.
pub(crate) struct Streams<T: Transport> {
    /// Calls of client streams that are on their way.
    pub(crate) calls: RefCell<Slab<(Rc<ClientStream<T>>, Ask)>>,
    /// The streams of each client session that has had one.
    pub(crate) clients: RefCell<HashMap<ClientId, Rc<ServerStreams<T>>>>,
    /// Those that may have something to send.
    pub(crate) dirty: RefCell<Vec<Dirty<T>>>,
}

pub(crate) enum Dirty<T: Transport> {
    Client(Rc<ClientStream<T>>),
    Server(Rc<ServerStreams<T>>),
}

impl<T: Transport> Default for Streams<T> {
    fn default() -> Self {
        Self { calls: RefCell::default(), clients: RefCell::default(), dirty: RefCell::default() }
    }
}

impl<T: Transport> Streams<T> {
    /// Whether [`Shared::flush_streams`] has something to do.
    #[inline]
    pub(crate) fn are_dirty(&self) -> bool {
        !self.dirty.borrow().is_empty()
    }

    /// Whether a call's token is a stream's.
    #[inline]
    pub(crate) fn is_token(token: u64) -> bool {
        token & STREAM != 0
    }
}

impl<T: Transport> Shared<T> {
    /// Sends what streams have gathered; returns for how many.
    pub(crate) fn flush_streams(&self, cx: &mut Context<'_, T>) -> usize {
        let mut dirty = self.streams.dirty.take();
        let count = dirty.len();
        for stream in dirty.drain(..) {
            match stream {
                Dirty::Client(stream) => stream.flush(cx),
                Dirty::Server(streams) => streams.flush(cx, self),
            }
        }
        let mut place = self.streams.dirty.borrow_mut();
        // What has come meanwhile, while calls failed, is for the next time; the memory is used again.
        dirty.append(&mut place);
        *place = dirty;
        count
    }

    /// A call of a stream has ended.
    pub(crate) fn stream_replied(
        &self,
        cx: &mut Context<'_, T>,
        token: u64,
        reply: Result<Reply<'_>, CallError>,
        request: MsgBuf,
    ) {
        let call = self.streams.calls.borrow_mut().try_remove((token & !STREAM) as usize);
        debug_assert!(call.is_some(), "a stream's call ends twice");
        let Some((stream, ask)) = call else { return };
        let result = match reply {
            Ok(Reply { body, extended: true }) => {
                let message = owned(body, request, &mut self.pool());
                message.map(Some).map_err(|_| CallError::ResponseLost(Cause::NoMemory))
            }
            Ok(Reply { extended: false, .. }) => Ok(None),
            Err(error) => {
                self.pool().recycle(request);
                Err(error)
            }
        };
        stream.replied(ask, result);
        stream.flush(cx);
    }

    /// Ends all streams: the endpoint is shut down, and calls that were made have ended.
    pub(crate) fn end_streams(&self) {
        let calls = std::mem::take(&mut *self.streams.calls.borrow_mut());
        for (_, (stream, ask)) in calls {
            stream.replied(ask, Err(CallError::MaybeExecuted(Cause::Shutdown)));
        }
        for stream in self.streams.dirty.take() {
            if let Dirty::Client(stream) = stream {
                stream.shut_down();
            }
        }
        drop(self.streams.clients.take());
    }
}

/// The bytes in memory that lasts: the request's own if it is large enough.
pub(crate) fn owned(
    body: Body<'_>,
    mut request: MsgBuf,
    pool: &mut Pool,
) -> Result<MsgBuf, NoMemory> {
    let bytes = match body {
        Body::Message(message) => {
            pool.recycle(request);
            return Ok(message);
        }
        Body::Packet(bytes) => bytes,
    };
    if request.capacity() < bytes.len() || !request.is_unique() {
        pool.recycle(request);
        request = pool.alloc(bytes.len())?;
    }
    request.resize(bytes.len());
    request.as_mut_slice().copy_from_slice(bytes);
    Ok(request)
}

/// Tasks that wait for the same thing: mostly one, which costs no allocation. Each is noted once, however
/// often it is polled.
#[derive(Default)]
pub(crate) struct Waiters {
    first: WakeSlot,
    others: Vec<WakeSlot>,
}

impl Waiters {
    pub(crate) fn add(&mut self, executor: &Executor, cx: &TaskContext<'_>) {
        let slot = executor.wake_slot(cx);
        if let WakeSlot::Empty = self.first {
            self.first = slot;
        } else if !self.slots().any(|there| is_same(there, &slot)) {
            self.others.push(slot);
        }
    }

    fn slots(&self) -> impl Iterator<Item = &WakeSlot> {
        std::iter::once(&self.first).chain(&self.others)
    }

    pub(crate) fn wake(self, executor: &Executor) {
        self.first.wake(executor);
        for waiter in self.others {
            waiter.wake(executor);
        }
    }
}

/// Whether both wake the same task.
pub(crate) fn is_same(one: &WakeSlot, other: &WakeSlot) -> bool {
    match (one, other) {
        (WakeSlot::Task(one), WakeSlot::Task(other)) => one == other,
        (WakeSlot::Other(one), WakeSlot::Other(other)) => one.will_wake(other),
        _ => false,
    }
}

/// Who is to be woken when nothing is borrowed any more.
#[derive(Default)]
pub(crate) struct Woken {
    pub(crate) reader: WakeSlot,
    pub(crate) writers: Waiters,
}

impl Woken {
    pub(crate) fn wake(self, executor: &Executor) {
        self.reader.wake(executor);
        self.writers.wake(executor);
    }
}
