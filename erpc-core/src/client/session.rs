//! Sessions, on which calls are made.

use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use super::call::Call;
use super::connect_error::ConnectFailed;
use super::link_guard::LinkGuard;
use super::stream::pool::StreamPool;
use crate::calling::link::{Link, LinkPhase};
use crate::calling::options::prepare;
use crate::calling::submissions::Submission;
use crate::calling::table::CallOutcome;
use crate::endpoint::parts::EndpointParts;
use crate::executor::tasks::WakeSlot;
use crate::protocol::{CallError, SessionStats};
use crate::service::{Codec, Encodes, Method};
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// A connection to a peer, opened by this endpoint. Cheap to clone; all clones are the same
/// session.
///
/// Up to 8 calls of a session are in flight at a time, or as many as it has
/// [slots](crate::protocol::EndpointConfig::slots); further calls queue. Calls complete in any
/// order. Dropping the last clone disconnects in the background, like [`Session::disconnect`]: calls
/// already made still end normally.
#[must_use = "dropping the last handle disconnects the session"]
pub struct Session<T: Transport = UdpTransport> {
    shared: Rc<SessionParts<T>>,
}

/// The state that the clones of a session share.
struct SessionParts<T: Transport> {
    guard: LinkGuard<T>,
    /// Set when the first stream is opened.
    streams: OnceCell<Rc<StreamPool<T>>>,
}

impl<T: Transport> Session<T> {
    /// Starts to open a session, which is usable immediately.
    pub(super) fn open(endpoint: &Rc<EndpointParts<T>>, peer: T::Route) -> Self {
        let guard = LinkGuard::open(endpoint, peer);
        Self { shared: Rc::new(SessionParts { guard, streams: OnceCell::new() }) }
    }

    /// Calls `method`. The request is encoded now and sent in this turn or the next, or earlier
    /// if many calls are queued. The future decodes the response when it is awaited. Dropping the
    /// future cancels the call.
    ///
    /// For a deadline, metadata or retries, convert the session to a
    /// [`Channel`](crate::client::Channel) and call on that.
    ///
    /// # Errors
    /// The future returns every error, including a full queue and a request that is too large.
    // Inlined without the start of the call: the fields of the `Call` are then written where the
    // caller keeps it, instead of moved there.
    #[inline(always)]
    pub fn call<Req, Resp, C, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
    ) -> Call<Resp, T>
    where
        C: Codec<Req>,
        D: Codec<Resp>,
    {
        let key = self.start_awaited(method, request);
        Call::new(self.endpoint(), method, key)
    }

    #[inline(never)]
    fn start_awaited<Req, Resp, C: Codec<Req>, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
    ) -> usize {
        self.start(method, request, || CallOutcome::Awaited(WakeSlot::Empty))
    }

    /// Calls `method` and passes the outcome to `done`. `done` runs within the endpoint's loop,
    /// never before this function has returned.
    ///
    /// This is the fastest way to call: the response is read in the receive buffer. `done` gets a
    /// reference to a message with a fixed layout, a view of a message with `view: true`, and otherwise
    /// the message itself.
    ///
    /// `done` may make further calls, on any session of the endpoint. It must not run the loop
    /// ([`Endpoint::block_on`] and similar) and should not take long. A panic in `done` propagates
    /// out of the loop, except in the thread of a server, which continues. If the last handle of
    /// the endpoint is gone, no loop can run `done`, so it is dropped without being called.
    ///
    /// [`Endpoint::block_on`]: crate::endpoint::Endpoint::block_on
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
        let callback = self.endpoint().calls().callbacks().wrap(method, done);
        self.start(method, request, || CallOutcome::Callback(Some(callback)));
    }

    #[inline]
    fn start<Req, Resp, C: Codec<Req>, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &impl Encodes<Req>,
        outcome: impl FnOnce() -> CallOutcome,
    ) -> usize {
        let (endpoint, link) = (self.endpoint(), self.link());
        let now = || endpoint.scheduler().now();
        let call = prepare(method, request, None, &mut endpoint.pool(), now);
        endpoint.start(Rc::clone(link), call, outcome)
    }

    #[inline]
    pub(super) fn endpoint(&self) -> &Rc<EndpointParts<T>> {
        self.shared.guard.endpoint()
    }

    #[inline]
    pub(super) fn link(&self) -> &Rc<Link<T::Route>> {
        self.shared.guard.link()
    }

    /// Pool of further sessions to the peer, for streams.
    pub(super) fn streams(&self) -> &Rc<StreamPool<T>> {
        self.shared.streams.get_or_init(StreamPool::new)
    }

    /// Refuses new calls from now on, and ends the session once its calls have ended. The future
    /// completes when the session has ended. It need not be awaited.
    pub fn disconnect(&self) -> Disconnect<T> {
        self.endpoint().submit(Submission::Disconnect(Rc::clone(self.link())));
        Disconnect { link: Rc::clone(self.link()), endpoint: Rc::clone(self.endpoint()) }
    }

    /// Waits until the session is open.
    pub(crate) async fn opened(&self) -> Result<(), ConnectFailed> {
        let link = self.link();
        match link.after(LinkPhase::Opening, self.endpoint().scheduler().executor()).await {
            LinkPhase::Closed(cause) => {
                Err(ConnectFailed::new(link.peer.to_string(), cause.into()))
            }
            LinkPhase::Opening | LinkPhase::Open | LinkPhase::Draining => Ok(()),
        }
    }

    /// The address that the session was opened to.
    #[must_use]
    pub fn peer(&self) -> T::Route {
        self.link().peer
    }

    /// Whether the handshake is done, the session has not ended, and its server does not shut down.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.link().phase() == LinkPhase::Open
    }

    /// Current round-trip time, queue and credits. `None` before the endpoint has sent the first
    /// handshake packet, after the session has closed, and within handlers and callbacks.
    #[must_use]
    pub fn stats(&self) -> Option<SessionStats> {
        let id = self.link().id()?;
        self.endpoint().rpc()?.context().session_stats(id)
    }
}

impl<T: Transport> Clone for Session<T> {
    fn clone(&self) -> Self {
        Self { shared: Rc::clone(&self.shared) }
    }
}

impl<T: Transport> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = self.link();
        f.debug_struct("Session").field("peer", &link.peer).field("phase", &link.phase()).finish()
    }
}

/// A session that is being closed; see [`Session::disconnect`].
pub struct Disconnect<T: Transport = UdpTransport> {
    link: Rc<Link<T::Route>>,
    endpoint: Rc<EndpointParts<T>>,
}

impl<T: Transport> Future for Disconnect<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.link.phase(), LinkPhase::Closed(_)) {
            return Poll::Ready(());
        }
        self.link.wait(self.endpoint.scheduler().executor(), cx);
        Poll::Pending
    }
}

impl<T: Transport> fmt::Debug for Disconnect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disconnect").field("peer", &self.link.peer).finish()
    }
}
