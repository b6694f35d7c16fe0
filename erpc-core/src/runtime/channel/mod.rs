//! Calls to a service rather than to one server.

use std::fmt;
use std::rc::Rc;

use super::call::Call;
use super::endpoint::Endpoint;
use super::options::CallOptions;
use super::session::{ConnectFailed, Session, Target};
use crate::protocol::CallError;
use crate::service::{Codec, Method};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Where a service is called: one server or several, reconnected to when they come back. What generated
/// clients call over.
///
/// Cheap to clone; clones share their sessions. Belongs to the thread of its endpoint. A [`Session`] is
/// a channel, too, by `From`.
pub struct Channel<T: Transport = UdpTransport> {
    session: Session<T>,
    options: Option<Rc<CallOptions>>,
}

impl<T: Transport> Channel<T> {
    /// A channel to the servers at `target`; runs the endpoint until one of them is connected.
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
        endpoint.connect(target).map(Self::from)
    }

    /// The same channel, whose calls are made with `options`.
    #[must_use]
    pub fn with(&self, options: CallOptions) -> Self {
        Self { session: self.session.clone(), options: Some(Rc::new(options)) }
    }

    /// Calls `method`. The request is encoded now and sent with the endpoint's next turn; the future
    /// brings the response, decoded when it is awaited.
    ///
    /// # Errors
    /// Everything that can go wrong is the future's output.
    pub fn call<Req, Resp, C>(&self, method: &Method<Req, Resp, C>, request: &Req) -> Call<Resp, T>
    where
        C: Codec<Req> + Codec<Resp>,
    {
        self.session.call(method, request)
    }

    /// Calls `method` and hands the outcome to `done`; see [`Session::call_with`].
    pub fn call_with<Req, Resp, C>(
        &self,
        method: &Method<Req, Resp, C>,
        request: &Req,
        done: impl FnOnce(Result<Resp, CallError>) + 'static,
    ) where
        Resp: 'static,
        C: Codec<Req> + Codec<Resp>,
    {
        self.session.call_with(method, request, done);
    }
}

impl<T: Transport> From<Session<T>> for Channel<T> {
    fn from(session: Session<T>) -> Self {
        Self { session, options: None }
    }
}

impl<T: Transport> Clone for Channel<T> {
    fn clone(&self) -> Self {
        Self { session: self.session.clone(), options: self.options.clone() }
    }
}

impl<T: Transport> fmt::Debug for Channel<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").field("session", &self.session).finish_non_exhaustive()
    }
}
