//! Calls to a service rather than to one server.
//!
//! ```text
//!   Channel    what users hold            mod.rs         Balancer  backends, the line     balancer.rs
//!   Builder    how it is to be            builder.rs     Backend   one server's sessions  backend.rs
//!   Resolver   where the servers are      resolver.rs    Balance   which one is called    balance.rs
//! ```
//!
//! Each session of a backend is kept by a task of the endpoint, which opens it, waits for its end, and
//! opens it again after a pause. Another task asks the resolver. Both end with the channel.

mod backend;
mod balance;
mod balancer;
mod builder;
mod resolver;

use std::fmt;
use std::rc::Rc;

use crate::calling::link::Link;
use crate::calling::options::{CallOptions, prepare};
use crate::calling::plan::Wishes;
use crate::calling::retry::Budget;
use crate::calling::table::Outcome;
use crate::client::call::Call;
use crate::client::session::{ConnectFailed, ConnectFailure, Session, Target};
use crate::endpoint::open::Endpoint;
use crate::endpoint::state::Shared;
use crate::executor::tasks::WakeSlot;
use crate::protocol::{CallError, Cause};
use crate::service::{Codec, Method};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;
pub use backend::BackendStats;
pub use balance::Balance;
use balancer::Balancer;
pub use builder::ChannelBuilder;
pub use resolver::{Lookup, Resolver};

/// Where a service is called: one server or several, reconnected to when they come back. What generated
/// clients call over.
///
/// Cheap to clone; clones share their sessions. Belongs to the thread of its endpoint, and does not keep
/// the endpoint alive. When the last clone is dropped its sessions are disconnected, after the calls that
/// were made. A [`Session`] is a channel, too, by `From`.
///
/// ```no_run
/// use std::time::Duration;
/// use erpc_core::client::{Balance, Channel, Lookup};
/// use erpc_core::calling::{CallOptions, RetryPolicy};
/// use erpc_core::endpoint::Endpoint;
/// use erpc_core::service::Method;
///
/// const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double").idempotent();
///
/// let endpoint = Endpoint::udp()?;
/// let channel = Channel::to(&endpoint, Lookup::new("math.example:31850"))
///     .balance(Balance::LeastOutstanding)
///     .options(CallOptions::new().retry(RetryPolicy::new(3)))
///     .build();
/// let patient = channel.with(CallOptions::new().deadline(Duration::from_millis(20)));
/// assert_eq!(endpoint.block_on(patient.call(&DOUBLE, &21))?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Channel<T: Transport = UdpTransport> {
    place: Place<T>,
    options: Option<Rc<CallOptions>>,
}

/// What a channel, all its clones included, has done so far; see [`Channel::stats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Failed calls that were given another attempt, once for each.
    pub retries: u64,
    /// Those that would have been, had the [`RetryPolicy`](crate::calling::RetryPolicy)'s budget not been used up.
    pub retries_refused: u64,
    /// Sessions that opened in the place of one that had ended.
    pub reconnects: u64,
}

/// Where sessions come from.
pub(crate) enum Place<T: Transport> {
    /// Always this one.
    Session(Session<T>, Rc<Budget>),
    Balanced(Rc<Balancer<T>>),
}

/// Why there is no session for a call.
pub(crate) enum Unpicked {
    /// It is not known yet whether a server can be reached.
    Soon,
    /// None can, and that is how the last attempt failed.
    Down(Cause),
}

impl<T: Transport> Channel<T> {
    /// Describes a channel to the servers that `resolver` names: a `Vec` of routes, a [`Lookup`] of a name,
    /// or a resolver of one's own. Nothing is looked up or connected before the first call or
    /// [`Channel::ready`].
    pub fn to(endpoint: &Endpoint<T>, resolver: impl Resolver<T::Route>) -> ChannelBuilder<T> {
        ChannelBuilder::new(endpoint.shared(), resolver)
    }

    /// A channel to the servers at `target`, with the defaults of [`ChannelBuilder`]; runs the endpoint
    /// until one of them is connected. The target's name is looked up once, here.
    ///
    /// # Errors
    /// [`ConnectFailed`] if none of them can be reached, with the address that was tried last.
    ///
    /// # Panics
    /// Within a handler or callback, as [`Endpoint::block_on`].
    pub fn connect(
        endpoint: &Endpoint<T>,
        target: impl Target<T::Route>,
    ) -> Result<Self, ConnectFailed> {
        let routes = target.routes();
        let routes = routes
            .map_err(|error| ConnectFailed::new(String::new(), ConnectFailure::Resolve(error)))?;
        if routes.is_empty() {
            return Err(ConnectFailed::new(String::new(), ConnectFailure::NoAddress));
        }
        let channel = Self::to(endpoint, routes).build();
        endpoint.block_on(channel.ready())?;
        Ok(channel)
    }

    fn balanced(balancer: Rc<Balancer<T>>, options: Option<CallOptions>) -> Self {
        Self { place: Place::Balanced(balancer), options: options.map(Rc::new) }
    }

