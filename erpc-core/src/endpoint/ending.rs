//! How an endpoint ends.
//!
//! ```text
//!   Running --> Ending --> Ended --> Orphaned
//!      |        while its   ^
//!      +--- turn runs ------+    (at once, if none does)
//! ```
//!
//! Within a turn the protocol may have more to report, and hands tokens back that are keys of the tables. So
//! the tables are emptied when the turn is over, and the calls that the protocol has are ended by it.

use super::parts::EndpointParts;
use super::turn::Dispatch;
use crate::executor::scheduler::Lifecycle;
use crate::time::Instant;
use crate::transport::Transport;

impl<T: Transport> EndpointParts<T> {
    /// The last endpoint handle is gone, or the endpoint was shut down: ends tasks, calls and sessions, at
    /// the end of the turn if one is under way.
    pub(super) fn shut_down(&self) {
        if self.is_closed() {
            return;
        }
        self.scheduler().enter(Lifecycle::Ending);
        self.mailbox().close();
        self.finish_ending();
        self.scheduler().wake_loop();
    }

    /// Goes on with [`EndpointParts::shut_down`] if that was called and no turn is under way. Returns how
    /// much that was to do.
    #[inline]
    pub(super) fn finish_ending(&self) -> usize {
        if self.scheduler().lifecycle() == Lifecycle::Ending { self.end() } else { 0 }
    }

    #[cold]
    fn end(&self) -> usize {
        // Held until the protocol has dropped everything, so that what is dropped and called on the way does
        // not begin to end it once more.
        let Some(mut rpc) = self.rpc() else { return 0 };
        self.scheduler().executor().clear();
        let now = self.scheduler().now();
        self.calls().drain(&mut rpc.context_at(now));
        rpc.shutdown_at(now);
        // Brings the outcomes of the calls. Calls that handlers make on the way come too late.
        rpc.run_once_at(now, &mut Dispatch(self));
        self.scheduler().enter(Lifecycle::Ended);
        drop(rpc);
        self.calls().fail_queued();
        self.calls().streams().end_all();
        self.flushes().shut_down();
        self.requests().end_streams();
        self.calls().end_all();
        // A future that is polled by another executor of this thread must not sleep for ever.
        self.run_alarms(Instant::NEVER);
        // A callback that answers every failure with another call has been called twice; it ends here, or
        // it would keep the endpoint alive through the session that it holds.
        self.calls().drop_callbacks();
        1
    }

    /// The last endpoint handle is gone, after [`EndpointParts::shut_down`]: calls the callbacks that wait
    /// for a turn, as none comes, and keeps nothing from here on. Sessions keep this, so what it kept could
    /// keep itself.
    pub(super) fn orphan(&self) {
        self.scheduler().executor().clear();
        self.calls().run_failures();
        self.scheduler().enter(Lifecycle::Orphaned);
        self.calls().drop_callbacks();
    }
}
