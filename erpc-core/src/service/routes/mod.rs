//! From method ids to handlers.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::handler::{ErasedHandler, answering};
use super::interceptor::Interceptor;
use super::streaming::handler::{Both, Client, Server, Shape, StreamMaker, StreamMethod, streams};
use super::task::{TaskMaker, TaskMethod, TaskPort, tasks};
use super::{CallContext, Codec, Incoming, Method, Mode, Outcome, Outgoing, Request, Response};
use crate::status::Status;
use crate::time::Instant;

/// What a service's state has to be; all that is `Send + Sync + 'static` is. State that changes needs a
/// `Mutex` or atomics. Clients, channels and sessions belong to the thread of an endpoint, so they are no
/// state: handlers keep them with [`Endpoint::local`](crate::endpoint::Endpoint::local).
///
/// A trait of its own because the compiler names it, and what it is for, to those whose state is not.
pub trait SharedByThreads: Send + Sync + 'static {}

impl<S: Send + Sync + 'static> SharedByThreads for S {}

/// A set of methods and how they are called, implemented by `#[derive(erpc::Service)]`.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a service",
    label = "not a service",
    note = "add `#[derive(erpc::Service)]` and `#[erpc(service = path::to::Trait)]` to `{Self}`"
)]
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
#[derive(Clone)]
pub struct Entry {
    full_name: &'static str,
    /// Place among the server's methods.
    index: u32,
    max_request: u32,
    max_response: u32,
    /// Whether the handler runs in place and needs nothing to be found out before.
    plain: bool,
    idempotent: bool,
    /// Of calls that come without one.
    deadline: Option<Duration>,
    run: Run,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

/// How a method's handler runs.
#[derive(Clone)]
enum Run {
    Sync(Mode, Arc<ErasedHandler>),
    Task(Arc<TaskMaker>),
    Stream(Arc<StreamMaker>),
}

impl Entry {
    fn new<Req, Resp, C, D>(method: &Method<Req, Resp, C, D>, run: Run) -> Self {
        Self {
            full_name: method.full_name(),
            index: 0,
            max_request: method.request_limit(),
            max_response: method.response_limit(),
            plain: matches!(run, Run::Sync(Mode::Dispatch, _))
                && method.server_deadline().is_none(),
            idempotent: method.is_idempotent(),
            deadline: method.server_deadline(),
            run,
            interceptors: Vec::new(),
        }
    }

    /// The method's full name.
    #[must_use]
    pub fn full_name(&self) -> &'static str {
        self.full_name
    }

