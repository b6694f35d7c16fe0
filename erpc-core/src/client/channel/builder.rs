//! Settings of a channel.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use super::Channel;
use super::balance::Balance;
use super::balancer::{Balancer, BalancerSettings, StartResolving};
use super::follow::follow;
use super::resolver::Resolver;
use crate::calling::options::CallOptions;
use crate::calling::retry::Backoff;
use crate::client::connect_error::{ConnectFailed, ConnectFailure};
use crate::client::target::Target;
use crate::endpoint::Endpoint;
use crate::endpoint::parts::EndpointParts;
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Builder of a channel; see [`Channel::to`].
#[must_use = "a builder connects nothing until `build`"]
pub struct ChannelBuilder<T: Transport = UdpTransport> {
    endpoint: Rc<EndpointParts<T>>,
    settings: BalancerSettings,
    options: Option<CallOptions>,
    start: StartResolving<T>,
}

impl<T: Transport> ChannelBuilder<T> {
    fn new(endpoint: &Rc<EndpointParts<T>>, resolver: impl Resolver<T::Route>) -> Self {
        Self {
            endpoint: Rc::clone(endpoint),
            settings: BalancerSettings::default(),
            options: None,
            start: Box::new(|balancer| follow(balancer, resolver)),
        }
    }

    /// A builder with these settings.
    pub(in crate::client) fn with_settings(
        endpoint: &Endpoint<T>,
        resolver: impl Resolver<T::Route>,
        settings: BalancerSettings,
    ) -> Self {
        Self { settings, ..Self::new(endpoint.parts(), resolver) }
    }

    /// How calls are spread over the servers. Default: [`Balance::RoundRobin`].
    pub const fn balance(mut self, balance: Balance) -> Self {
        self.settings.balance = balance;
        self
    }

    /// Sessions to each server; at least 1, default 1. A session has up to 8 calls in flight, or as
    /// many as it has [slots](crate::protocol::EndpointConfig::slots). One thread of the server
    /// serves it.
    pub const fn sessions(mut self, per_server: usize) -> Self {
        self.settings.sessions = if per_server == 0 { 1 } else { per_server };
        self
    }

    /// Pause before a server is tried again: `base`, doubled with each consecutive failure, up to
    /// `cap`, and reduced at random by up to half. Defaults: 50 ms and 5 s. A session that was open
    /// for at least `base` is reopened immediately.
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = Backoff { base, cap };
        self
    }

    /// Shortest time from an answer of the resolver to the next query. Default: 1 s. The channel
    /// asks again after an error or an empty answer, when a server cannot be reached, when a
    /// session ends, and when the answer expires ([`Resolver::good_for`]).
    pub const fn resolve_pause(mut self, pause: Duration) -> Self {
        self.settings.resolve_pause = pause;
        self
    }

    /// Maximum number of calls that wait for a session. Default: 1,024. A further call fails with
    /// [`RejectReason::QueueFull`](crate::protocol::RejectReason::QueueFull).
    pub const fn queue_limit(mut self, calls: usize) -> Self {
        self.settings.queue_limit = calls;
        self
    }

    /// Asks each server whether it serves `service`, by its full name such as `pkg.Service`, and
    /// avoids servers that report that they do not. `""` asks about the server as a whole. Default:
    /// not asked.
    ///
    /// The channel watches `erpc.health.v1.Health` at each server, with a stream of its own. A
    /// server gets no calls before its first report, and counts as not serving if this report takes
    /// longer than 2 s. A server without that service counts as serving. If no server serves, calls fail with
    /// [`CallError::NoServer`](crate::protocol::CallError::NoServer), whose cause is
    /// [`Cause::NotServing`](crate::protocol::Cause::NotServing), unless they
    /// [wait](CallOptions::wait_for_ready).
    pub fn health_check(mut self, service: &str) -> Self {
        self.settings.health = Some(Arc::from(service));
        self
    }

    /// Options of all calls; [`Channel::with`] overrides single ones. Default: nothing set.
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// Builds the channel. It resolves and connects nothing until its first use.
    pub fn build(self) -> Channel<T> {
        Channel::balanced(Balancer::new(self.endpoint, self.settings, self.start), self.options)
    }
}

impl<T: Transport> fmt::Debug for ChannelBuilder<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChannelBuilder")
            .field("settings", &self.settings)
            .field("options", &self.options)
            .finish_non_exhaustive()
    }
}

impl<T: Transport> Channel<T> {
    /// Builds a channel to the servers that `resolver` returns: a `Vec` of routes, a
    /// [`Lookup`](crate::client::Lookup) of a name, or a custom resolver. Nothing is resolved or
    /// connected before the first call or [`Channel::ready`].
    pub fn to(endpoint: &Endpoint<T>, resolver: impl Resolver<T::Route>) -> ChannelBuilder<T> {
        ChannelBuilder::new(endpoint.parts(), resolver)
    }

    /// A channel to the servers at `target`, with the defaults of [`ChannelBuilder`]. Runs the
    /// endpoint until one server is connected. The target's name is resolved only once, here.
    ///
    /// # Errors
    /// [`ConnectFailed`] if the target cannot be resolved or no server can be reached. If servers
    /// were tried, it contains the address that was tried last.
    ///
    /// # Panics
    /// Within a handler or callback, like [`Endpoint::block_on`].
    pub fn connect(
        endpoint: &Endpoint<T>,
        target: impl Target<T::Route>,
    ) -> Result<Self, ConnectFailed> {
        let routes = target.routes();
        let routes = routes
            .map_err(|error| ConnectFailed::new(target.name(), ConnectFailure::Resolve(error)))?;
        if routes.is_empty() {
            return Err(ConnectFailed::new(target.name(), ConnectFailure::NoAddress));
        }
        let channel = Self::to(endpoint, routes).build();
        endpoint.block_on(channel.ready())?;
        Ok(channel)
    }
}
