//! A running server.

use std::fmt;
use std::future::pending;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::thread::{Thread, current, park_timeout};
use std::time::Duration;

use super::error::ServeError;
use super::listen::Listen;
use super::thread::{LoopThread, StopSignal};
use super::watch::LOOK_EVERY;
use crate::clock;
use crate::endpoint::handle::Handle;
use crate::event_loop::EndpointStats;
use crate::health::HealthReporter;
use crate::serving::worker::{WorkerPool, WorkerQueue};
use crate::time::Instant;
use crate::transport::Transport;
use crate::transport::udp::{UdpRoute, UdpTransport};

/// A running server. Dropping it shuts it down.
#[must_use = "dropping the handle shuts the server down"]
pub struct ServerHandle<T: Listen = UdpTransport> {
    route: T::Route,
    loops: Vec<LoopThread<T>>,
    workers: Option<WorkerPool>,
    stop: Arc<StopSignal<T>>,
    health: Option<HealthReporter>,
}

impl<T: Listen> ServerHandle<T> {
    pub(super) fn new(
        route: T::Route,
        workers: Option<WorkerPool>,
        stop: Arc<StopSignal<T>>,
        health: Option<HealthReporter>,
    ) -> Self {
        Self { route, loops: Vec::new(), workers, stop, health }
    }

    pub(super) fn worker_queue(&self) -> Option<WorkerQueue> {
        self.workers.as_ref().map(WorkerPool::queue)
    }

    pub(super) fn add(&mut self, event_loop: LoopThread<T>) {
        self.loops.push(event_loop);
    }

    /// The address that clients connect to, as the transport writes it.
    #[must_use]
    pub fn local_route(&self) -> T::Route {
        self.route
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr
    where
        T: Transport<Route = UdpRoute>,
    {
        self.route.socket_addr()
    }

    /// The sum of all endpoints' counters. Asks every event loop and waits for the answers, for as
    /// long as the longest handler that is running. Endpoints that have ended, or whose job queue
    /// is full, are left out.
    ///
    /// # Panics
    /// Within an event loop of this server, whose answer it would wait for. There,
    /// [`Endpoint::stats`](crate::endpoint::Endpoint::stats) has the counters of one endpoint.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let mut sum = EndpointStats::default();
        self.endpoint_stats().into_iter().for_each(|stats| sum += stats);
        sum
    }

    /// The counters of each endpoint; see [`ServerHandle::stats`].
    ///
    /// # Panics
    /// As [`ServerHandle::stats`].
    #[must_use]
    pub fn endpoint_stats(&self) -> Vec<EndpointStats> {
        self.assert_elsewhere("stats");
        let (send, answers) = channel();
        for event_loop in &self.loops {
            let send = send.clone();
            // An endpoint that has ended, or whose job queue is full, drops its sender and is left
            // out.
            let _asked = event_loop.handle().submit(move |endpoint| {
                if let Some(stats) = endpoint.stats() {
                    // The receiver is alive, so the send succeeds.
                    send.send(stats).unwrap_or(());
                }
            });
        }
        drop(send);
        answers.iter().collect()
    }

    /// Handles of the endpoints, one per event loop.
    pub fn handles(&self) -> impl Iterator<Item = Handle<T>> {
        self.loops.iter().map(|event_loop| event_loop.handle().clone())
    }

    /// Ends the server gracefully: finishes the calls and streams that run, refuses new ones, and
    /// waits for its threads. Returns the number of calls and streams that had not ended within the
    /// time `within`; their callers get an error.
    ///
    /// Clients learn immediately that the server shuts down. A call that the server refuses fails
    /// as [`NotExecuted`](crate::protocol::CallError::NotExecuted) with
    /// [`Cause::PeerDraining`](crate::protocol::Cause::PeerDraining): its handler has not run.
    /// Channels call other servers from then on, and repeat refused calls there. So a restart of
    /// one server after the other fails no call that takes less than `within`. See
    /// [`Endpoint::drain`] for what happens after that time.
    ///
    /// Takes at most a tenth of a second longer than `within`, plus the time of a dispatch handler
    /// that blocks its loop. Then the port is free. A worker's handler that still runs keeps its
    /// thread until it returns.
    ///
    /// # Panics
    /// Within an event loop of this server, which must run for the drain. The panic drops the
    /// handle, which ends the server at once. A handler that is to end its server tells another
    /// thread, for example by the future of [`ServerHandle::wait_with_shutdown`].
    ///
    /// [`Endpoint::drain`]: crate::endpoint::Endpoint::drain
    pub fn drain(mut self, within: Duration) -> usize {
        self.assert_elsewhere("drain");
        self.drain_loops(within).0
    }

    /// Waits until `shutdown` completes, and [drains](ServerHandle::drain) the server then. This
    /// thread polls `shutdown`, without a runtime. Meanwhile it looks after the event loops once a
    /// second, and reports one that stands still to the log.
    ///
    /// # Errors
    /// [`ServeError::Panicked`] if an event loop panicked, which ends the server.
    ///
    /// # Panics
    /// As [`ServerHandle::drain`].
    pub fn wait_with_shutdown(
        mut self,
        shutdown: impl Future<Output = ()>,
        drain: Duration,
    ) -> Result<(), ServeError> {
        self.assert_elsewhere("wait_with_shutdown");
        self.watch_until(shutdown);
        self.drain_loops(drain).1
    }

