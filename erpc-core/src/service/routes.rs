//! From method ids to handlers.

use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use super::codec::encode_sized;
use super::{CallContext, Codec, DecodeError, Method, Mode, Request, Response, Status};
use crate::buf::MsgBuf;
use crate::protocol::RequestHandle;

/// A handler with its types erased: from a request's bytes to an [`Outcome`]. Does not unwind; a
/// panic of the user's code becomes a status.
pub type ErasedHandler =
    dyn Fn(&CallContext<'_>, &[u8], &mut dyn ReplyBuffers) -> Outcome + Send + Sync;

/// Where a runtime takes answers that come from outside of the handler's call.
pub trait ReplySink: Send + Sync {
    /// Answers `call`, from any thread. At most once per call.
    fn reply(&self, call: RequestHandle, result: Result<MsgBuf, Status>);
}

/// Where a handler's glue gets the buffer that it encodes the response into.
pub trait ReplyBuffers {
    /// An empty buffer for at least `len` bytes.
    ///
    /// # Errors
    /// The status that the caller shall get: there is no memory, or the session takes no response of
    /// that size.
    fn buffer(&mut self, len: usize) -> Result<MsgBuf, Status>;
}

/// What came of a handler.
#[derive(Debug)]
pub enum Outcome {
    /// The encoded response.
    Reply(MsgBuf),
    /// The call failed.
    Failed(Status),
    /// The [`ReplySink`] gets the answer, now or later.
    Deferred,
}

/// A set of methods and how they are called, implemented by `#[derive(erpc::Service)]`.
pub trait Service: Send + Sync + 'static {
    /// The service's full name, `package.Service`.
    const NAME: &'static str;

    /// Adds the service's methods.
    ///
    /// # Errors
    /// [`MethodCollision`] if one of them is there already, or another method has its id.
    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision>;
}

/// One method of a server.
pub struct Entry {
    full_name: &'static str,
    mode: Mode,
    handler: Arc<ErasedHandler>,
}

impl Entry {
    /// The method's full name.
    #[must_use]
    pub fn full_name(&self) -> &'static str {
        self.full_name
    }

    /// Where the handler is to run.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The handler; cloned to be run elsewhere.
    #[must_use]
    #[inline]
    pub fn handler(&self) -> &Arc<ErasedHandler> {
        &self.handler
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:?})", self.full_name, self.mode)
    }
}

/// Two methods that cannot be served side by side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MethodCollision {
    /// Full name of the method that was there first.
    pub first: &'static str,
    /// Full name of the method that was refused.
    pub second: &'static str,
}

impl fmt::Display for MethodCollision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { first, second } = self;
        if first == second {
            write!(f, "{first} is registered twice; add each service to a server once")
        } else {
            write!(
                f,
                "{first} and {second} have the same 32-bit method id; rename one, or serve them apart"
            )
        }
    }
}

impl std::error::Error for MethodCollision {}

/// The methods of a server.
///
/// A hash table with open addressing and linear probing, at most half full. Ids are hashes already, so
/// a lookup is a mask, a compare and seldom a second compare: a few nanoseconds, also for ids that a
/// hostile client makes up, since only the server's own ids are in the table.
#[derive(Default)]
pub struct Routes {
    /// Method id (0: free) and index into `entries`; the length is 0 or a power of two.
    slots: Vec<(u32, u32)>,
    entries: Vec<Entry>,
}

