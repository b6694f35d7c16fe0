//! Endpoints in programs that run on tokio.
//!
//! An endpoint belongs to one thread. Tasks that may run on any thread reach it through a
//! [`Remote`]:
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
//! // The endpoint has its own thread, which other work does not slow down.
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
//! Alternatively, the endpoint runs among the tasks of one tokio thread, with [`drive`]. That is
//! simpler, but tokio's reactor costs some microseconds per wake.
//!
//! If a tokio task awaits a future of an endpoint while no thread runs the endpoint's loop, it
//! would wait forever. Instead, the future panics after a second, with a message that says how to
//! fix it.

use std::fmt;
use std::future::{Future, pending, poll_fn};
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::panic::{AssertUnwindSafe, catch_unwind};
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
use crate::debug_text::debug_is_display;
use crate::executor::join::caught;
use crate::time::Instant;
use crate::transport::Transport;
use crate::transport::udp::UdpTransport;

/// Runs futures on an endpoint's thread, for tasks on any thread. Cheap to clone; does not keep the
/// endpoint alive.
pub struct Remote<T: Transport = UdpTransport> {
    handle: Handle<T>,
}

impl<T: Transport> Remote<T> {
    /// Calls `job` on the endpoint's thread, runs the future that it returns there as a task, and
    /// returns the future's output. Everything that belongs to the endpoint stays on its thread:
    /// use [`Endpoint::local`] for clients that many jobs share.
    ///
    /// Dropping the returned future also drops the job's future, on the endpoint's thread, which
    /// cancels its calls. If `job` or its future panics, the panic hook reports that, the result is
    /// [`RemoteError::Panicked`], and the endpoint continues with everything else.
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
            match catch_unwind(AssertUnwindSafe(|| job(endpoint.clone()))) {
                Ok(future) => drop(endpoint.spawn(answer(future, sender))),
                // Fails if the caller has dropped the future of `run`.
                Err(_panic) => drop(sender.send(Err(RemoteError::Panicked))),
            }
        });
        submitted.map_err(|error| match error {
            SubmitError::Full => RemoteError::Full,
            SubmitError::Gone => RemoteError::Lost,
        })?;
        receiver.await.unwrap_or(Err(RemoteError::Lost))
    }

    /// The handle from which this was created.
    #[must_use]
    pub fn handle(&self) -> &Handle<T> {
        &self.handle
    }
}

/// Sends the future's output. Drops the future when the receiver is dropped.
async fn answer<F: Future>(future: F, mut sender: oneshot::Sender<Result<F::Output, RemoteError>>) {
    let mut future = pin!(caught(future));
    let output = poll_fn(|cx| {
        if let Poll::Ready(output) = future.as_mut().poll(cx) {
            return Poll::Ready(Some(output));
        }
        sender.poll_closed(cx).map(|()| None)
    })
    .await;
    if let Some(output) = output {
        // Fails if the caller has dropped the future of `run`.
        drop(sender.send(output.map_err(|_panic| RemoteError::Panicked)));
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
#[derive(Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum RemoteError {
    /// [`MAILBOX_LIMIT`](crate::event_loop::MAILBOX_LIMIT) jobs are already queued; the new job was
    /// not started.
    Full,
    /// The endpoint is gone. The job may have started.
    Lost,
    /// The job panicked. The panic hook has reported where. The endpoint continues.
    Panicked,
}

impl fmt::Display for RemoteError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => SubmitError::Full.fmt(f),
            Self::Lost => f.write_str("the endpoint is gone; the job may have started"),
            Self::Panicked => {
                f.write_str("the job panicked; the panic message is on standard error")
            }
        }
    }
}

debug_is_display!(RemoteError);

impl std::error::Error for RemoteError {}

/// Resolution of tokio's timers.
const TIMER_GRAIN: Duration = Duration::from_millis(1);

/// After this number of consecutive turns with work, the thread's other tasks run.
const TURNS: usize = 16;

