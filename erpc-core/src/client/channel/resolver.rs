//! Where the servers are.

use std::future::{Future, poll_fn, ready};
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Poll, Waker};
use std::time::Duration;

use crate::client::target::Target;
use crate::sync::thread::Builder;
use crate::transport::Route;

/// Names the servers of a channel. A `Vec` of routes is a resolver that always gives the same answer.
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
///         // Ask a service over a channel of its own, read a file that is small, ..
///         Ok(vec![UdpRoute::from(std::net::SocketAddr::from(([10, 0, 0, 7], 31_850)))])
///     }
/// }
/// ```
pub trait Resolver<R>: 'static {
    /// The servers as of now; the order is of no importance. Runs as a task of the endpoint and must not
    /// block it.
    ///
    /// # Errors
    /// If they cannot be found out; the channel goes on with the servers that it knows.
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<R>>>;

    /// How long the last answer is good for. After that time the channel asks again, as it does earlier if a
    /// server cannot be reached. `None`, the default, for ever.
    fn good_for(&self) -> Option<Duration> {
        None
    }
}

impl<R: Route> Resolver<R> for Vec<R> {
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<R>>> {
        ready(Ok(self.clone()))
    }
}

/// Looks a [`Target`] up on a thread of its own, as that may take the system seconds: for UDP a name and a
/// port, of which every address is a server.
///
/// There is one such thread at a time, while a lookup runs.
#[derive(Clone, Debug)]
pub struct Lookup<A> {
    target: Arc<A>,
    good_for: Option<Duration>,
}

impl<A> Lookup<A> {
    /// Looks `target` up: `"kv.example:31850"`, `("kv.example", 31850)`.
    #[must_use]
    pub fn new(target: A) -> Self {
        Self { target: Arc::new(target), good_for: None }
    }

    /// Looks again when an answer is so old; the system does not tell how long names are good for. Default:
    /// only when a server cannot be reached.
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
        // The thread is not waited for: the system's lookup cannot be ended.
        drop(thread.spawn(move || asked.give(target.routes()))?);
        poll_fn(|cx| answer.poll(cx.waker())).await
    }

    fn good_for(&self) -> Option<Duration> {
        self.good_for
    }
}

/// What a thread has found, and the task that waits for it.
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
        let mut answer = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        match answer.found.take() {
            Some(found) => Poll::Ready(found),
            None => {
                answer.waiter = Some(waker.clone());
                Poll::Pending
            }
        }
    }
}
