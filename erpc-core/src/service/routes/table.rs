//! The table of a server's methods, by method id.

use std::fmt;
use std::sync::Arc;

use super::RouteEntry;
use super::entry::{Place, Run};
use crate::debug_text::debug_is_display;
use crate::service::burst::hooking;
use crate::service::handler::answering;
use crate::service::info::MethodInfo;
use crate::service::runtime::Runtime;
use crate::service::streaming::handler::{
    BidiStreaming, ClientStreaming, ServerStreaming, Shape, streams,
};
use crate::service::task::tasks;
use crate::service::{
    Burst, Codec, Incoming, Interceptor, Method, Mode, Outgoing, Request, Response,
};
use crate::status::Status;

/// Two methods have the same name or the same id, so one server cannot serve both.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct MethodCollision {
    /// Full name of the method that was registered first.
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
                "{first} and {second} have the same 32-bit method id; rename one, or use two servers"
            )
        }
    }
}

debug_is_display!(MethodCollision);

impl std::error::Error for MethodCollision {}

/// The methods of a server, and the interceptors around them.
///
/// A hash table with open addressing and linear probing, at most half full. Ids are hashes already,
/// so a lookup is a mask, a compare and rarely a second compare: a few nanoseconds. This also holds
/// for ids from a hostile client, because the table has only the server's own ids.
#[derive(Default)]
pub struct Routes {
    /// Method id (0: free) and index into `entries`; the length is 0 or a power of two.
    slots: Vec<(u32, u32)>,
    entries: Vec<Arc<RouteEntry>>,
    interceptors: Vec<Arc<dyn Interceptor>>,
    /// Runs the handlers that were added by functions such as [`Routes::unary_tokio`].
    pub(super) runtime: Option<Arc<dyn Runtime>>,
}

impl Routes {
    /// A table without methods.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a method with the synchronous `handler`, whose state is `service`.
    ///
    /// The handler gets the request as its codec's [view](Codec::View) of the received bytes:
    /// decoded by [`Prost`](crate::service::Prost), in place by
    /// [`Borrowed`](crate::service::Borrowed) and [`Fixed`](crate::service::Fixed).
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
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
        self.insert(&method, Run::Sync(mode, handler))
    }

    /// Adds a method with the asynchronous `handler`, whose state is `service`.
    ///
    /// Each call is a task of the endpoint that received it. The handler may await other calls
    /// ([`Endpoint::current`](crate::endpoint::Endpoint::current)), runs on the endpoint's thread,
    /// need not be `Send`, and must not block. The request is decoded into an owned message,
    /// because the received bytes are gone when the handler first waits. If the caller cancels the
    /// call or is gone, the task is dropped at its current `await`.
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
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
        self.insert(&method, Run::Task(Place::Loop, tasks))
    }

    /// Adds a method whose asynchronous `handler` answers one request with a stream of messages.
    /// The handler's state is `service`. The stream ends when the handler returns, with the
    /// handler's status.
    ///
    /// Each stream is a task of the endpoint, as with [`Routes::unary_async`]. It is dropped at its
    /// current `await` if the caller cancels the stream or is gone.
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
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
        self.streaming::<ServerStreaming, S, _, Req, Resp, C, D>(method, service, handler)
    }

    /// Adds a method whose asynchronous `handler` reads a stream of messages and answers with one;
    /// otherwise like [`Routes::server_streaming`]. The handler may answer before it has read all
    /// messages.
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
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
        self.streaming::<ClientStreaming, S, _, Req, Resp, C, D>(method, service, handler)
    }

    /// Adds a method whose asynchronous `handler` reads and sends a stream of messages, in any
    /// order; otherwise like [`Routes::server_streaming`].
    ///
    /// # Errors
    /// [`MethodCollision`] if the table has this method or another method with its id.
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
        self.streaming::<BidiStreaming, S, _, Req, Resp, C, D>(method, service, handler)
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
        self.insert(&method, Run::Stream(Place::Loop, streams))
    }

    /// Sets the burst hook of a method that is in the table: `hook` gets the requests of a receive
    /// burst for the method, before their handlers run. See [`Burst`].
    ///
    /// The event loop calls it when the first request of the burst for a method with a hook arrives.
    /// It calls it again, for one request, if that request could not be foreseen. All requests run in
    /// the order of their arrival. Handlers of any mode can have a hook; it always runs in the event
    /// loop. Methods without a hook pay nothing.
    ///
    /// # Panics
    /// If the table does not have the method, if it streams, or if it has a hook already.
    #[track_caller]
    pub fn on_burst<S, Req, Resp, C, D>(
        &mut self,
        method: Method<Req, Resp, C, D>,
        service: &Arc<S>,
        hook: impl for<'a> Fn(&S, Burst<'a, C::View<'a>>) + Send + Sync + 'static,
    ) where
        S: Send + Sync + 'static,
        C: Codec<Req>,
    {
        let name = method.full_name();
        let index = self.index(method.id());
        let entry = index.and_then(|index| self.entries.get_mut(index));
        let entry = entry.filter(|entry| entry.full_name() == name);
        let Some(entry) = entry else {
            panic!("{name} has no handler yet; add its handler before its burst hook")
        };
        Arc::make_mut(entry).on_burst(hooking::<S, Req, C>(Arc::clone(service), hook));
    }

    /// Passes every call of every method through `interceptor`, including methods added later.
    /// Interceptors that were added before wrap this one.
    pub fn intercept(&mut self, interceptor: impl Interceptor) {
        let interceptor: Arc<dyn Interceptor> = Arc::new(interceptor);
        for entry in &mut self.entries {
            Arc::make_mut(entry).intercept(Arc::clone(&interceptor));
        }
        self.interceptors.push(interceptor);
    }

    /// Runs the handlers of worker methods in the event loop, for endpoints without other threads.
    pub(crate) fn without_workers(mut self) -> Self {
        self.entries.iter_mut().for_each(|entry| Arc::make_mut(entry).run_in_loop());
        self
    }

    /// The method with this id.
    #[must_use]
    #[inline]
    pub fn get(&self, id: u32) -> Option<&Arc<RouteEntry>> {
        self.entries.get(self.index(id)?)
    }

    /// The index of the method with this id.
    #[inline]
    fn index(&self, id: u32) -> Option<usize> {
        match self.slots.get(self.position(id)) {
            Some(&(found, index)) if found != 0 => Some(index as usize),
            _ => None,
        }
    }

    /// The method with this index in the order of registration.
    #[inline]
    pub(crate) fn entry(&self, index: usize) -> Option<&Arc<RouteEntry>> {
        self.entries.get(index)
    }

    /// Every method, in the order of registration.
    pub fn entries(&self) -> impl Iterator<Item = &Arc<RouteEntry>> {
        self.entries.iter()
    }

    /// The slot that holds `id`, or the free slot for it; out of bounds if the table has no slots.
    /// The loop ends because the table is never more than half full.
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

    pub(super) fn insert<Req, Resp, C, D>(
        &mut self,
        method: &Method<Req, Resp, C, D>,
        run: Run,
    ) -> Result<(), MethodCollision> {
        let (id, second) = (method.id(), method.full_name());
        if let Some(there) = self.get(id) {
            return Err(MethodCollision { first: there.full_name(), second });
        }
        if (self.entries.len() + 1) * 2 > self.slots.len() {
            self.grow();
        }
        let at = self.position(id);
        let index = self.entries.len() as u32;
        let info = MethodInfo::new(method, &self.interceptors);
        self.slots[at] = (id, index);
        self.entries.push(Arc::new(RouteEntry::new(info, index, run)));
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
