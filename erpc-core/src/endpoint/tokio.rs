//! Endpoints in programs that run on tokio.
//!
//! An endpoint belongs to one thread. Tasks that may run on any thread reach it by a [`Remote`]:
//!
//! ```no_run
//! use std::net::SocketAddr;
//! use erpc_core::endpoint::Endpoint;
//! use erpc_core::endpoint::tokio::Remote;
//! use erpc_core::service::Method;
//!
//! const DOUBLE: Method<u32, u32> = Method::new("math.v1.Math/Double");
//! const SERVER: &str = "10.0.0.7:31850";
//!
//! // The endpoint has a thread of its own, which nothing else slows down.
//! let (send, receive) = std::sync::mpsc::channel();
//! std::thread::spawn(move || {
//!     let endpoint = Endpoint::udp().expect("a socket");
//!     send.send(Remote::from(endpoint.handle())).expect("the receiver waits");
//!     endpoint.block_on(std::future::pending::<()>())
//! });
//! let remote: Remote = receive.recv()?;
//!
//! // In any task of any runtime:
//! let task = async move {
//!     remote.run(|endpoint| async move {
//!         let session = endpoint.connect_async(SERVER.parse::<SocketAddr>().ok()?.into()).await.ok()?;
//!         session.call(&DOUBLE, &21).await.ok()
//!     }).await
//! };
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Or the endpoint lives among the tasks of one tokio thread, where [`drive`] runs it: simpler, and slower
//! by what tokio's reactor takes, some microseconds per wake.
//!
//! A future of an endpoint, awaited in a tokio task while no thread runs the endpoint's loop, panics after the
//! liveness time-out, with what to do instead: it would wait for ever.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use ::tokio::io::Interest;
use ::tokio::io::unix::{AsyncFd, AsyncFdReadyGuard};
use ::tokio::sync::oneshot;
use ::tokio::task::yield_now;
use ::tokio::time::sleep;

use super::handle::{Handle, SubmitError};
use super::open::Endpoint;
use super::parts::EndpointParts;
use crate::time::Instant;
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Runs futures on an endpoint's thread, from tasks that run anywhere. Cheap to clone; does not keep the
/// endpoint alive.
pub struct Remote<T: Transport = UdpTransport> {
    handle: Handle<T>,
}

impl<T: Transport> Remote<T> {
    /// Calls `job` on the endpoint's thread, and runs the future that it returns there, as a task; brings its
    /// output. Whatever belongs to the endpoint stays there: clients that many jobs use are kept with
    /// [`Endpoint::local`].
    ///
    /// Dropping the future that this returns drops that on the endpoint's thread, too: its calls are
    /// cancelled.
    ///
    /// # Errors
    /// [`RemoteError`] if there is no output.
    pub async fn run<F>(
        &self,
        job: impl FnOnce(Endpoint<T>) -> F + Send + 'static,
    ) -> Result<F::Output, RemoteError>
    where
        F: Future + 'static,
        F::Output: Send + 'static,
    {
        let (sender, receiver) = oneshot::channel();
        let submitted = self.handle.submit(move |endpoint| {
            let future = job(endpoint.clone());
            drop(endpoint.spawn(answer(future, sender)));
        });
        submitted.map_err(|error| match error {
            SubmitError::Full => RemoteError::Full,
            SubmitError::Gone => RemoteError::Lost,
        })?;
        receiver.await.map_err(|_| RemoteError::Lost)
    }

    /// The handle that this is made from.
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        &self.handle
    }
}

/// Sends the future's output, or drops the future when the receiver is dropped.
async fn answer<F: Future>(future: F, mut sender: oneshot::Sender<F::Output>) {
    let mut future = pin!(future);
    let output = poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        sender.poll_closed(cx).map(|()| None)
    })
    .await;
    if let Some(output) = output {
        // The receiver may have been dropped just now.
        drop(sender.send(output));
    }
}

impl<T: Transport> From<Handle<T>> for Remote<T> {
    fn from(handle: Handle<T>) -> Self {
        Self { handle }
    }
}

impl<T: Transport> Clone for Remote<T> {
    fn clone(&self) -> Self {
        Self { handle: self.handle.clone() }
    }
}

impl<T: Transport> fmt::Debug for Remote<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Remote")
    }
}

/// Why a job has no output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum RemoteError {
    /// [`MAILBOX_LIMIT`](crate::event_loop::MAILBOX_LIMIT) jobs wait for the endpoint already; this one was not begun.
    Full,
    /// The endpoint is gone, or the job panicked; it may have been begun.
    Lost,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => SubmitError::Full.fmt(f),
            Self::Lost => f.write_str("the endpoint is gone, or the job panicked"),
        }
    }
}

