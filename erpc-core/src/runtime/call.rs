//! Calls in progress.
//!
//! A call is an [`Entry`] in the endpoint's slab; its key is the token that the protocol hands back with
//! the reply. A callback decodes the reply where it lies. A future finds it later, so the bytes are
//! copied; into the request's own buffer, which the reply hands back and which is usually large enough.
//!
//! An entry stays until the protocol has told the end of the call, also when nobody waits for it any more.

use std::fmt;
use std::future::Future;
use std::marker::PhantomData;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use slab::Slab;

use super::executor::{Executor, WakeSlot};
use super::link::Link;
use super::plan::Plan;
use super::shared::Shared;
use crate::buf::{MsgBuf, Pool};
use crate::protocol::{Body, CallError, Cause, Reply};
use crate::service::{Codec, DecodeError, Metadata, MetadataRef, Method, method_id};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;
use crate::wire::extension::Extension;

/// A call on its way: the future of its response.
///
/// The request goes out with the endpoint's next turn, whether or not the future is polled. Dropping
/// the future cancels the call: a request that was not sent is not, and a server that works on it is
/// told, though it may be too late.
///
/// [`Endpoint::block_on`](super::Endpoint::block_on) waits for it where there is no async code.
#[must_use = "dropping the call cancels it; to send without waiting, use a callback"]
pub struct Call<M, T: Transport = UdpTransport> {
    shared: Rc<Shared<T>>,
    /// `None` once the output was taken.
    key: Option<usize>,
    /// The method's full name.
    method: &'static str,
    /// Most bytes of a response.
    limit: u32,
    decode: fn(&[u8]) -> Result<M, DecodeError>,
    message: PhantomData<fn() -> M>,
}

impl<M, T: Transport> Call<M, T> {
    pub(super) fn new<Req, C, D: Codec<M>>(
        shared: &Rc<Shared<T>>,
        method: &Method<Req, M, C, D>,
        key: usize,
    ) -> Self {
        Self {
            shared: Rc::clone(shared),
            key: Some(key),
            method: method.full_name(),
            limit: method.response_limit(),
            decode: D::decode,
            message: PhantomData,
        }
    }

    /// Whether the output is there, so that awaiting the call does not wait.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.key.is_some_and(|key| self.shared.calls().is_done(key))
    }

    /// The same call, whose future also brings the metadata that came with the response.
    pub fn with_metadata(self) -> WithMetadata<M, T> {
        WithMetadata { call: self }
    }

    #[inline]
    fn poll_reply(&mut self, cx: &Context<'_>) -> Poll<Result<Kept, CallError>> {
        let key = self.key.expect("a call is not polled after it has ended");
        let waiter = self.shared.executor().wake_slot(cx);
        let polled = self.shared.calls().poll(key, waiter);
        match polled {
            Ok(result) => {
                self.key = None;
                Poll::Ready(result.map_err(|error| named(error, self.method)))
            }
            Err(_replaced) => Poll::Pending,
        }
    }
}

impl<M, T: Transport> Future for Call<M, T> {
    type Output = Result<M, CallError>;

    #[inline]
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.poll_reply(cx).map(|reply| {
            let reply = reply?;
            let message = reply.message().and_then(|bytes| decoded(self.decode, self.limit, bytes));
            self.shared.pool().recycle(reply.bytes);
            message
        })
    }
}

impl<M, T: Transport> Drop for Call<M, T> {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.shared.cancel(key);
        }
    }
}

impl<M, T: Transport> fmt::Debug for Call<M, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Call").field("key", &self.key).finish_non_exhaustive()
    }
}

/// A call on its way: the future of its response and what came with it; see [`Call::with_metadata`].
#[must_use = "dropping the call cancels it"]
#[derive(Debug)]
pub struct WithMetadata<M, T: Transport = UdpTransport> {
    call: Call<M, T>,
}

impl<M, T: Transport> Future for WithMetadata<M, T> {
    type Output = Result<(M, Metadata), CallError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Self { call } = &mut *self;
        call.poll_reply(cx).map(|reply| {
            let reply = reply?;
            let metadata = reply.metadata();
            let message = reply.message().and_then(|bytes| decoded(call.decode, call.limit, bytes));
            call.shared.pool().recycle(reply.bytes);
            Ok((message?, metadata?))
        })
    }
}

