//! One method of a server, and how its handler runs.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use crate::protocol::RequestHandle;
use crate::service::burst::{ErasedHook, run_hook};
use crate::service::handler::ErasedHandler;
use crate::service::info::MethodInfo;
use crate::service::runtime::EndpointRuntime;
use crate::service::streaming::handler::{StreamMaker, StreamMethod};
use crate::service::task::{TaskMaker, TaskMethod, TaskPort};
use crate::service::{CallContext, CallHost, Gathered, HandlerOutcome, Interceptor, Mode};
use crate::status::Status;
use crate::time::Instant;

/// One method of a server.
#[derive(Clone)]
pub struct RouteEntry {
    info: Arc<MethodInfo>,
    /// Index among the server's methods.
    index: u32,
    fast_path: Option<FastPath>,
    run: Run,
    hook: Option<Arc<ErasedHook>>,
}

/// How a request gets to its handler quickly. Only synchronous handlers in the event loop, of methods
/// without a deadline of their own, have a fast path.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum FastPath {
    /// To the handler.
    Plain,
    /// To the method's burst hook, and to the handler.
    Hooked,
}

/// The kind of a method's handler.
#[derive(Clone)]
pub(super) enum Run {
    Sync(Mode, Arc<ErasedHandler>),
    Task(Place, Arc<TaskMaker>),
    Stream(Place, Arc<StreamMaker>),
}

/// Where an asynchronous handler runs.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Place {
    /// In the event loop of the endpoint that received the request.
    Loop,
    /// In the runtime of the server.
    Runtime,
}

impl RouteEntry {
    pub(super) fn new(info: MethodInfo, index: u32, run: Run) -> Self {
        let mut entry = Self { info: Arc::new(info), index, fast_path: None, run, hook: None };
        entry.find_fast_path();
        entry
    }

    /// The method's full name.
    #[must_use]
    pub fn full_name(&self) -> &'static str {
        self.info.full_name()
    }

    /// Where the handler runs; `None` if it is asynchronous.
    #[must_use]
    #[inline]
    pub fn mode(&self) -> Option<Mode> {
        match self.run {
            Run::Sync(mode, _) => Some(mode),
            Run::Task(..) | Run::Stream(..) => None,
        }
    }

    /// Whether the handler needs a runtime, such as tokio.
    pub(crate) fn needs_runtime(&self) -> bool {
        matches!(self.run, Run::Task(Place::Runtime, _) | Run::Stream(Place::Runtime, _))
    }

    /// See [`FastPath`].
    #[inline]
    pub(crate) fn fast_path(&self) -> Option<FastPath> {
        self.fast_path
    }

    fn find_fast_path(&mut self) {
        let has_one = matches!(self.run, Run::Sync(Mode::Dispatch, _)) && !self.info.has_deadline();
        let path = if self.has_hook() { FastPath::Hooked } else { FastPath::Plain };
        self.fast_path = has_one.then_some(path);
    }

    /// The deadline of a call that arrived with deadline `carried`: `carried`, or if that is never,
    /// the method's own deadline. Calls `now` only if it needs the method's own deadline.
    pub(crate) fn due(&self, carried: Instant, now: impl FnOnce() -> Instant) -> Instant {
        self.info.due(carried, now)
    }

    /// The context of a call of the method, without deadline and metadata.
    #[must_use]
    #[inline]
    pub fn context<'a>(&'a self, call: RequestHandle, host: &'a dyn CallHost) -> CallContext<'a> {
        CallContext::new(&self.info, call, host)
    }

    /// Runs the handler and its interceptors on the request `body`. Does not unwind: a panic of the
    /// user's code becomes a status.
    ///
    /// Fails for an asynchronous method, which needs an [`Endpoint`](crate::endpoint::Endpoint).
    #[inline(always)]
    pub fn call(&self, context: &CallContext<'_>, body: &[u8]) -> HandlerOutcome {
        match &self.run {
            Run::Sync(_, handler) => {
                let mut outcome = HandlerOutcome::Deferred;
                handler(context, body, &mut outcome);
                outcome
            }
            Run::Task(..) | Run::Stream(..) => {
                HandlerOutcome::Failed(Status::internal("the method needs an endpoint to run on"))
            }
        }
    }

    /// The method's task factory for one endpoint; `None` if it is not a unary asynchronous method.
    pub(crate) fn tasks(
        &self,
        port: &Rc<dyn TaskPort>,
        runtime: Option<&Rc<EndpointRuntime>>,
    ) -> Option<Rc<dyn TaskMethod>> {
        match &self.run {
            Run::Sync(..) | Run::Stream(..) => None,
            Run::Task(_, make) => Some(make(&self.info, port, runtime)),
        }
    }

    /// The method's stream factory for one endpoint; `None` if it does not stream.
    pub(crate) fn streams(
        &self,
        runtime: Option<&Rc<EndpointRuntime>>,
    ) -> Option<Rc<dyn StreamMethod>> {
        match &self.run {
            Run::Sync(..) | Run::Task(..) => None,
            Run::Stream(_, make) => Some(make(&self.info, runtime)),
        }
    }

    /// Index among the server's methods, from 0.
    #[inline]
    pub(crate) fn index(&self) -> usize {
        self.index as usize
    }

    /// Runs the handler of a worker method in the event loop.
    pub(super) fn run_in_loop(&mut self) {
        if let Run::Sync(mode, _) = &mut self.run {
            *mode = Mode::Dispatch;
            self.find_fast_path();
        }
    }

    /// Whether the method has a burst hook.
    #[inline]
    pub(crate) fn has_hook(&self) -> bool {
        self.hook.is_some()
    }

    /// Runs the method's burst hook, if it has one, on those requests that are for this method.
    /// Does not unwind.
    pub(crate) fn run_hook(&self, gathered: &[Gathered<'_>]) {
        if let Some(hook) = &self.hook {
            run_hook(&**hook, &self.info, self.index(), gathered);
        }
    }

    /// Sets the method's burst hook.
    ///
    /// # Panics
    /// If the method streams, or has a hook already.
    #[track_caller]
    pub(super) fn on_burst(&mut self, hook: Arc<ErasedHook>) {
        let name = self.full_name();
        assert!(
            !matches!(self.run, Run::Stream(..)),
            "{name} streams; a burst hook is for methods with one request and one response"
        );
        assert!(self.hook.is_none(), "{name} has a burst hook already");
        self.hook = Some(hook);
        self.find_fast_path();
    }

    /// Adds an interceptor, which the existing ones wrap.
    pub(super) fn intercept(&mut self, interceptor: Arc<dyn Interceptor>) {
        Arc::make_mut(&mut self.info).intercept(interceptor);
    }
}

impl fmt::Debug for RouteEntry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.mode() {
            Some(mode) => write!(f, "{} ({mode:?})", self.full_name()),
            None if self.needs_runtime() => write!(f, "{} (Tokio)", self.full_name()),
            None => write!(f, "{} (Async)", self.full_name()),
        }
    }
}
