//! A running server.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc::channel;

use super::error::ServeError;
use super::thread::{LoopThread, StopSignal};
use crate::endpoint::handle::Handle;
use crate::event_loop::EndpointStats;
use crate::serving::worker::{WorkerPool, WorkerQueue};

/// A running server. Dropping it shuts it down.
#[must_use = "dropping the handle shuts the server down"]
pub struct ServerHandle {
    address: SocketAddr,
    loops: Vec<LoopThread>,
    workers: Option<WorkerPool>,
    stop: Arc<StopSignal>,
}

impl ServerHandle {
    pub(super) fn new(
        address: SocketAddr,
        workers: Option<WorkerPool>,
        stop: Arc<StopSignal>,
    ) -> Self {
        Self { address, loops: Vec::new(), workers, stop }
    }

    pub(super) fn worker_queue(&self) -> Option<WorkerQueue> {
        self.workers.as_ref().map(WorkerPool::queue)
    }

    pub(super) fn add(&mut self, event_loop: LoopThread) {
        self.loops.push(event_loop);
    }

    /// The address that clients connect to.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The sum of all endpoints' counters. Asks every event loop and waits for the answers, for as
    /// long as the longest handler that is running. Endpoints that have ended, or whose job queue
    /// is full, are left out.
    #[must_use]
    pub fn stats(&self) -> EndpointStats {
        let mut sum = EndpointStats::default();
        self.endpoint_stats().into_iter().for_each(|stats| sum += stats);
        sum
    }

    /// The counters of each endpoint; see [`ServerHandle::stats`].
    #[must_use]
    pub fn endpoint_stats(&self) -> Vec<EndpointStats> {
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
    pub fn handles(&self) -> impl Iterator<Item = Handle> {
        self.loops.iter().map(|event_loop| event_loop.handle().clone())
    }

    /// Ends the server and waits for its threads. Requests that wait for a worker are answered
    /// first; later requests are refused.
    pub fn shutdown(mut self) {
        self.end(true).unwrap_or(());
    }

    /// Waits until the server ends. It ends by itself only if an event loop panics.
    ///
    /// # Errors
    /// [`ServeError::Panicked`] if an event loop panicked.
    pub fn wait(mut self) -> Result<(), ServeError> {
        self.end(false)
    }

    fn end(&mut self, now: bool) -> Result<(), ServeError> {
        if now {
            // Workers first: their answers are sent by the event loops.
            drop(self.workers.take());
            self.stop.set();
        }
        let mut result = Ok(());
        for event_loop in self.loops.drain(..) {
            result = result.and(event_loop.join());
        }
        result
    }
}

impl Drop for ServerHandle {
    fn drop(&mut self) {
        // Only `wait` reports a panic of a loop.
        self.end(true).unwrap_or(());
    }
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerHandle")
            .field("address", &self.address)
            .field("threads", &self.loops.len())
            .finish()
    }
}
