//! Calls to a service that runs on one server or several.
//!
//! ```text
//!   Channel    the user's handle          mod.rs         Balancer  backends, call queue   balancer.rs
//!   Builder    settings                   builder.rs     Backend   one server's sessions  backend.rs
//!   Resolver   addresses of the servers   resolver.rs    Balance   choice of the server   balance.rs
//!                                                        HealthWatch  whether it serves   health.rs
//! ```
//!
//! For each session of a backend, a task of the endpoint opens the session, waits for its end, and
//! opens it again. If the session did not open, or was open only for a short time, the task pauses
//! before it opens the session again. Another task asks the resolver. All these tasks end with the
//! channel.

mod backend;
mod balance;
pub(super) mod balancer;
mod builder;
mod follow;
mod health;
mod resolver;
pub(super) mod sessions;
mod stale;

use std::fmt;
use std::rc::Rc;

pub use self::backend::BackendStats;
pub use self::balance::Balance;
use self::balancer::Balancer;
pub(super) use self::balancer::BalancerSettings;
pub use self::builder::ChannelBuilder;
pub use self::resolver::{Lookup, Resolver};
use self::sessions::{ChannelSessions, OneSession};
use super::call::Call;
use super::connect_error::ConnectFailed;
use super::session::Session;
use crate::calling::options::{CallOptions, PreparedCall, prepare};
use crate::calling::plan::PlanTerms;
use crate::calling::table::CallOutcome;
use crate::endpoint::parts::EndpointParts;
use crate::executor::tasks::WakeSlot;
use crate::protocol::{CallError, RejectReason};
use crate::service::{Codec, Encodes, Method};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// A client of a service on one server or several. It reconnects to servers that come back.
/// Generated clients call over a channel.
///
/// Cheap to clone; clones share their sessions. A channel belongs to the thread of its endpoint.
/// Other threads reach it through a [`Handle`](crate::endpoint::Handle), or use a
/// [`SharedChannel`](crate::client::SharedChannel), which is `Send`. A channel does not keep the
/// endpoint alive. Dropping the last clone disconnects its sessions once the calls already made
/// have ended. A [`Session`] converts to a channel by `From`; that channel does not reconnect.
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
/// let within_20_ms = channel.with(CallOptions::new().deadline(Duration::from_millis(20)));
/// assert_eq!(endpoint.block_on(within_20_ms.call(&DOUBLE, &21))?, 42);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "dropping the last handle disconnects the channel"]
pub struct Channel<T: Transport = UdpTransport> {
    sessions: ChannelSessions<T>,
    options: Option<Rc<CallOptions>>,
}

/// Counters of a channel and all its clones; see [`Channel::stats`].
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct ChannelStats {
    /// Retries that were granted, over all calls.
    pub retries: u64,
    /// Retries that were refused because a budget was used up; see
    /// [`RetryPolicy`](crate::calling::RetryPolicy).
    pub retries_refused: u64,
    /// Sessions that opened in place of an ended one.
    pub reconnects: u64,
}

impl<T: Transport> Channel<T> {
    pub(super) fn balanced(balancer: Rc<Balancer<T>>, options: Option<CallOptions>) -> Self {
        Self::over(ChannelSessions::Balanced(balancer), options.map(Rc::new))
    }

    fn over(sessions: ChannelSessions<T>, options: Option<Rc<CallOptions>>) -> Self {
        Self { sessions, options }
    }

    /// The same channel with `options` for its calls. Options that are not set stay unchanged.
    pub fn with(&self, options: CallOptions) -> Self {
        let options = match self.options.as_deref() {
            Some(defaults) => options.or(defaults),
            None => options,
        };
        Self::over(self.sessions.clone(), Some(Rc::new(options)))
    }