/// A response that waits for its future.
pub(super) struct Kept {
    bytes: MsgBuf,
    extended: bool,
}

impl Kept {
    fn message(&self) -> Result<&[u8], CallError> {
        message(self.bytes.as_slice(), self.extended)
    }

    fn metadata(&self) -> Result<Metadata, CallError> {
        if !self.extended {
            return Ok(Metadata::new());
        }
        let (extension, _) = Extension::split(self.bytes.as_slice()).map_err(|_| MALFORMED)?;
        Ok(MetadataRef::new(extension.as_bytes()).to_owned())
    }
}

const MALFORMED: CallError = CallError::ResponseLost(Cause::Malformed);

/// The message proper.
#[inline]
pub(super) fn message(bytes: &[u8], extended: bool) -> Result<&[u8], CallError> {
    if !extended {
        return Ok(bytes);
    }
    Extension::split(bytes).map(|(_, message)| message).map_err(|_| MALFORMED)
}

/// What is called with the bytes of a reply.
pub(super) type Callback = Box<dyn FnOnce(Result<&[u8], CallError>)>;

/// A callback that decodes and hands on to `done`.
pub(super) fn callback<Req, M: 'static, C, D: Codec<M>>(
    method: &Method<Req, M, C, D>,
    done: impl FnOnce(Result<M, CallError>) + 'static,
) -> Callback {
    let (name, limit) = (method.full_name(), method.response_limit());
    Box::new(move |reply| {
        done(match reply {
            Ok(bytes) => decoded(D::decode, limit, bytes),
            Err(error) => Err(named(error, name)),
        });
    })
}

/// An error as who called the method of that full name is to be told it.
#[cold]
pub(super) fn named(error: CallError, method: &'static str) -> CallError {
    match error {
        CallError::Status(status) if status.is_no_such_method(method_id(method)) => {
            CallError::NoSuchMethod(method)
        }
        error => error,
    }
}

#[inline]
fn decoded<M>(
    decode: fn(&[u8]) -> Result<M, DecodeError>,
    limit: u32,
    bytes: &[u8],
) -> Result<M, CallError> {
    if bytes.len() > limit as usize {
        let size = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
        return Err(CallError::ResponseLost(Cause::ResponseTooLarge(size)));
    }
    decode(bytes).map_err(|_| MALFORMED)
}

/// A call in progress.
pub(super) struct Entry<T: Transport> {
    pub(super) outcome: Outcome,
    /// The session that it is made on; `None` while a channel looks for one.
    pub(super) link: Option<Rc<Link<T::Route>>>,
    /// What a channel does with it besides.
    pub(super) plan: Option<Box<Plan<T>>>,
}

/// Who gets a call's outcome.
pub(super) enum Outcome {
    /// A future, polled by whoever the slot says.
    Awaited(WakeSlot),
    Callback(Callback),
    /// Nobody any more.
    Cancelled,
    /// It is here, until the future takes it.
    Done(Result<Kept, CallError>),
}

/// What is left to do for a call that has ended.
pub(super) struct Ended<T: Transport> {
    waiter: WakeSlot,
    _plan: Option<Box<Plan<T>>>,
}

impl<T: Transport> Ended<T> {
    #[inline]
    pub(super) fn wake(self, executor: &Executor) {
        self.waiter.wake(executor);
    }
}

/// The calls of an endpoint.
pub(super) struct Calls<T: Transport> {
    entries: Slab<Entry<T>>,
}

impl<T: Transport> Calls<T> {
    pub(super) fn new() -> Self {
        Self { entries: Slab::new() }
    }

    #[inline]
    pub(super) fn insert(&mut self, entry: Entry<T>) -> usize {
        self.entries.insert(entry)
    }

    #[inline]
    pub(super) fn get(&mut self, key: usize) -> Option<&mut Entry<T>> {
        self.entries.get_mut(key)
    }

    /// Takes a call out.
    pub(super) fn remove(&mut self, key: usize) -> Entry<T> {
        self.entries.remove(key)
    }