    /// The same channel, whose calls are made with `options`; what they do not set is as it was.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Self {
        let options = match self.options.as_deref() {
            Some(defaults) => options.or(defaults),
            None => options,
        };
        Self { place: self.place.clone(), options: Some(Rc::new(options)) }
    }

    /// Calls `method`. The request is encoded now and sent with the endpoint's next turn, or when there is
    /// a session; the future brings the response, decoded when it is awaited. Dropping the future
    /// cancels the call.
    ///
    /// # Errors
    /// Everything that can go wrong is the future's output.
    pub fn call<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
    ) -> Call<Resp, T>
    where
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let key = self.start(method, request, || Outcome::Awaited(WakeSlot::Empty));
        Call::new(self.place.shared(), method, key)
    }

    /// Calls `method` and hands the outcome to `done`; see [`Session::call_with`].
    pub fn call_with<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
        done: impl FnOnce(Result<Resp, CallError>) + 'static,
    ) where
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let callback = self.place.shared().callbacks.wrap(method, done);
        self.start(method, request, || Outcome::Callback(Some(callback)));
    }

    #[inline]
    fn start<Req, Resp, C: Codec<Req>, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
        outcome: impl FnOnce() -> Outcome,
    ) -> usize {
        let shared = self.place.shared();
        let options = self.options.as_deref();
        let call = prepare(method, request, options, &mut shared.pool(), || shared.now());
        let policy = options.and_then(CallOptions::policy);
        let policy = policy.filter(|policy| policy.covers(method.is_idempotent()));
        if policy.is_none()
            && let Ok(link) = self.place.pick(None)
        {
            return shared.start(link, call, outcome);
        }
        match call {
            Err(reason) => shared.refuse(CallError::Rejected(reason), outcome()),
            Ok(call) => {
                let wishes = Wishes {
                    waits: options.is_some_and(CallOptions::waits),
                    idempotent: method.is_idempotent(),
                    policy: policy.cloned(),
                };
                shared.start_planned(&self.place, call, wishes, outcome())
            }
        }
    }

    pub(crate) fn place(&self) -> &Place<T> {
        &self.place
    }

    pub(crate) fn options(&self) -> Option<&CallOptions> {
        self.options.as_deref()
    }

    /// Waits until a server is connected. Begins to connect if nothing has.
    ///
    /// # Errors
    /// [`ConnectFailed`] if all servers have been tried and none could be reached. The channel goes on
    /// trying.
    pub async fn ready(&self) -> Result<(), ConnectFailed> {
        match &self.place {
            Place::Session(session, _) => session.opened().await,
            Place::Balanced(balancer) => balancer.ready().await,
        }
    }

    /// The servers as they are now; one for a channel over a session.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendStats<T::Route>> {
        match &self.place {
            Place::Session(session, _) => {
                let sessions = usize::from(session.is_open());
                let peer = session.peer();
                let calls = session.link().calls() + session.streams().load(peer).streams();
                vec![BackendStats { peer, sessions, calls }]
            }
            Place::Balanced(balancer) => balancer.stats(),
        }
    }

    /// What was counted so far. A channel over a session never reconnects, and counts from where it was
    /// made of the session.
    #[must_use]
    pub fn stats(&self) -> ChannelStats {
        let budget = self.place.budget();
        let reconnects = match &self.place {
            Place::Session(..) => 0,
            Place::Balanced(balancer) => balancer.reconnects(),
        };
        ChannelStats { retries: budget.granted(), retries_refused: budget.refused(), reconnects }
    }
}

impl<T: Transport> Place<T> {
    #[inline]
    pub(crate) fn shared(&self) -> &Rc<Shared<T>> {
        match self {
            Self::Session(session, _) => session.shared(),
            Self::Balanced(balancer) => balancer.shared(),
        }
    }

    /// A session to call on; not that at `avoid` if there is another. Allocates nothing.
    #[inline]
    pub(crate) fn pick(
        &self,
        avoid: Option<&Rc<Link<T::Route>>>,
    ) -> Result<Rc<Link<T::Route>>, Unpicked> {
        match self {
            Self::Session(session, _) => Ok(Rc::clone(session.link())),
            Self::Balanced(balancer) => balancer.pick(avoid),
        }
    }

    /// Puts a call into the line for a session; returns its ticket, `None` if there is no more room.
    pub(crate) fn join_line(&self, key: usize) -> Option<u64> {
        match self {
            Self::Session(..) => None,
            Self::Balanced(balancer) => balancer.join_line(key),
        }
    }

    pub(crate) fn leave_line(&self, ticket: u64) {
        if let Self::Balanced(balancer) = self {
            balancer.leave_line(ticket);
        }
    }

    pub(crate) fn budget(&self) -> &Budget {
        match self {
            Self::Session(_, budget) => budget,
            Self::Balanced(balancer) => balancer.budget(),
        }
    }
}

impl<T: Transport> Clone for Place<T> {
    fn clone(&self) -> Self {
        match self {
            Self::Session(session, budget) => Self::Session(session.clone(), Rc::clone(budget)),
            Self::Balanced(balancer) => Self::Balanced(Rc::clone(balancer)),
        }
    }
}

impl<T: Transport> From<Session<T>> for Channel<T> {
    fn from(session: Session<T>) -> Self {
        Self { place: Place::Session(session, Rc::default()), options: None }
    }
}

impl<T: Transport> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self { place: self.place.clone(), options: self.options.clone() }
    }
}

impl<T: Transport> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("backends", &self.backends()).finish_non_exhaustive()
    }
}