    /// Calls `method`. The request is encoded now and sent in this turn or the next, or as soon
    /// as there is a session. The future decodes the response when it is awaited. Dropping the
    /// future cancels the call.
    ///
    /// # Errors
    /// The future returns every error.
    pub fn call<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
    ) -> Call<Resp, T>
    where
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let key = self.start(method, request, || CallOutcome::Awaited(WakeSlot::Empty));
        Call::new(self.sessions.endpoint(), method, key)
    }

    /// Calls `method` and passes the outcome to `done`; see [`Session::call_with`].
    pub fn call_with<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
        done: impl for<'v> FnOnce(Result<D::View<'v>, CallError>) + 'static,
    ) where
        Resp: 'static,
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let callback = self.sessions.endpoint().calls().callbacks().wrap(method, done);
        self.start(method, request, || CallOutcome::Callback(Some(callback)));
    }

    #[inline]
    fn start<Req, Resp, C: Codec<Req>, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> usize {
        let endpoint = self.sessions.endpoint();
        let options = self.options.as_deref();
        let now = || endpoint.scheduler().now();
        let call = prepare(method, request, options, &mut endpoint.pool(), now);
        self.start_prepared(call, method.is_idempotent(), options, outcome)
    }

    /// Starts an encoded call, or queues it until there is a session. Returns its key.
    #[inline]
    pub(super) fn start_prepared(
        &self,
        call: Result<PreparedCall, RejectReason>,
        idempotent: bool,
        options: Option<&CallOptions>,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> usize {
        let endpoint = self.sessions.endpoint();
        let policy = options.and_then(CallOptions::policy);
        let policy = policy.filter(|policy| policy.covers(idempotent));
        if policy.is_none()
            && let Ok(link) = self.sessions.pick(None)
        {
            return endpoint.start(link, call, outcome);
        }
        match call {
            Err(reason) => endpoint.calls().refuse(CallError::Rejected(reason), outcome()),
            Ok(call) => {
                let terms = PlanTerms { idempotent, policy: policy.cloned() };
                let key =
                    endpoint.calls().start_planned(self.sessions.source(), call, terms, outcome());
                endpoint.hand_over();
                key
            }
        }
    }

    pub(super) fn endpoint(&self) -> &Rc<EndpointParts<T>> {
        self.sessions.endpoint()
    }

    pub(super) fn sessions(&self) -> &ChannelSessions<T> {
        &self.sessions
    }

    pub(crate) fn options(&self) -> Option<&CallOptions> {
        self.options.as_deref()
    }

    /// Waits until a server is connected. Starts to connect if the channel has not been used
    /// before.
    ///
    /// # Errors
    /// [`ConnectFailed`] if the resolver returned an error or no server, if all servers were tried
    /// and none could be reached, or if the endpoint has been shut down. The channel keeps trying,
    /// except after a shutdown, or if it is over a single session.
    pub async fn ready(&self) -> Result<(), ConnectFailed> {
        match &self.sessions {
            ChannelSessions::One(one) => one.session().opened().await,
            ChannelSessions::Balanced(balancer) => balancer.ready().await,
        }
    }

    /// The channel's current servers; one for a channel over a session.
    #[must_use]
    pub fn backends(&self) -> Vec<BackendStats<T::Route>> {
        match &self.sessions {
            ChannelSessions::One(one) => {
                let session = one.session();
                let sessions = usize::from(session.is_open());
                let peer = session.peer();
                let calls = session.link().calls() + session.streams().load(peer).streams();
                let max_request = session.stats().map(|stats| stats.max_request);
                vec![BackendStats { peer, sessions, calls, max_request }]
            }
            ChannelSessions::Balanced(balancer) => balancer.stats(),
        }
    }

    /// The counters of this channel. A channel over a session never reconnects, and counts from its
    /// conversion from the session.
    #[must_use]
    pub fn stats(&self) -> ChannelStats {
        let (retries, retries_refused) = self.sessions.budgets().counts();
        let reconnects = match &self.sessions {
            ChannelSessions::One(_) => 0,
            ChannelSessions::Balanced(balancer) => balancer.reconnects(),
        };
        ChannelStats { retries, retries_refused, reconnects }
    }
}

impl<T: Transport> From<Session<T>> for Channel<T> {
    fn from(session: Session<T>) -> Self {
        Self::over(ChannelSessions::One(Rc::new(OneSession::new(session))), None)
    }
}

impl<T: Transport> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self::over(self.sessions.clone(), self.options.clone())
    }
}

impl<T: Transport> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("backends", &self.backends()).finish_non_exhaustive()
    }
}
