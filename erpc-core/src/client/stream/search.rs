//! The search for a server for a stream that has none.

use std::rc::{Rc, Weak};
use std::time::Duration;

use super::caller::{ClientStream, LeftServer, StreamHome};
use crate::calling::plan::NoSession;
use crate::calling::retry::UNEXECUTED;
use crate::client::channel::balancer::Balancer;
use crate::executor::sleep::Sleep;
use crate::protocol::{CallError, Cause};
use crate::time::Instant;
use crate::transport::Transport;

/// Interval at which the search for a stream's server tries again, and checks whether the stream
/// was dropped.
const POLL_PERIOD: Duration = Duration::from_millis(50);

/// The channel of a stream, which may have other servers.
pub(super) struct SearchHome<T: Transport> {
    pub(super) balancer: Weak<Balancer<T>>,
    /// Whether the stream waits even while no server can be reached.
    pub(super) waits: bool,
    /// Whether the stream stays on the server where it began.
    pub(super) is_final: bool,
}

impl<T: Transport> StreamHome<T> for SearchHome<T> {
    fn can_move(&self) -> bool {
        !self.is_final && self.balancer.strong_count() > 0
    }

    fn grants_move(&self, error: &CallError) -> bool {
        self.balancer.upgrade().is_some_and(|balancer| {
            let now = balancer.endpoint().scheduler().now();
            balancer.budgets().unexecuted.grants(&UNEXECUTED, error, now)
        })
    }

    fn search(&self, stream: &Rc<ClientStream<T>>, left: Option<LeftServer<T::Route>>) -> bool {
        let Some(balancer) = self.balancer.upgrade() else { return false };
        let endpoint = Rc::clone(balancer.endpoint());
        if endpoint.is_closed() {
            // A search task would never run.
            return false;
        }
        let deadline = stream.deadline();
        let stream = Rc::downgrade(stream);
        let search = ServerSearch { stream, balancer, waits: self.waits, left };
        endpoint.scheduler().spawn_internal(search.run(deadline));
        true
    }
}

/// Looks for a server for a stream that has none. Dropping the search before it is done ends the
/// stream. The search keeps the channel alive, but at most one [`POLL_PERIOD`] longer than the
/// stream's last handle exists.
struct ServerSearch<T: Transport> {
    stream: Weak<ClientStream<T>>,
    balancer: Rc<Balancer<T>>,
    waits: bool,
    /// The server that the stream has left. The search begins after a pause, as calls make another
    /// attempt after a pause, and avoids this server.
    left: Option<LeftServer<T::Route>>,
}

impl<T: Transport> ServerSearch<T> {
    async fn run(self, deadline: Instant) {
        let endpoint = Rc::clone(self.balancer.endpoint());
        let found = match deadline {
            Instant::NEVER => self.find().await,
            _ => Sleep::new(endpoint.scheduler(), deadline)
                .limit(self.find())
                .await
                .unwrap_or(Err(CallError::NotExecuted(Cause::DeadlineExceeded))),
        };
        let Some(stream) = self.stream.upgrade() else { return };
        match found {
            Ok(peer) => stream.bind(self.balancer.streams().take(&endpoint, peer)),
            Err(error) => stream.end(error),
        }
    }

    async fn find(&self) -> Result<T::Route, CallError> {
        let scheduler = self.balancer.endpoint().scheduler();
        if let Some(LeftServer { moves, .. }) = self.left {
            let pause = UNEXECUTED.pause(moves, scheduler.random());
            Sleep::new(scheduler, scheduler.now() + pause).await;
        }
        while self.stream.strong_count() > 0 {
            let picked = match &self.left {
                Some(LeftServer { peer, .. }) => self.balancer.pick_other(peer),
                None => self.balancer.pick(None),
            };
            let no_session = match picked {
                Ok(link) => return Ok(link.peer),
                Err(no_session) => no_session,
            };
            let pause = Sleep::new(scheduler, scheduler.now() + POLL_PERIOD);
            match no_session {
                NoSession::Down(why) if !self.waits || scheduler.is_closed() => {
                    return Err(why.into());
                }
                NoSession::Down(_) => pause.await,
                // The result is not needed: the loop picks again. The pause bounds the wait,
                // because dropping the stream does not wake this task.
                NoSession::Pending => drop(pause.limit(self.balancer.ready()).await),
            }
        }
        Err(CallError::NotExecuted(Cause::Cancelled))
    }
}

impl<T: Transport> Drop for ServerSearch<T> {
    fn drop(&mut self) {
        if let Some(stream) = self.stream.upgrade() {
            stream.end_unbound(CallError::NotExecuted(Cause::Shutdown));
        }
    }
}
