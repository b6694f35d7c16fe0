//! One method of a server, and how its handler runs.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::protocol::RequestHandle;
use crate::service::handler::ErasedHandler;
use crate::service::info::MethodInfo;
use crate::service::streaming::handler::{StreamMaker, StreamMethod};
use crate::service::task::{TaskMaker, TaskMethod, TaskPort};
use crate::service::{CallContext, CallHost, HandlerOutcome, Interceptor, Mode};
use crate::status::Status;
use crate::time::Instant;

/// One method of a server.
#[derive(Clone)]
pub struct RouteEntry {
    info: Arc<MethodInfo>,
    /// Place among the server's methods.
    index: u32,
    /// Whether the handler runs in place and needs nothing to be found out before.
    plain: bool,
    run: Run,
}

/// How a method's handler runs.
#[derive(Clone)]
pub(super) enum Run {
    Sync(Mode, Arc<ErasedHandler>),
    Task(Arc<TaskMaker>),
    Stream(Arc<StreamMaker>),
}

impl RouteEntry {
    pub(super) fn new(info: MethodInfo, index: u32, run: Run) -> Self {
        let plain = matches!(run, Run::Sync(Mode::Dispatch, _)) && !info.has_deadline();
        Self { info: Arc::new(info), index, plain, run }
    }

    /// The method's full name.
    #[must_use]
    pub fn full_name(&self) -> &'static str {
        self.info.full_name()
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
        self.info.due(carried, now)
    }

    /// A call of the method, without deadline and metadata.
    #[must_use]
    #[inline]
    pub fn context<'a>(&'a self, call: RequestHandle, host: &'a dyn CallHost) -> CallContext<'a> {
        CallContext::new(&self.info, call, host)
    }

    /// Runs the method on a request, `body`, and the interceptors around it. Does not unwind: a panic of
    /// the user's code becomes a status.
    ///
    /// An asynchronous method fails here: it needs an [`Endpoint`](crate::endpoint::Endpoint).
    #[inline]
    pub fn call(&self, context: &CallContext<'_>, body: &[u8]) -> HandlerOutcome {
        match &self.run {
            Run::Sync(_, handler) => handler(context, body),
            Run::Task(_) | Run::Stream(_) => {
                HandlerOutcome::Failed(Status::internal("the method needs an endpoint to run on"))
            }
        }
    }

    /// The method as an endpoint runs it; `None` if it is synchronous.
    pub(crate) fn tasks(&self, port: &Rc<dyn TaskPort>) -> Option<Rc<dyn TaskMethod>> {
        match &self.run {
            Run::Sync(..) | Run::Stream(_) => None,
            Run::Task(make) => Some(make(&self.info, port)),
        }
    }

    /// The method as an endpoint runs it; `None` if it does not stream.
    pub(crate) fn streams(&self) -> Option<Rc<dyn StreamMethod>> {
        match &self.run {
            Run::Sync(..) | Run::Task(_) => None,
            Run::Stream(make) => Some(make(&self.info)),
        }
    }

    /// Place among the server's methods, from 0.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    /// Adds an interceptor within those that are there.
    pub(super) fn intercept(&mut self, interceptor: Arc<dyn Interceptor>) {
        Arc::make_mut(&mut self.info).intercept(interceptor);
    }
}

impl fmt::Debug for RouteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode() {
            Some(mode) => write!(f, "{} ({mode:?})", self.full_name()),
            None => write!(f, "{} (Async)", self.full_name()),
        }
    }
}