impl std::error::Error for RemoteError {}

/// What tokio's timers are exact to.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// Turns after which other tasks of the thread get a turn.
const TURNS: usize = 16;

/// Runs an endpoint among the tasks of this thread, until [`Endpoint::shutdown`]. Sleeps, whatever the
/// endpoint's idle policy, while there is nothing to do.
///
/// Belongs on a `LocalSet` or into the future that a runtime blocks on; other tasks of the thread may then
/// await calls of the endpoint. For the last millisecond before a timer it yields instead of sleeping, as tokio's timers are
/// no more exact than that.
///
/// # Errors
/// If tokio cannot watch the endpoint's socket.
///
/// # Panics
/// Outside of a tokio runtime with I/O and time. Panics of callbacks pass through.
pub async fn drive(endpoint: &Endpoint) -> io::Result<()> {
    let parts = endpoint.parts();
    let _driven = parts.scheduler().executor().standstill.driven();
    let watch = WatchedSockets::new(parts)?;
    let mut ready: Option<Ready<'_>> = None;
    while !parts.is_closed() {
        if (0..TURNS).all(|_| endpoint.run_once() > 0) {
            yield_now().await;
            continue;
        }
        // The socket was empty after it was seen to be readable: tokio reports what came since.
        if let Some(mut seen) = ready.take() {
            seen.clear_ready();
        }
        if parts.next_deadline() - parts.scheduler().now() < TIMER_GRAIN {
            // Tokio would oversleep, and a session that is paced would send one packet where it may send many.
            yield_now().await;
            continue;
        }
        ready = watch.sleep(parts).await?;
    }
    Ok(())
}

/// A socket that was seen to be readable.
type Ready<'w> = AsyncFdReadyGuard<'w, OwnedFd>;

/// What an endpoint sleeps on.
struct WatchedSockets {
    socket: AsyncFd<OwnedFd>,
    event: AsyncFd<OwnedFd>,
}

impl WatchedSockets {
    fn new(parts: &EndpointParts<UdpTransport>) -> io::Result<Self> {
        let rpc = parts.rpc().ok_or_else(|| io::Error::other(BUSY))?;
        let [socket, event] = rpc.transport().watched();
        Ok(Self { socket: watched(socket)?, event: watched(event)? })
    }

    /// Waits until there is something to do. Brings what has to be cleared when the socket was found empty.
    async fn sleep(&self, parts: &EndpointParts<UdpTransport>) -> io::Result<Option<Ready<'_>>> {
        let deadline = parts.next_deadline();
        let timer = (deadline != Instant::NEVER).then(|| deadline - parts.scheduler().now());
        let Some(mut asleep) = ReactorSleep::begin(parts) else { return Ok(None) };
        let mut timer = pin!(async move {
            match timer {
                Some(time) => sleep(time).await,
                None => pending().await,
            }
        });
        poll_fn(|cx| {
            if let Poll::Ready(event) = self.event.poll_read_ready(cx) {
                asleep.rung = true;
                event?.clear_ready();
                return Poll::Ready(Ok(None));
            }
            if let Poll::Ready(socket) = self.socket.poll_read_ready(cx) {
                return Poll::Ready(socket.map(Some));
            }
            timer.as_mut().poll(cx).map(|()| Ok(None))
        })
        .await
    }
}

#[expect(
    deprecated,
    reason = "what replaces it is unsafe, and unknown to older versions; an `OwnedFd` keeps its promise"
)]
fn watched(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.try_clone_to_owned()?, Interest::READABLE)
}

/// An endpoint that sleeps until this is dropped.
struct ReactorSleep<'s> {
    parts: &'s EndpointParts<UdpTransport>,
    /// Whether what wakers write to was readable.
    rung: bool,
}

impl<'s> ReactorSleep<'s> {
    /// `None` if there is something to do.
    fn begin(parts: &'s EndpointParts<UdpTransport>) -> Option<Self> {
        let asleep = Self { parts, rung: false };
        parts.scheduler().set_in_reactor(true);
        let bell = parts.mailbox().bell();
        let sleeps = !parts.is_busy()
            && bell.begin_sleep()
            && parts.rpc().is_some_and(|rpc| rpc.transport().begin_sleep());
        sleeps.then_some(asleep)
    }
}

impl Drop for ReactorSleep<'_> {
    fn drop(&mut self) {
        if let Some(mut rpc) = self.parts.rpc() {
            rpc.transport().end_sleep(self.rung);
            rpc.rested();
        }
        self.parts.mailbox().bell().end_sleep();
        self.parts.scheduler().set_in_reactor(false);
    }
}

const BUSY: &str = "the endpoint is busy running this very handler or callback";
