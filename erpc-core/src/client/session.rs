//! Sessions: what calls are made on.

use std::cell::OnceCell;
use std::fmt;
use std::future::Future;
use std::io;
use std::net::ToSocketAddrs;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll};

use crate::calling::link::{Link, Phase};
use crate::calling::options::prepare;
use crate::calling::table::Outcome;
use crate::client::call::Call;
use crate::client::stream::StreamPool;
use crate::endpoint::state::{Shared, Submission};
use crate::executor::tasks::WakeSlot;
use crate::protocol::{CallError, Cause, ConnectError, SessionStats};
use crate::service::{Codec, Method};
use crate::status::Status;
use crate::transport::Transport;
use crate::transport::mem::MemRoute;
use crate::transport::udp::{UdpRoute, UdpTransport};

/// A connection to a peer, opened by this endpoint. Cheap to clone; all clones are the same session.
///
/// Up to 8 calls of a session are on their way at once, further ones queue; calls complete in any
/// order. Dropping the last clone disconnects as [`Session::disconnect`] does, in the background: calls
/// that were made still end.
pub struct Session<T: Transport = UdpTransport> {
    lease: Rc<Lease<T>>,
}

/// The right to use a link; ends the session when it goes.
struct Lease<T: Transport> {
    link: Rc<Link<T::Route>>,
    shared: Rc<Shared<T>>,
    /// Once there was a stream.
    streams: OnceCell<Rc<StreamPool<T>>>,
}

impl<T: Transport> Drop for Lease<T> {
    fn drop(&mut self) {
        if !matches!(self.link.phase(), Phase::Closed(_)) {
            self.shared.submit(Submission::Disconnect(Rc::clone(&self.link)));
        }
    }
}

impl<T: Transport> Session<T> {
    /// Starts opening a session; it is usable at once.
    pub(crate) fn open(shared: &Rc<Shared<T>>, peer: T::Route) -> Self {
        let link = Rc::new(Link::new(peer));
        shared.submit(Submission::Connect(Rc::clone(&link)));
        let streams = OnceCell::new();
        Self { lease: Rc::new(Lease { link, shared: Rc::clone(shared), streams }) }
    }

    /// Calls `method`. The request is encoded now and sent with the endpoint's next turn; the future
    /// brings the response, decoded when it is awaited. Dropping the future cancels the call.
    ///
    /// For a deadline, metadata or retries, make it a [`Channel`](crate::client::Channel) and call on that.
    ///
    /// # Errors
    /// Everything that can go wrong is the future's output, a full queue and a request that is too
    /// large included.
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
        Call::new(&self.lease.shared, method, key)
    }

    /// Calls `method` and hands the outcome to `done`, which runs within the endpoint's loop, never
    /// before this function has returned.
    ///
    /// The fastest way to call: the response is decoded where it was received. `done` may make further
    /// calls, on any session of the endpoint; it must not run the loop ([`Endpoint::block_on`] and
    /// its like) and should not take long. A panic in it surfaces from whoever runs the loop. Given after
    /// the last handle of the endpoint is gone, it is dropped untold: there is no loop left to run it.
    ///
    /// [`Endpoint::block_on`]: crate::endpoint::Endpoint::block_on
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
        let callback = self.lease.shared.callbacks.wrap(method, done);
        self.start(method, request, || Outcome::Callback(Some(callback)));
    }

    #[inline]
    fn start<Req, Resp, C: Codec<Req>, D>(
        &self,
        method: &Method<Req, Resp, C, D>,
        request: &Req,
        outcome: impl FnOnce() -> Outcome,
    ) -> usize {
        let Lease { link, shared, .. } = &*self.lease;
        let call = prepare(method, request, None, &mut shared.pool(), || shared.now());
        shared.start(Rc::clone(link), call, outcome)
    }

    pub(crate) fn shared(&self) -> &Rc<Shared<T>> {
        &self.lease.shared
    }

    #[inline]
    pub(crate) fn link(&self) -> &Rc<Link<T::Route>> {
        &self.lease.link
    }

    /// Further sessions to the peer, for streams.
    pub(crate) fn streams(&self) -> &Rc<StreamPool<T>> {
        self.lease.streams.get_or_init(StreamPool::new)
    }

    /// Ends the session once its calls have ended, and brings when that is so. New calls are refused
    /// from now on. The future needs not be awaited.
    pub fn disconnect(&self) -> Disconnect<T> {
        self.lease.shared.submit(Submission::Disconnect(Rc::clone(&self.lease.link)));
        Disconnect { link: Rc::clone(&self.lease.link), shared: Rc::clone(&self.lease.shared) }
    }

    /// Waits until the session is open.
    pub(crate) async fn opened(&self) -> Result<(), ConnectFailed> {
        let Lease { link, shared, .. } = &*self.lease;
        match link.after(Phase::Opening, shared.executor()).await {
            Phase::Closed(cause) => Err(ConnectFailed::new(link.peer.to_string(), cause.into())),
            Phase::Opening | Phase::Open => Ok(()),
        }
    }

    /// The address that the session was opened to.
    #[must_use]
    pub fn peer(&self) -> T::Route {
        self.lease.link.peer
    }

    /// Whether the handshake is done and the session has not ended.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.lease.link.phase() == Phase::Open
    }

    /// Round-trip time, queue and credits now. `None` before the session is open, after it has closed,
    /// and within handlers and callbacks.
    #[must_use]
    pub fn stats(&self) -> Option<SessionStats> {
        let id = self.lease.link.id()?;
        self.lease.shared.rpc()?.context().session_stats(id)
    }
}

