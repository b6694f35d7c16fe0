//! How an endpoint that serves is drained: it finishes what runs, and takes nothing new.

use std::future::{Future, poll_fn};
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::open::Endpoint;
use super::parts::EndpointParts;
use crate::executor::sleep::Sleep;
use crate::time::Instant;
use crate::transport::Transport;

/// After the deadline, the endpoint waits this long for its clients to fetch the statuses that tell
/// them of the end. A client needs a round trip for that.
const LAST_WAIT: Duration = Duration::from_millis(100);

impl<T: Transport> Endpoint<T> {
    /// Stops to serve: finishes the calls and streams that run, and refuses new ones. Begins with
    /// the first poll, and completes when every client has all that it waits for, or soon after
    /// `within`. The output is the number of calls and streams that had not ended by then.
    ///
    /// * New sessions, calls and streams are refused. Their handlers do not run, and callers learn
    ///   that: [`CallError::NotExecuted`](crate::protocol::CallError::NotExecuted) with
    ///   [`Cause::PeerDraining`](crate::protocol::Cause::PeerDraining). Clients are told
    ///   immediately. Channels use other servers from then on, and make refused calls again there.
    /// * Streams go on, and so do calls whose handlers run on workers, run as tasks, or answer
    ///   later. For this, the loop must run.
    /// * After `within`, tasks are dropped, and their callers get
    ///   [`Code::Unavailable`](crate::status::Code::Unavailable): the handler may have done a part
    ///   of its work. A worker's handler cannot be stopped, but its caller is told, too. Calls that
    ///   still wait for a worker are refused like new ones.
    ///
    /// A client whose process is gone, or that does not run its loop, delays the end by half a
    /// second. A handler in tokio whose call has ended early delays the end until its next `await`,
    /// at most until `within`.
    ///
    /// The endpoint's own calls to other servers are not affected. After the drain, end the
    /// endpoint with [`Endpoint::shutdown`]; it does not serve again.
    #[must_use = "futures do nothing unless polled"]
    pub fn drain(&self, within: Duration) -> impl Future<Output = usize> + use<T> {
        drain(Rc::clone(self.parts()), self.now() + within)
    }
}

async fn drain<T: Transport>(parts: Rc<EndpointParts<T>>, deadline: Instant) -> usize {
    let mut has_begun = false;
    let served = poll_fn(|cx| {
        has_begun = has_begun || parts.begin_drain();
        parts.poll_served(cx)
    });
    if Sleep::new(parts.scheduler(), deadline).limit(served).await.is_ok() {
        return 0;
    }
    let count = parts.cut_off();
    let end = parts.scheduler().now() + LAST_WAIT;
    let served = poll_fn(|cx| parts.poll_served(cx));
    // Clients that have not closed their sessions by then learn of the end by the shutdown.
    Sleep::new(parts.scheduler(), end).limit(served).await.unwrap_or(());
    count
}

impl<T: Transport> EndpointParts<T> {
    /// Returns false, and does nothing, within a handler or callback.
    fn begin_drain(&self) -> bool {
        let Some(mut rpc) = self.rpc() else { return false };
        let now = self.scheduler().now();
        rpc.drain_at(now);
        self.requests().drain(&mut rpc.context_at(now));
        rpc.ring_doorbell();
        true
    }

    /// Waits until no client has a session, and no handler runs.
    fn poll_served(&self, cx: &Context<'_>) -> Poll<()> {
        let Some(rpc) = self.rpc() else {
            // A handler or callback polls. The task continues after the turn.
            cx.waker().wake_by_ref();
            return Poll::Pending;
        };
        if self.is_closed() {
            return Poll::Ready(());
        }
        if rpc.sessions().1 == 0 {
            return self.requests().poll_handlers_gone(cx);
        }
        self.requests().watch_clients(cx);
        Poll::Pending
    }

    /// Answers all requests that are not answered yet. Returns their number.
    fn cut_off(&self) -> usize {
        let Some(mut rpc) = self.rpc() else { return 0 };
        let count = self.requests().cut_off(&mut rpc.context_at(self.scheduler().now()));
        rpc.ring_doorbell();
        count
    }
}