    /// Where the handler is to run; `None` if it is asynchronous and runs as a task of the endpoint.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> Option<Mode> {
        match self.run {
            Run::Sync(mode, _) => Some(mode),
            Run::Task(_) | Run::Stream(_) => None,
        }
    }

    /// Whether the handler runs in the event loop, and calls have no deadline but what they bring.
    #[inline]
    pub(crate) fn is_plain(&self) -> bool {
        self.plain
    }

    /// When a call ends that came with the deadline `carried`: then, or if that is never, when the method's
    /// own deadline has passed. `now` is asked only if there is one.
    pub(crate) fn due(&self, carried: Instant, now: impl FnOnce() -> Instant) -> Instant {
        match self.deadline {
            Some(within) if carried == Instant::NEVER => now() + within,
            _ => carried,
        }
    }

    /// Whether calls have a deadline also if they come without one.
    #[inline]
    pub(super) fn has_deadline(&self) -> bool {
        self.deadline.is_some()
    }

    #[inline]
    pub(super) fn is_idempotent(&self) -> bool {
        self.idempotent
    }

    /// Runs the method on a request, `body`, and the interceptors around it. Does not unwind: a panic of
    /// the user's code becomes a status.
    ///
    /// An asynchronous method fails here: it needs an [`Endpoint`](crate::endpoint::Endpoint).
    #[inline]
    pub fn call(&self, context: &CallContext<'_>, body: &[u8]) -> Outcome {
        match &self.run {
            Run::Sync(_, handler) => handler(context, body),
            Run::Task(_) | Run::Stream(_) => {
                Outcome::Failed(Status::internal("the method needs an endpoint to run on"))
            }
        }
    }

    /// The method as an endpoint runs it; `None` if it is synchronous.
    pub(crate) fn tasks(self: &Arc<Self>, port: &Rc<dyn TaskPort>) -> Option<Rc<dyn TaskMethod>> {
        match &self.run {
            Run::Sync(..) | Run::Stream(_) => None,
            Run::Task(make) => Some(make(self, port)),
        }
    }

    /// The method as an endpoint runs it; `None` if it does not stream.
    pub(crate) fn streams(self: &Arc<Self>) -> Option<Rc<dyn StreamMethod>> {
        match &self.run {
            Run::Sync(..) | Run::Task(_) => None,
            Run::Stream(make) => Some(make(self)),
        }
    }

    /// Place among the server's methods, from 0.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    #[inline]
    pub(super) fn max_request(&self) -> u32 {
        self.max_request
    }

    #[inline]
    pub(super) fn max_response(&self) -> u32 {
        self.max_response
    }

    #[inline]
    pub(super) fn interceptors(&self) -> &[Arc<dyn Interceptor>] {
        &self.interceptors
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode() {
            Some(mode) => write!(f, "{} ({mode:?})", self.full_name),
            None => write!(f, "{} (Async)", self.full_name),
        }
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

/// The methods of a server, and the interceptors around them.
///
/// A hash table with open addressing and linear probing, at most half full. Ids are hashes already, so
/// a lookup is a mask, a compare and seldom a second compare: a few nanoseconds, also for ids that a
/// hostile client makes up, since only the server's own ids are in the table.
#[derive(Default)]
pub struct Routes {
    /// Method id (0: free) and index into `entries`; the length is 0 or a power of two.
    slots: Vec<(u32, u32)>,
    entries: Vec<Arc<Entry>>,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl Routes {
    /// A table without methods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method that `handler` answers, with `service` as its state.
    ///
    /// The handler gets the request as its codec's [view](Codec::View) of the received bytes: decoded by
    /// [`Prost`](super::Prost), in place by [`Borrowed`](super::Borrowed) and [`Fixed`](super::Fixed).
    ///
    /// # Errors
    /// [`MethodCollision`] if the method, or another with its id, is there.
    pub fn unary<S, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        mode: Mode,
        service: &Arc<S>,
        handler: impl for<'a> Fn(&S, Request<'a, C::View<'a>>) -> Result<Response<Resp>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let handler = answering::<S, Req, Resp, C, D>(Arc::clone(service), handler);
        self.insert(method.id(), Entry::new(&method, Run::Sync(mode, handler)))
    }

    /// Adds a method that the asynchronous `handler` answers, with `service` as its state.
    ///
    /// Each call is a task of the endpoint that received it: it may await other calls
    /// ([`Endpoint::current`](crate::endpoint::Endpoint::current)), runs on the endpoint's thread, needs
    /// not be `Send`, and must not block. The request is decoded for good, as the received bytes
    /// are gone when the handler first waits. If the caller gives the call up, or goes, the task
    /// is dropped where it waits.
    ///
    /// # Errors
    /// [`MethodCollision`] if the method, or another with its id, is there.
    pub fn unary_async<S, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl AsyncFn(&S, Request<'_, Req>) -> Result<Response<Resp>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let tasks = tasks::<S, Req, Resp, C, D>(Arc::clone(service), handler);
        self.insert(method.id(), Entry::new(&method, Run::Task(tasks)))
    }

    /// Adds a method whose asynchronous `handler` answers one request with many messages, with `service` as
    /// its state. The stream ends when the handler does, with its status.
    ///
    /// Each stream is a task of the endpoint, as with [`Routes::unary_async`], and is dropped where it
    /// waits if the caller gives the stream up, or goes.
    ///
    /// # Errors
    /// [`MethodCollision`] if the method, or another with its id, is there.
    pub fn server_streaming<S, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl AsyncFn(&S, Request<'_, Req>, Outgoing<Resp>) -> Result<(), Status>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        self.streaming::<Server, S, _, Req, Resp, C, D>(method, service, handler)
    }

    /// Adds a method whose asynchronous `handler` reads many messages and answers with one; otherwise as
    /// [`Routes::server_streaming`]. The handler may answer before it has read them all.
    ///
    /// # Errors
    /// [`MethodCollision`] if the method, or another with its id, is there.
    pub fn client_streaming<S, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl AsyncFn(&S, Request<'_, Incoming<Req>>) -> Result<Response<Resp>, Status>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        self.streaming::<Client, S, _, Req, Resp, C, D>(method, service, handler)
    }

    /// Adds a method whose asynchronous `handler` reads many messages and sends many, in whatever order it
    /// likes; otherwise as [`Routes::server_streaming`].
    ///
    /// # Errors
    /// [`MethodCollision`] if the method, or another with its id, is there.
    pub fn bidi_streaming<S, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: impl AsyncFn(&S, Request<'_, Incoming<Req>>, Outgoing<Resp>) -> Result<(), Status>
        + Send
        + Sync
        + 'static,
    ) -> Result<(), MethodCollision>
    where
        S: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        self.streaming::<Both, S, _, Req, Resp, C, D>(method, service, handler)
    }

    /// Adds a method whose handler has the shape `K`.
    fn streaming<K, S, H, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        handler: H,
    ) -> Result<(), MethodCollision>
    where
        K: Shape<S, H, Req, Resp, C, D>,
        S: Send + Sync + 'static,
        H: Send + Sync + 'static,
        Req: 'static,
        Resp: 'static,
        C: 'static,
        D: 'static,
    {
        let streams = streams::<K, S, H, Req, Resp, C, D>(Arc::clone(service), handler);
        self.insert(method.id(), Entry::new(&method, Run::Stream(streams)))
    }

    /// Has every call of every method, also of those that are added later, pass `interceptor`, within
    /// those that were added before.
    pub fn intercept(&mut self, interceptor: impl Interceptor) {
        let interceptor: Arc<dyn Interceptor> = Arc::new(interceptor);
        for entry in &mut self.entries {
            Arc::make_mut(entry).interceptors.push(Arc::clone(&interceptor));
        }
        self.interceptors.push(interceptor);
    }

    /// The method with that id.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Arc<Entry>> {
        match self.slots.get(self.position(id)) {
            Some(&(found, index)) if found != 0 => self.entries.get(index as usize),
            _ => None,
        }
    }

    /// Every method, in the order of registration.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<Entry>> {
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

    fn insert(&mut self, id: u32, mut entry: Entry) -> Result<(), MethodCollision> {
        if let Some(there) = self.get(id) {
            return Err(MethodCollision { first: there.full_name, second: entry.full_name });
        }
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let at = self.position(id);
        entry.index = self.entries.len() as u32;
        entry.interceptors.clone_from(&self.interceptors);
        self.slots[at] = (id, entry.index);
        self.entries.push(Arc::new(entry));
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

#[cfg(test)]
mod tests;