impl<T: Transport> Clone for Session<T> {
    fn clone(&self) -> Self {
        Self { lease: Rc::clone(&self.lease) }
    }
}

impl<T: Transport> fmt::Debug for Session<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let link = &self.lease.link;
        f.debug_struct("Session").field("peer", &link.peer).field("phase", &link.phase()).finish()
    }
}

/// A session being opened; see [`Endpoint::connect_async`](crate::endpoint::Endpoint::connect_async).
///
/// Dropping it gives the session up.
#[must_use = "dropping it gives the session up"]
pub struct Connect<T: Transport = UdpTransport> {
    session: Option<Session<T>>,
}

impl<T: Transport> Connect<T> {
    pub(crate) fn new(session: Session<T>) -> Self {
        Self { session: Some(session) }
    }
}

impl<T: Transport> Future for Connect<T> {
    type Output = Result<Session<T>, ConnectFailed>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let session = self.session.as_ref().expect("a connect is not polled after it has ended");
        let Lease { link, shared, .. } = &*session.lease;
        let failed = match link.phase() {
            Phase::Opening => {
                link.wait(shared.executor().wake_slot(cx));
                return Poll::Pending;
            }
            Phase::Open => None,
            Phase::Closed(cause) => Some(ConnectFailed::new(link.peer.to_string(), cause.into())),
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

/// A session being closed; see [`Session::disconnect`].
pub struct Disconnect<T: Transport = UdpTransport> {
    link: Rc<Link<T::Route>>,
    shared: Rc<Shared<T>>,
}

impl<T: Transport> Future for Disconnect<T> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if matches!(self.link.phase(), Phase::Closed(_)) {
            return Poll::Ready(());
        }
        self.link.wait(self.shared.executor().wake_slot(cx));
        Poll::Pending
    }
}

impl<T: Transport> fmt::Debug for Disconnect<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Disconnect").field("peer", &self.link.peer).finish()
    }
}

/// A session could not be opened: to which address, and why.
#[derive(Debug)]
pub struct ConnectFailed {
    address: String,
    reason: ConnectFailure,
}

/// Why a session could not be opened.
#[derive(Debug)]
#[non_exhaustive]
pub enum ConnectFailure {
    /// The name could not be looked up.
    Resolve(io::Error),
    /// The name has no address.
    NoAddress,
    /// The handshake failed.
    Handshake(ConnectError),
    /// The session was ended before it had opened.
    Ended(Cause),
}

impl ConnectFailed {
    pub(crate) fn new(address: String, reason: ConnectFailure) -> Self {
        Self { address, reason }
    }

    /// The address that was tried last; empty if there was none to try.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Why.
    #[must_use]
    pub fn reason(&self) -> &ConnectFailure {
        &self.reason
    }
}

/// For handlers that connect to others.
impl From<ConnectFailed> for Status {
    fn from(error: ConnectFailed) -> Self {
        Self::unavailable(error.to_string())
    }
}

impl From<Cause> for ConnectFailure {
    fn from(cause: Cause) -> Self {
        match cause {
            Cause::Connect(error) => Self::Handshake(error),
            cause => Self::Ended(cause),
        }
    }
}

impl fmt::Display for ConnectFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let address = &self.address;
        match &self.reason {
            ConnectFailure::Resolve(error) => {
                write!(f, "cannot look up the server's address: {error}; give it as host:port")
            }
            ConnectFailure::NoAddress => f.write_str("the server's name has no address"),
            ConnectFailure::Handshake(error) => write!(f, "cannot connect to {address}: {error}"),
            ConnectFailure::Ended(cause) => write!(f, "cannot connect to {address}: {cause}"),
        }
    }
}

impl std::error::Error for ConnectFailed {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.reason {
            ConnectFailure::Resolve(error) => Some(error),
            ConnectFailure::NoAddress => None,
            ConnectFailure::Handshake(error) => Some(error),
            ConnectFailure::Ended(cause) => Some(cause),
        }
    }
}

/// What [`Endpoint::connect`](crate::endpoint::Endpoint::connect) takes: everything that leads to routes of the
/// endpoint's transport. For UDP whatever implements [`ToSocketAddrs`]: `"10.0.0.7:31850"`,
/// `("node7", 31850)`, a `SocketAddr`.
pub trait Target<R> {
    /// The routes to try, in order.
    ///
    /// # Errors
    /// If a name does not resolve.
    fn routes(&self) -> io::Result<Vec<R>>;
}

impl<A: ToSocketAddrs + ?Sized> Target<UdpRoute> for A {
    fn routes(&self) -> io::Result<Vec<UdpRoute>> {
        Ok(self.to_socket_addrs()?.map(UdpRoute::from).collect())
    }
}

impl Target<Self> for MemRoute {
    fn routes(&self) -> io::Result<Vec<Self>> {
        Ok(vec![*self])
    }
}
