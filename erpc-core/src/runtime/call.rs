//! Calls in progress.
//!
//! A call is an [`Entry`] in the endpoint's slab; its key is the token that the protocol hands back with
//! the reply. A callback decodes the reply where it lies. A future finds it later, so the bytes are
//! copied; into the request's own buffer, which the reply hands back and which is usually large enough.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use slab::Slab;

use super::executor::WakeSlot;
use super::shared::Shared;
use crate::buf::{MsgBuf, NoMemory, Pool};
use crate::protocol::{Body, CallError, Cause};
use crate::service::{Codec, DecodeError, encode_sized};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// A call on its way: the future of its response.
///
/// The request goes out with the endpoint's next turn, whether or not the future is polled. Dropping
/// the future lets go of the response; the call itself goes on, and the server may execute it.
#[must_use = "the response is lost with the call; to send without waiting, use a callback"]
pub struct Call<M, T: Transport = UdpTransport> {
    shared: Rc<Shared<T>>,
    /// `None` once the output was taken.
    key: Option<usize>,
    decode: fn(&[u8]) -> Result<M, DecodeError>,
    message: PhantomData<fn() -> M>,
}

impl<M, T: Transport> Call<M, T> {
    pub(super) fn new<C: Codec<M>>(shared: &Rc<Shared<T>>, key: usize) -> Self {
        Self { shared: Rc::clone(shared), key: Some(key), decode: C::decode, message: PhantomData }
    }

    /// Whether the output is there, so that awaiting the call does not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.key.is_some_and(|key| self.shared.calls().is_done(key))
    }
}

impl<M, T: Transport> Future for Call<M, T> {
    type Output = Result<M, CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.expect("a call is not polled after it has ended");
        let waiter = self.shared.executor().wake_slot(cx);
        let polled = self.shared.calls().poll(key, waiter);
        let result = match polled {
            Ok(result) => result,
            Err(_replaced) => return Poll::Pending,
        };
        self.key = None;
        Poll::Ready(result.and_then(|body| {
            let message = decoded(self.decode, body.as_slice());
            self.shared.pool().recycle(body);
            message
        }))
    }
}

impl<M, T: Transport> Drop for Call<M, T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            let left_over = self.shared.calls().detach(key);
            // A waker may run anything when it is dropped; the slab is no longer borrowed.
            drop(left_over);
        }
    }
}

impl<M, T: Transport> fmt::Debug for Call<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}

/// What is called with the bytes of a reply.
pub(super) type Callback = Box<dyn FnOnce(Result<&[u8], CallError>)>;

/// A callback that decodes and hands on to `done`.
pub(super) fn callback<C: Codec<M>, M: 'static>(
    done: impl FnOnce(Result<M, CallError>) + 'static,
) -> Callback {
    Box::new(move |reply| done(reply.and_then(|bytes| decoded(C::decode, bytes))))
}

#[inline]
fn decoded<M>(decode: fn(&[u8]) -> Result<M, DecodeError>, bytes: &[u8]) -> Result<M, CallError> {
    decode(bytes).map_err(|_| CallError::ResponseLost(Cause::Malformed))
}

/// Encodes a request into a buffer of the pool.
#[inline]
pub(super) fn encoded<C: Codec<M>, M>(message: &M, pool: &mut Pool) -> Result<MsgBuf, NoMemory> {
    let len = C::encoded_len(message);
    let mut msgbuf = pool.alloc(len)?;
    encode_sized::<C, M>(message, len, &mut msgbuf);
    Ok(msgbuf)
}

/// Who gets a call's outcome.
pub(super) enum Entry {
    /// A future, polled by whoever the slot says.
    Waiting(WakeSlot),
    Callback(Callback),
    /// Nobody any more.
    Detached,
    /// The outcome, until the future takes it.
    Done(Result<MsgBuf, CallError>),
}

/// The calls of an endpoint.
pub(super) struct Calls {
    entries: Slab<Entry>,
    unclaimed: u64,
}

impl Calls {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new(), unclaimed: 0 }
    }

    #[inline]
    pub(super) fn insert(&mut self, entry: Entry) -> usize {
        self.entries.insert(entry)
    }

    /// Responses that came for futures that had been dropped.
    pub(super) fn unclaimed(&self) -> u64 {
        self.unclaimed
    }

    pub(super) fn has_callback(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry::Callback(_)))
    }

    /// Whether a future is to get the outcome.
    #[inline]
    pub(super) fn is_awaited(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry::Waiting(_)))
    }

    fn is_done(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry::Done(_)))
    }

    /// Notes the outcome of a call that is awaited; returns who is to be told once the slab is not
    /// borrowed any more.
    #[inline]
    pub(super) fn finish(&mut self, key: usize, outcome: Result<MsgBuf, CallError>) -> WakeSlot {
        match std::mem::replace(&mut self.entries[key], Entry::Done(outcome)) {
            Entry::Waiting(waiter) => waiter,
            _ => unreachable!("the caller has looked"),
        }
    }

    /// Ends a call that is not awaited; returns its callback, if somebody still wants the outcome.
    #[inline]
    pub(super) fn remove(&mut self, key: usize) -> Option<Callback> {
        match self.entries.try_remove(key) {
            Some(Entry::Callback(callback)) => Some(callback),
            ended => {
                debug_assert!(matches!(ended, Some(Entry::Detached)), "call {key} ends twice");
                self.unclaimed += 1;
                None
            }
        }
    }

    /// Takes the outcome, or lets `waiter` wait for it; then the error is who waited until now.
    #[inline]
    fn poll(
        &mut self,
        key: usize,
        waiter: WakeSlot,
    ) -> Result<Result<MsgBuf, CallError>, WakeSlot> {
        if let Entry::Waiting(slot) = &mut self.entries[key] {
            return Err(std::mem::replace(slot, waiter));
        }
        match self.entries.remove(key) {
            Entry::Done(result) => Ok(result),
            _ => unreachable!("only futures poll, and their entries are waiting or done"),
        }
    }

    /// The future is gone; returns what is to be dropped.
    fn detach(&mut self, key: usize) -> Entry {
        match &mut self.entries[key] {
            entry @ Entry::Waiting(_) => std::mem::replace(entry, Entry::Detached),
            _ => self.entries.remove(key),
        }
    }

    /// Takes out every callback that is left, to be dropped once the slab is not borrowed any more.
    pub(super) fn take_callbacks(&mut self) -> Vec<Callback> {
        let keys: Vec<usize> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry, Entry::Callback(_)))
            .map(|(key, _)| key)
            .collect();
        keys.into_iter().filter_map(|key| self.remove(key)).collect()
    }

    /// The keys of calls that have not ended.
    pub(super) fn pending(&self) -> Vec<usize> {
        let open = self.entries.iter().filter(|(_, entry)| !matches!(entry, Entry::Done(_)));
        open.map(|(key, _)| key).collect()
    }
}

/// The reply as an owned buffer: the request's own if it is large enough.
#[inline]
pub(super) fn kept(
    body: Body<'_>,
    mut request: MsgBuf,
    pool: &mut Pool,
) -> Result<MsgBuf, CallError> {
    let bytes = match body {
        Body::Message(message) => {
            pool.recycle(request);
            return Ok(message);
        }
        Body::Packet(bytes) => bytes,
    };
    if request.capacity() < bytes.len() || !request.is_unique() {
        pool.recycle(request);
        request = pool.alloc(bytes.len()).map_err(|_| CallError::ResponseLost(Cause::NoMemory))?;
    }
    request.resize(bytes.len());
    request.as_mut_slice().copy_from_slice(bytes);
    Ok(request)
}
