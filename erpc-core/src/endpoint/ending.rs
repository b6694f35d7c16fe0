//! How an endpoint ends.
//!
//! ```text
//!   Running --> Ending --> Ended --> Orphaned
//!      |        while its   ^
//!      +--- turn runs ------+    (immediately, if no turn runs)
//! ```
//!
//! While a turn runs, the protocol may still report the outcomes of calls. It names each call by
//! its token, a key of the call tables. So the tables are emptied only after the turn. The protocol
//! itself ends the calls that it holds.

use super::parts::EndpointParts;
use super::turn::Dispatch;
use crate::executor::scheduler::Lifecycle;
use crate::time::Instant;
use crate::transport::Transport;

impl<T: Transport> EndpointParts<T> {
    /// Ends tasks, calls and sessions, because the last endpoint handle was dropped or the endpoint
    /// was shut down. If a turn is running, this happens at the end of that turn.
    pub(super) fn shut_down(&self) {
        if self.is_closed() {
            return;
        }
        self.scheduler().enter(Lifecycle::Ending);
        self.mailbox().close();
        self.finish_ending();
        self.scheduler().wake_loop();
    }

    /// Continues [`EndpointParts::shut_down`] if it was called and no turn is running. Returns the
    /// amount of work.
    #[inline]
    pub(super) fn finish_ending(&self) -> usize {
        if self.scheduler().lifecycle() == Lifecycle::Ending { self.end() } else { 0 }
    }

    #[cold]
    fn end(&self) -> usize {
        // The borrow lasts until the protocol has dropped everything. If code in these drops and
        // callbacks calls `end` again, that call finds the `rpc` borrowed and returns.
        let Some(mut rpc) = self.rpc() else { return 0 };
        self.scheduler().executor().clear();
        let now = self.scheduler().now();
        self.calls().drain(&mut rpc.context_at(now));
        rpc.shutdown_at(now);
        // Delivers the outcomes of the calls. Calls that callbacks make here are too late;
        // `fail_queued` fails them.
        rpc.run_once_at(now, &mut Dispatch(self));
        self.scheduler().enter(Lifecycle::Ended);
        drop(rpc);
        self.calls().fail_queued();
        self.calls().streams().end_all();
        self.flushes().shut_down();
        self.requests().end_streams();
        self.calls().end_all();
        // All timers fire now: a future that another executor of this thread polls must not sleep
        // forever.
        self.run_alarms(Instant::NEVER);
        // When a call fails, its callback may make another call, which fails as well. `end_all` has
        // run the callbacks of such calls twice. The callbacks that remain are dropped without
        // being run. Otherwise the sessions that they hold would keep the endpoint alive.
        self.calls().drop_callbacks();
        self.wake_all_tasks();
        1
    }

    /// Called after [`EndpointParts::shut_down`], when the last endpoint handle was dropped. No
    /// further turn will run, so this function runs the callbacks of calls that have failed, and
    /// drops all others. Callbacks can hold sessions, and sessions hold references to these parts.
    /// So a callback that stayed here would keep itself in memory.
    pub(super) fn orphan(&self) {
        self.scheduler().executor().clear();
        self.calls().run_failures();
        self.scheduler().enter(Lifecycle::Orphaned);
        self.calls().drop_callbacks();
    }
}
