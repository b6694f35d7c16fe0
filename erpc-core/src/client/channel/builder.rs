//! How a channel is to be.

use std::fmt;
use std::rc::Rc;
use std::time::Duration;

use crate::calling::options::CallOptions;
use crate::client::channel::balancer::{Balancer, Settings};
use crate::client::channel::resolver::follow;
use crate::client::channel::{Balance, Channel, Resolver};
use crate::endpoint::state::Shared;
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Describes a channel; see [`Channel::to`].
#[must_use = "a builder connects nothing until `build`"]
pub struct ChannelBuilder<T: Transport = UdpTransport> {
    shared: Rc<Shared<T>>,
    settings: Settings,
    options: Option<CallOptions>,
    start: Start<T>,
}

/// Starts the task that asks the resolver; called when the channel is first used.
pub(crate) type Start<T> = Box<dyn FnOnce(&Rc<Balancer<T>>)>;

impl<T: Transport> ChannelBuilder<T> {
    pub(crate) fn new(shared: &Rc<Shared<T>>, resolver: impl Resolver<T::Route>) -> Self {
        Self {
            shared: Rc::clone(shared),
            settings: Settings::default(),
            options: None,
            start: Box::new(|balancer| follow(balancer, resolver)),
        }
    }

    /// How calls are spread; default [`Balance::RoundRobin`].
    pub const fn balance(mut self, balance: Balance) -> Self {
        self.settings.balance = balance;
        self
    }

    /// Sessions to each server; default 1, at least 1. A session has up to 8 calls on their way, and lives on
    /// one of the server's threads.
    pub const fn sessions(mut self, per_server: usize) -> Self {
        self.settings.sessions = if per_server == 0 { 1 } else { per_server };
        self
    }

    /// The pause before a server is tried again: `base`, doubled with each failure in a row, up to `cap`, and
    /// cut by up to a half at random. Default 50 ms and 5 s. A session that was open is opened again
    /// at once.
    pub const fn backoff(mut self, base: Duration, cap: Duration) -> Self {
        self.settings.backoff = (base, cap);
        self
    }

    /// How long the resolver is left alone at least, from one answer to the next question. Default 1 s. It
    /// is asked again when a server cannot be reached, and when its answer is as old as it says.
    pub const fn resolve_pause(mut self, pause: Duration) -> Self {
        self.settings.resolve_pause = pause;
        self
    }

    /// Calls that may wait for a first session; default 1,024. One more is
    /// [`RejectReason::QueueFull`](crate::protocol::RejectReason::QueueFull).
    pub const fn queue_limit(mut self, calls: usize) -> Self {
        self.settings.queue_limit = calls;
        self
    }

    /// What all calls are made with; [`Channel::with`] changes it. Default: nothing set.
    pub fn options(mut self, options: CallOptions) -> Self {
        self.options = Some(options);
        self
    }

    /// The channel. Nothing happens before it is used.
    #[must_use]
    pub fn build(self) -> Channel<T> {
        Channel::balanced(Balancer::new(self.shared, self.settings, self.start), self.options)
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