    /// Notes that the call is not on its session any more; returns the session, to be dropped when the
    /// slab is not borrowed.
    #[inline]
    pub(super) fn leave_session(&mut self, key: usize) -> Option<Rc<Link<T::Route>>> {
        let link = self.entries.get_mut(key)?.link.take()?;
        link.call_ended();
        Some(link)
    }

    pub(super) fn has_callback(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry { outcome: Outcome::Callback(_), .. }))
    }

    pub(super) fn is_planned(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry { plan: Some(_), .. }))
    }

    /// Whether a future is to get the outcome.
    #[inline]
    pub(super) fn is_awaited(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry { outcome: Outcome::Awaited(_), .. }))
    }

    /// Notes the outcome of a call that is awaited. Who is to be told, and what is to be dropped, once the
    /// slab is not borrowed any more, is returned.
    #[inline]
    pub(super) fn finish(&mut self, key: usize, outcome: Result<Kept, CallError>) -> Ended<T> {
        let Entry { outcome: place, plan, .. } = &mut self.entries[key];
        match std::mem::replace(place, Outcome::Done(outcome)) {
            Outcome::Awaited(waiter) => Ended { waiter, _plan: plan.take() },
            _ => unreachable!("the caller has looked"),
        }
    }

    /// Ends a call that is not awaited; returns its callback, if somebody still wants the outcome, and what
    /// is to be dropped when the slab is not borrowed.
    #[inline]
    pub(super) fn take_callback(&mut self, key: usize) -> (Option<Callback>, Option<Box<Plan<T>>>) {
        let entry = self.entries.try_remove(key);
        debug_assert!(entry.is_some(), "call {key} ends twice");
        match entry {
            Some(Entry { outcome: Outcome::Callback(callback), plan, .. }) => {
                (Some(callback), plan)
            }
            Some(Entry { plan, .. }) => (None, plan),
            None => (None, None),
        }
    }

    fn is_done(&self, key: usize) -> bool {
        matches!(self.entries.get(key), Some(Entry { outcome: Outcome::Done(_), .. }))
    }

    /// Takes the outcome, or lets `waiter` wait for it; then the error is who waited until now.
    #[inline]
    fn poll(&mut self, key: usize, waiter: WakeSlot) -> Result<Result<Kept, CallError>, WakeSlot> {
        if let Outcome::Awaited(slot) = &mut self.entries[key].outcome {
            return Err(std::mem::replace(slot, waiter));
        }
        match self.entries.remove(key).outcome {
            Outcome::Done(result) => Ok(result),
            _ => unreachable!("only futures poll, and theirs are awaited or done"),
        }
    }

    /// Takes out every callback that is left, to be dropped once the slab is not borrowed any more.
    pub(super) fn take_callbacks(&mut self) -> Vec<Entry<T>> {
        let keys: Vec<usize> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.outcome, Outcome::Callback(_)))
            .map(|(key, _)| key)
            .collect();
        keys.into_iter().map(|key| self.remove(key)).collect()
    }

    /// The keys of calls that have not ended.
    pub(super) fn pending(&self) -> Vec<usize> {
        let open =
            self.entries.iter().filter(|(_, entry)| !matches!(entry.outcome, Outcome::Done(_)));
        open.map(|(key, _)| key).collect()
    }
}

/// The reply as an owned buffer: the request's own if it is large enough.
#[inline]
pub(super) fn kept(
    reply: Reply<'_>,
    mut request: MsgBuf,
    pool: &mut Pool,
) -> Result<Kept, CallError> {
    let extended = reply.extended;
    let bytes = match reply.body {
        Body::Message(bytes) => {
            pool.recycle(request);
            return Ok(Kept { bytes, extended });
        }
        Body::Packet(bytes) => bytes,
    };
    if request.capacity() < bytes.len() || !request.is_unique() {
        pool.recycle(request);
        request = pool.alloc(bytes.len()).map_err(|_| CallError::ResponseLost(Cause::NoMemory))?;
    }
    request.resize(bytes.len());
    request.as_mut_slice().copy_from_slice(bytes);
    Ok(Kept { bytes: request, extended })
}
