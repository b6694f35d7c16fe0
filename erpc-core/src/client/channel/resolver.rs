//! Resolvers: the addresses of a channel's servers.

use std::future::{Future, poll_fn, ready};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::client::target::Target;
use crate::sync::thread::Builder;
use crate::transport::Route;

/// Returns the servers of a channel. A `Vec` of routes is a resolver whose answer never changes.
///
/// ```
/// use std::io;
/// use erpc_core::client::Resolver;
/// use erpc_core::transport::udp::UdpRoute;
///
/// struct Registry;
///
/// impl Resolver<UdpRoute> for Registry {
///     async fn resolve(&mut self) -> io::Result<Vec<UdpRoute>> {
///         // For example, ask a registry service over another channel, or read a small file.
///         Ok(vec![UdpRoute::from(std::net::SocketAddr::from(([10, 0, 0, 7], 31_850)))])
///     }
/// }
/// ```
pub trait Resolver<R>: 'static {
    /// The current servers, in any order. Runs as a task of the endpoint and must not block it.
    ///
    /// # Errors
    /// If the servers cannot be determined. The channel then keeps the servers that it knows, as it
    /// does after an empty answer, and asks again.
    ///
    /// # Panics
    /// A panic counts as an error. The panic hook reports it.
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<R>>>;

    /// How long the last answer is valid. The channel asks again after this time, or earlier if a
    /// server cannot be reached or a session ends. `None`, the default, means that answers do not
    /// expire.
    fn good_for(&self) -> Option<Duration> {
        None
    }

    /// What is resolved, for the messages of errors: a name and a port. Default: empty.
    fn name(&self) -> String {
        String::new()
    }
}

impl<R: Route> Resolver<R> for Vec<R> {
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<R>>> {
        ready(Ok(self.clone()))
    }
}

/// Resolves a [`Target`] on a separate thread, because the system's resolver may take seconds. For
/// UDP the target is a name and a port, and every address of the name is a server.
///
/// The thread exists only while a lookup runs. A channel runs at most one lookup at a time.
#[derive(Clone, Debug)]
pub struct Lookup<A> {
    target: Arc<A>,
    good_for: Option<Duration>,
}

impl<A> Lookup<A> {
    /// A resolver for `target`: `"kv.example:31850"`, `("kv.example", 31850)`.
    #[must_use]
    pub fn new(target: A) -> Self {
        Self { target: Arc::new(target), good_for: None }
    }

    /// Resolves again when an answer is this old, because the system does not report how long an
    /// answer is valid. Default: answers do not expire, and the name is resolved again only when a
    /// server cannot be reached or a session ends.
    #[must_use]
    pub const fn good_for(mut self, time: Duration) -> Self {
        self.good_for = Some(time);
        self
    }
}

impl<R: Route, A: Target<R> + Send + Sync + 'static> Resolver<R> for Lookup<A> {
    async fn resolve(&mut self) -> io::Result<Vec<R>> {
        let answer = Arc::new(LookupAnswer::default());
        let (target, asked) = (Arc::clone(&self.target), Arc::clone(&answer));
        let thread = Builder::new().name("erpc-lookup".into());
        // The thread is detached, because the system's lookup cannot be cancelled.
        let look_up = move || {
            let found = catch_unwind(AssertUnwindSafe(|| target.routes()));
            asked.give(found.unwrap_or_else(|_panic| Err(panicked())));
        };
        drop(thread.spawn(look_up)?);
        poll_fn(|cx| answer.poll(cx.waker())).await
    }

    fn good_for(&self) -> Option<Duration> {
        self.good_for
    }

    fn name(&self) -> String {
        self.target.name()
    }
}

/// The result of a lookup thread, and the task that waits for it.
struct LookupAnswer<R>(Mutex<LookupState<R>>);

struct LookupState<R> {
    found: Option<io::Result<Vec<R>>>,
    waiter: Option<Waker>,
}

impl<R> Default for LookupAnswer<R> {
    fn default() -> Self {
        Self(Mutex::new(LookupState { found: None, waiter: None }))
    }
}

impl<R> LookupAnswer<R> {
    fn give(&self, found: io::Result<Vec<R>>) {
        let waiter = {
            let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            answer.found = Some(found);
            answer.waiter.take()
        };
        if let Some(waiter) = waiter {
            waiter.wake();
        }
    }

    fn poll(&self, waker: &Waker) -> Poll<io::Result<Vec<R>>> {
        // Cloning or dropping a waker may run any code, so the answer must not be locked.
        let mut waiter = Some(waker.clone());
        let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = answer.found.take();
        if found.is_none() {
            std::mem::swap(&mut answer.waiter, &mut waiter);
        }
        drop(answer);
        drop(waiter);
        found.map_or(Poll::Pending, Poll::Ready)
    }
}

/// The failure of a query that panicked. The panic hook has reported the panic.
#[cold]
pub(super) fn panicked() -> io::Error {
    io::Error::other("the resolver panicked; the panic message is on standard error")
}

#[cfg(test)]
mod tests {
    use erpc_test_tools::limit::{secs, within};
    use erpc_test_tools::wakers::on_clone;

    use super::*;

    #[test]
    fn an_answer_may_come_while_its_waker_is_cloned() {
        within(secs(10), || {
            let answer = Arc::new(LookupAnswer::default());
            let thread = Arc::clone(&answer);
            let waker = on_clone(move || thread.give(Ok(vec![7])));
            assert!(matches!(answer.poll(&waker), Poll::Ready(Ok(found)) if found == [7]));
        });
    }
}
