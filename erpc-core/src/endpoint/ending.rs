//! How an endpoint ends.
//!
//! ```text
//!   Running --> Ending --> Ended --> Orphaned
//!      |        while its   ^
//!      +--- turn runs ------+    (at once, if none does)
//! ```
//!
//! Within a turn the protocol may have more to tell, and hands tokens back that are keys of the slabs. So
//! the slabs are emptied when the turn is over, and the calls that the protocol has are ended by it.

use crate::calling::link::Phase;
use crate::endpoint::state::{Shared, Submission};
use crate::protocol::{CallError, Cause};
use crate::serving::dispatch::Dispatch;
use crate::time::Instant;
use crate::transport::Transport;

/// Where an endpoint is in its life.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Life {
    Running,
    /// Takes no more calls, and ends with the turn that is under way.
    Ending,
    /// The protocol has let go of everything. Somebody may still run the loop.
    Ended,
    /// No loop will run again, so nothing is kept for one.
    Orphaned,
}

impl<T: Transport> Shared<T> {
    /// Whether the endpoint has ended, or does so with this turn.
    #[inline]
    pub(crate) fn is_closed(&self) -> bool {
        self.life.get() != Life::Running
    }

    /// Whether the protocol will be told nothing more.
    #[inline]
    pub(crate) fn has_ended(&self) -> bool {
        matches!(self.life.get(), Life::Ended | Life::Orphaned)
    }

    /// Whether no loop will run again.
    pub(crate) fn is_orphaned(&self) -> bool {
        self.life.get() == Life::Orphaned
    }

    /// The last endpoint handle is gone, or somebody ends the endpoint: ends tasks, calls and sessions, at
    /// the end of the turn if one is under way.
    pub(crate) fn shut_down(&self) {
        if self.is_closed() {
            return;
        }
        self.life.set(Life::Ending);
        self.mailbox.close();
        self.finish_ending();
        self.stir();
    }

    /// Goes on with [`Shared::shut_down`] if somebody has asked for it and no turn is under way. Returns how
    /// much that was to do.
    #[inline]
    pub(crate) fn finish_ending(&self) -> usize {
        if self.life.get() == Life::Ending { self.end() } else { 0 }
    }

    #[cold]
    fn end(&self) -> usize {
        // Held until the protocol has let go of everything, so that what is dropped and told on the way does
        // not begin to end it once more.
        let Some(mut rpc) = self.rpc() else { return 0 };
        self.executor.clear();
        let now = self.now();
        self.drain(&mut rpc.context_at(now));
        rpc.shutdown();
        // Brings the outcomes of the calls. What handlers ask for on the way comes too late.
        rpc.run_once_at(now, &mut Dispatch { shared: self });
        self.life.set(Life::Ended);
        drop(rpc);
        let late = self.submissions.take();
        late.into_iter().for_each(|submission| self.too_late(submission));
        self.end_streams();
        self.run_failures();
        // What callbacks have asked for meanwhile waits among the failures: it was never sent.
        let unsent: Vec<usize> = self.failures.borrow().iter().map(|(key, _)| *key).collect();
        let pending = self.calls().pending();
        for key in pending.into_iter().filter(|key| !unsent.contains(key)) {
            self.abandon(key);
        }
        self.run_failures();
        for link in self.links.take().into_values() {
            link.enter(Phase::Closed(Cause::Shutdown), &self.executor);
        }
        // Whoever sleeps elsewhere on this thread does not sleep for ever.
        self.run_alarms(Instant::NEVER);
        // A callback that answers every failure with another call has been told twice; it ends here, or
        // it would keep the endpoint alive through the session that it holds.
        self.forget_unheard();
        1
    }

    /// The last endpoint handle is gone, after [`Shared::shut_down`]: tells what waits for a turn, as none
    /// comes, and keeps nothing from here on. Sessions keep this, so what it kept could keep itself.
    pub(crate) fn orphan(&self) {
        self.executor.clear();
        self.run_failures();
        self.life.set(Life::Orphaned);
        self.forget_unheard();
    }

    /// Drops the callbacks that are left.
    fn forget_unheard(&self) {
        self.failures.take();
        let unheard = self.calls().take_callbacks();
        drop(unheard);
    }

    /// Drops the callback of a call that was given when there was nobody left to run it.
    #[cold]
    pub(crate) fn forget(&self, key: usize) {
        let unheard = self.calls().remove(key);
        drop(unheard);
    }

    /// Somebody asks for something that the protocol is not there for any more.
    #[cold]
    pub(crate) fn too_late(&self, submission: Submission<T::Route>) {
        match submission {
            Submission::Connect(link) => {
                link.enter(Phase::Closed(Cause::Shutdown), &self.executor);
            }
            Submission::Call(key) => {
                let request = self.take_unsent(key);
                if request.is_some() {
                    self.failed(key, CallError::NotExecuted(Cause::Shutdown), request);
                }
            }
            Submission::Cancel(_) | Submission::Disconnect(_) => {}
        }
    }
}