impl Routes {
    /// A table without methods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method that `handler` answers, with `service` as its state.
    ///
    /// # Errors
    /// [`MethodCollision`] if the method, or another with its id, is there.
    pub fn unary<S, Req, Resp, C>(
        &mut self,
        method: Method<Req, Resp, C>,
        mode: Mode,
        service: &Arc<S>,
        handler: impl Fn(&S, Request<'_, Req, C>) -> Result<Response<Resp>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        C: Codec<Req> + Codec<Resp>,
    {
        let service = Arc::clone(service);
        let erased =
            move |context: &CallContext<'_>, body: &[u8], buffers: &mut dyn ReplyBuffers| {
                // The service is the user's; whether it is sound after a panic is theirs to know, as with
                // a thread that dies and leaves others running.
                let run = AssertUnwindSafe(|| {
                    run::<S, Req, Resp, C>(&service, &handler, context, body, buffers)
                });
                catch_unwind(run).unwrap_or_else(|_panic| panicked(context))
            };
        self.insert(
            method.id(),
            Entry { full_name: method.full_name(), mode, handler: Arc::new(erased) },
        )
    }

    /// The method with that id.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Entry> {
        match self.slots.get(self.position(id)) {
            Some(&(found, index)) if found != 0 => self.entries.get(index as usize),
            _ => None,
        }
    }

    /// Every method, in the order of registration.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.iter()
    }

    /// The slot that has `id`, or the free one where it would go; out of bounds in a table without slots.
    /// Ends because the table is never more than half full.
    #[inline]
    fn position(&self, id: u32) -> usize {
        let mask = self.slots.len().wrapping_sub(1);
        let mut at = id as usize & mask;
        while let Some(&(found, _)) = self.slots.get(at) {
            if found == id || found == 0 {
                break;
            }
            at = (at + 1) & mask;
        }
        at
    }

    fn insert(&mut self, id: u32, entry: Entry) -> Result<(), MethodCollision> {
        if let Some(there) = self.get(id) {
            return Err(MethodCollision { first: there.full_name, second: entry.full_name });
        }
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let at = self.position(id);
        self.slots[at] = (id, self.entries.len() as u32);
        self.entries.push(entry);
        Ok(())
    }

    fn grow(&mut self) {
        let larger = (self.slots.len() * 2).max(16);
        let old = std::mem::replace(&mut self.slots, vec![(0, 0); larger]);
        for slot in old.into_iter().filter(|&(id, _)| id != 0) {
            let at = self.position(slot.0);
            self.slots[at] = slot;
        }
    }
}

impl fmt::Debug for Routes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.entries).finish()
    }
}

/// One call, from bytes to outcome.
#[inline]
fn run<S, Req, Resp, C: Codec<Req> + Codec<Resp>>(
    service: &S,
    handler: impl Fn(&S, Request<'_, Req, C>) -> Result<Response<Resp>, Status>,
    context: &CallContext<'_>,
    body: &[u8],
    buffers: &mut dyn ReplyBuffers,
) -> Outcome {
    let message = match <C as Codec<Req>>::decode(body) {
        Ok(message) => message,
        Err(error) => return malformed(&error),
    };
    let result = handler(service, Request::received(message, context));
    if context.is_deferred() {
        return Outcome::Deferred;
    }
    match result.map(Response::into_message) {
        Ok(Some(message)) => reply::<C, Resp>(&message, buffers),
        Ok(None) => promised_elsewhere(),
        Err(status) => Outcome::Failed(status),
    }
}

#[inline]
fn reply<C: Codec<M>, M>(message: &M, buffers: &mut dyn ReplyBuffers) -> Outcome {
    let len = C::encoded_len(message);
    match buffers.buffer(len) {
        Ok(mut msgbuf) => {
            encode_sized::<C, M>(message, len, &mut msgbuf);
            Outcome::Reply(msgbuf)
        }
        Err(status) => Outcome::Failed(status),
    }
}

#[cold]
fn malformed(error: &DecodeError) -> Outcome {
    Outcome::Failed(Status::invalid_argument(format!("the request does not decode: {error}")))
}

#[cold]
fn panicked(context: &CallContext<'_>) -> Outcome {
    match context.is_deferred() {
        // The responder answers, if only by having been dropped.
        true => Outcome::Deferred,
        false => Outcome::Failed(Status::internal("the handler panicked")),
    }
}

/// The handler kept an earlier call's "deferred" and returned it for this one, which nobody answers.
#[cold]
fn promised_elsewhere() -> Outcome {
    Outcome::Failed(Status::internal("the handler returned another call's deferred response"))
}

#[cfg(test)]
mod tests;
