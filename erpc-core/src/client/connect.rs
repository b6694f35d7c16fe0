//! Opening sessions.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use super::connect_error::{ConnectFailed, ConnectFailure};
use super::session::Session;
use super::target::Target;
use crate::calling::link::LinkPhase;
use crate::endpoint::Endpoint;
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

impl<T: Transport> Endpoint<T> {
    /// Opens a session and waits until it is open. Tries the target's addresses in order, each for
    /// at most the connect timeout, until a session is open.
    ///
    /// # Errors
    /// [`ConnectFailed`] with the address that was tried last, or with the name if it has no
    /// address.
    ///
    /// # Panics
    /// Within a handler or callback, like [`Endpoint::block_on`].
    pub fn connect(&self, target: impl Target<T::Route>) -> Result<Session<T>, ConnectFailed> {
        let routes = target.routes();
        let routes = routes
            .map_err(|error| ConnectFailed::new(target.name(), ConnectFailure::Resolve(error)))?;
        let mut failed = ConnectFailed::new(target.name(), ConnectFailure::NoAddress);
        for route in routes {
            match self.block_on(self.connect_async(route)) {
                Ok(session) => return Ok(session),
                Err(error) => failed = error,
            }
        }
        Err(failed)
    }

    /// Opens a session. The future returns the session once it is open, or [`ConnectFailed`], at
    /// the latest after the connect timeout.
    pub fn connect_async(&self, peer: T::Route) -> Connect<T> {
        Connect::new(self.open(peer))
    }

    /// Starts to open a session and returns it immediately. Calls wait until the session is open.
    /// If it cannot be opened, the calls fail with the reason.
    pub fn open(&self, peer: T::Route) -> Session<T> {
        Session::open(self.parts(), peer)
    }
}

/// A session that is being opened; see
/// [`Endpoint::connect_async`](crate::endpoint::Endpoint::connect_async).
///
/// Dropping the future before it completes closes the session.
#[must_use = "dropping it closes the session"]
pub struct Connect<T: Transport = UdpTransport> {
    session: Option<Session<T>>,
}

impl<T: Transport> Connect<T> {
    fn new(session: Session<T>) -> Self {
        Self { session: Some(session) }
    }
}

impl<T: Transport> Future for Connect<T> {
    type Output = Result<Session<T>, ConnectFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let session = self.session.as_ref().expect("a connect is not polled after it has ended");
        let link = session.link();
        let failed = match link.phase() {
            LinkPhase::Opening => {
                link.wait(session.endpoint().scheduler().executor(), cx);
                return Poll::Pending;
            }
            LinkPhase::Open | LinkPhase::Draining => None,
            LinkPhase::Closed(cause) => {
                Some(ConnectFailed::new(link.peer.to_string(), cause.into()))
            }
        };
        let session = self.session.take();
        Poll::Ready(match (failed, session) {
            (None, Some(session)) => Ok(session),
            (Some(error), _) => Err(error),
            (None, None) => unreachable!("checked above"),
        })
    }
}

impl<T: Transport> fmt::Debug for Connect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Connect").field(&self.session).finish()
    }
}