    /// Waits until `shutdown` completes or the loops end.
    fn watch_until(&mut self, shutdown: impl Future<Output = ()>) {
        let mut shutdown = pin!(shutdown);
        let wakes = Arc::new(ThreadWaker::of_this_thread());
        let waker = Waker::from(Arc::clone(&wakes));
        self.stop.watch(waker.clone());
        let mut cx = Context::from_waker(&waker);
        let mut look_at = clock::now() + LOOK_EVERY;
        // `stop` is set if a loop has panicked.
        while !self.stop.is_set() && shutdown.as_mut().poll(&mut cx).is_pending() {
            while !wakes.wait_until(look_at) {
                self.loops.iter_mut().for_each(|event_loop| event_loop.look(self.route));
                look_at = clock::now() + LOOK_EVERY;
            }
        }
    }

    /// Checks that this thread is not one of the server's event loops. `function` would block it,
    /// and waits for it.
    fn assert_elsewhere(&self, function: &str) {
        assert!(
            !self.loops.iter().any(LoopThread::is_here),
            "`ServerHandle::{function}` waits for the event loop that runs this code; call it on a \
            thread that is not an event loop of the server"
        );
    }

    fn drain_loops(&mut self, within: Duration) -> (usize, Result<(), ServeError>) {
        let end = clock::now() + within;
        if let Some(health) = &self.health {
            health.shut_down();
        }
        let (send, counts) = channel();
        for event_loop in &self.loops {
            let send = send.clone();
            // An endpoint that has ended drops its sender.
            event_loop.handle().submit_always(move |endpoint| {
                let drain = endpoint.drain(end - endpoint.now());
                let told = async move {
                    // The receiver is alive, so the send succeeds.
                    send.send(drain.await).unwrap_or(());
                };
                drop(endpoint.spawn(told));
            });
        }
        drop(send);
        let count = counts.iter().sum();
        let workers = self.workers.take();
        let result = self.end();
        if let Some(workers) = workers {
            workers.end_within(end - clock::now());
        }
        (count, result)
    }

    /// Ends the server now and waits for its threads. Requests that wait for a worker are answered
    /// first; later requests are refused. Calls of async handlers, and streams, are cut off. A
    /// client that has to fetch its response, because it has several packets or the call was slow,
    /// may come too late: its call ends with
    /// [`CallError::ResponseLost`](crate::protocol::CallError::ResponseLost).
    /// [`ServerHandle::drain`] waits for all of them.
    pub fn shutdown(mut self) {
        self.end().unwrap_or(());
    }

    /// Waits until the server ends. It ends by itself only if an event loop panics. Looks after the
    /// event loops like [`ServerHandle::wait_with_shutdown`].
    ///
    /// # Errors
    /// [`ServeError::Panicked`] if an event loop panicked.
    ///
    /// # Panics
    /// As [`ServerHandle::drain`].
    pub fn wait(mut self) -> Result<(), ServeError> {
        self.assert_elsewhere("wait");
        self.watch_until(pending());
        self.end()
    }

    fn end(&mut self) -> Result<(), ServeError> {
        // Workers first: their answers are sent by the event loops.
        drop(self.workers.take());
        self.stop.set();
        let mut result = Ok(());
        for event_loop in self.loops.drain(..) {
            result = result.and(event_loop.join());
        }
        result
    }
}

/// Wakes a thread that waits. A wake is kept until the thread waits, although a future that the
/// thread polls may park the thread as well and take the token of the wake.
struct ThreadWaker {
    thread: Thread,
    is_woken: AtomicBool,
}

#[expect(clippy::disallowed_methods, reason = "this thread waits for others")]
impl ThreadWaker {
    fn of_this_thread() -> Self {
        Self { thread: current(), is_woken: AtomicBool::new(false) }
    }

    /// Waits for a wake since the last call, until `end`. Returns whether there was one. Only the
    /// thread itself calls this.
    fn wait_until(&self, end: Instant) -> bool {
        loop {
            if self.is_woken.swap(false, Ordering::Acquire) {
                return true;
            }
            let now = clock::now();
            if now >= end {
                return false;
            }
            park_timeout(end - now);
        }
    }
}

impl Wake for ThreadWaker {
    fn wake(self: Arc<Self>) {
        self.is_woken.store(true, Ordering::Release);
        self.thread.unpark();
    }
}

impl<T: Listen> Drop for ServerHandle<T> {
    fn drop(&mut self) {
        // Only `wait` reports a panic of a loop.
        self.end().unwrap_or(());
    }
}

impl<T: Listen> fmt::Debug for ServerHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("address", &self.route)
            .field("threads", &self.loops.len())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use std::thread::park;

    use super::*;

    #[test]
    fn a_thread_keeps_a_wake_although_it_parks_for_another_reason() {
        let waker = Arc::new(ThreadWaker::of_this_thread());
        Arc::clone(&waker).wake();
        // Takes the token of the wake, as a future that blocks on a lock of its own may.
        park();
        assert!(waker.wait_until(clock::now() + Duration::from_secs(60)), "the wake is lost");
        assert!(!waker.wait_until(clock::now()), "there was one wake");
    }
}