/// Runs an endpoint among the tasks of this thread, until [`Endpoint::shutdown`]. Sleeps while
/// there is no work, whatever the endpoint's idle policy is.
///
/// Run it in a `LocalSet` or in the future that a runtime blocks on. Other tasks of the thread may
/// then await calls of the endpoint. In the last millisecond before a timer, `drive` yields instead
/// of sleeping, because tokio's timers are not more precise.
///
/// # Errors
/// If tokio cannot watch the endpoint's socket, and within a handler or callback of the endpoint.
///
/// # Panics
/// Outside of a tokio runtime with I/O and time. Panics of callbacks pass through.
pub async fn drive(endpoint: &Endpoint) -> io::Result<()> {
    let parts = endpoint.parts();
    let _driven = parts.scheduler().executor().standstill().driven();
    let watch = WatchedSockets::new(parts)?;
    let mut ready: Option<Ready<'_>> = None;
    while !parts.is_closed() {
        if (0..TURNS).all(|_| endpoint.run_once() > 0) {
            // The thread's other tasks may take long.
            parts.send_held();
            yield_now().await;
            continue;
        }
        // Tokio reported the socket readable, and it is empty now. Clear the readiness, so that
        // tokio reports new data.
        if let Some(mut seen) = ready.take() {
            seen.clear_ready();
        }
        if parts.next_deadline() - parts.scheduler().now() < TIMER_GRAIN {
            // Tokio would sleep too long: paced sessions would stay below their rate.
            yield_now().await;
            continue;
        }
        endpoint.owner.watch.look_now(parts);
        ready = watch.sleep(parts).await?;
    }
    Ok(())
}

/// A socket that was reported readable. Clear it when the socket is found empty.
type Ready<'w> = AsyncFdReadyGuard<'w, OwnedFd>;

/// The descriptors on which a sleeping endpoint waits.
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

    /// Waits until there is work. Returns tokio's readiness of the socket, if the socket was
    /// reported readable: the caller clears it when it finds the socket empty.
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
        // Tokio reports an error of the socket only if it is asked for errors. Such an error tells
        // that a packet was not delivered.
        let mut socket = pin!(self.socket.ready(Interest::READABLE | Interest::ERROR));
        poll_fn(|cx| {
            if let Poll::Ready(event) = self.event.poll_read_ready(cx) {
                asleep.rung = true;
                event?.clear_ready();
                return Poll::Ready(Ok(None));
            }
            if let Poll::Ready(socket) = socket.as_mut().poll(cx) {
                return Poll::Ready(socket.map(Some));
            }
            timer.as_mut().poll(cx).map(|()| Ok(None))
        })
        .await
    }
}

#[expect(
    deprecated,
    reason = "the replacement is unsafe and missing in older versions; an `OwnedFd` fulfils its contract"
)]
fn watched(fd: BorrowedFd<'_>) -> io::Result<AsyncFd<OwnedFd>> {
    AsyncFd::with_interest(fd.try_clone_to_owned()?, Interest::READABLE | Interest::ERROR)
}

/// Marks the endpoint as sleeping until this value is dropped.
struct ReactorSleep<'s> {
    parts: &'s EndpointParts<UdpTransport>,
    /// Whether the eventfd that wakers write was readable.
    rung: bool,
}

impl<'s> ReactorSleep<'s> {
    /// Begins the sleep. `None` if there is work.
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

const BUSY: &str = "the endpoint is busy running this handler or callback";

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;
    use std::time::Instant;

    use ::tokio::task::{LocalSet, spawn_local};

    use super::*;
    use crate::wire::control::Control;
    use crate::wire::{ConnectionId, ReplyInfo};

    #[test]
    fn a_report_of_an_undelivered_packet_wakes_a_driven_endpoint_that_sleeps() {
        let runtime = ::tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let stray_reports = |endpoint: &Endpoint| endpoint.stats().unwrap().protocol.stray_reports;
        runtime.block_on(LocalSet::new().run_until(async {
            let endpoint = Endpoint::udp().unwrap();
            let socket = {
                let rpc = endpoint.parts().rpc().unwrap();
                UdpSocket::from(rpc.transport().watched()[0].try_clone_to_owned().unwrap())
            };
            let driven = endpoint.clone();
            let driver = spawn_local(async move { drive(&driven).await });
            // The endpoint has no timer, so it sleeps.
            sleep(Duration::from_millis(50)).await;
            let nobody = UdpSocket::bind("[::1]:0").unwrap().local_addr().unwrap();
            let sender = thread::spawn(move || {
                let to = ConnectionId::new(0, true, 1, 7);
                let ping = Control::Ping { sender: to }.emit(to, 1, ReplyInfo::default());
                socket.send_to(ping.as_bytes(), nobody).unwrap();
            });
            let begin = Instant::now();
            while stray_reports(&endpoint) == 0 {
                assert!(begin.elapsed() < Duration::from_secs(5), "the endpoint sleeps on");
                sleep(Duration::from_millis(1)).await;
            }
            sender.join().unwrap();
            driver.abort();
        }));
    }
}
