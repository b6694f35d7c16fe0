//! The threads of a server, each with an event loop.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Waker;

use super::error::ServeError;
use super::listen::Listen;
use super::nexus::Seat;
use super::watch::LoopWatch;
use crate::clock;
use crate::endpoint::handle::Handle;
use crate::endpoint::pin::pin_thread;
use crate::event_loop::idle::IdlePolicy;
use crate::log;
use crate::protocol::EndpointConfig;
use crate::service::Routes;
use crate::serving::worker::{WorkerQueue, is_current};
use crate::sync::thread::{Builder, JoinHandle};

/// The arguments of an event loop's thread.
pub(super) struct LoopSetup<T: Listen> {
    pub(super) seat: Seat<T>,
    pub(super) routes: Arc<Routes>,
    pub(super) workers: Option<WorkerQueue>,
    pub(super) task_limit: Option<usize>,
    pub(super) idle: IdlePolicy,
    pub(super) config: EndpointConfig,
    pub(super) core: Option<usize>,
    pub(super) stop: Arc<StopSignal<T>>,
}

/// Ends all event loops of a server.
pub(super) struct StopSignal<T: Listen> {
    flag: AtomicBool,
    loops: Mutex<Vec<Handle<T>>>,
    /// Woken when the loops end.
    watcher: Mutex<Option<Waker>>,
}

impl<T: Listen> Default for StopSignal<T> {
    fn default() -> Self {
        Self { flag: AtomicBool::default(), loops: Mutex::default(), watcher: Mutex::default() }
    }
}

impl<T: Listen> StopSignal<T> {
    fn loops(&self) -> MutexGuard<'_, Vec<Handle<T>>> {
        self.loops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn is_set(&self) -> bool {
        self.flag.load(Ordering::Acquire)
    }

    /// Wakes `watcher` when the loops end. After this call, the caller must check
    /// [`StopSignal::is_set`], because the loops may have ended before.
    pub(super) fn watch(&self, watcher: Waker) {
        *self.watcher.lock().unwrap_or_else(PoisonError::into_inner) = Some(watcher);
    }

    pub(super) fn set(&self) {
        self.flag.store(true, Ordering::Release);
        for event_loop in self.loops().iter() {
            event_loop.wake();
        }
        let watcher = self.watcher.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(watcher) = watcher {
            watcher.wake();
        }
    }
}

/// An event loop's thread.
pub(super) struct LoopThread<T: Listen> {
    handle: Handle<T>,
    watch: LoopWatch,
    thread: JoinHandle<Result<(), ServeError>>,
}

impl<T: Listen> LoopThread<T> {
    /// Starts an event loop and waits until its endpoint is open.
    #[expect(clippy::disallowed_methods, reason = "a server consists of threads")]
    pub(super) fn start(index: usize, setup: LoopSetup<T>) -> Result<Self, ServeError> {
        let (ready, started) = sync_channel(1);
        let builder = Builder::new().name(format!("erpc-{index}"));
        let thread = builder.spawn(move || run(setup, &ready)).map_err(ServeError::Thread)?;
        match started.recv() {
            Ok(handle) => Ok(Self { handle, watch: LoopWatch::default(), thread }),
            // The thread ended before its endpoint was open.
            Err(_) => Err(thread
                .join()
                .unwrap_or(Err(ServeError::Panicked))
                .err()
                .unwrap_or(ServeError::Panicked)),
        }
    }

    /// The handle of the loop's endpoint.
    pub(super) fn handle(&self) -> &Handle<T> {
        &self.handle
    }

    /// Whether this thread is the loop's own.
    pub(super) fn is_here(&self) -> bool {
        is_current(&self.thread)
    }

    /// Looks whether the loop stands still, and reports that to the log. `server` is the address of
    /// its server.
    pub(super) fn look(&mut self, server: T::Route) {
        if let Some(time) = self.watch.look(&self.handle) {
            log::loop_stuck(clock::now(), &server, self.thread.thread().name(), time);
        }
    }

    /// Waits until the loop has ended. Returns immediately on the loop's own thread, which cannot
    /// wait for itself: a handler may end the server.
    pub(super) fn join(self) -> Result<(), ServeError> {
        if self.is_here() {
            return Ok(());
        }
        self.thread.join().unwrap_or(Err(ServeError::Panicked))
    }
}

/// The main function of an event loop's thread.
fn run<T: Listen>(setup: LoopSetup<T>, ready: &SyncSender<Handle<T>>) -> Result<(), ServeError> {
    if let Some(core) = setup.core {
        pin_thread(core).map_err(|error| ServeError::Pin { core, error })?;
    }
    let endpoint = setup.seat.open(setup.config).map_err(ServeError::Config)?;
    endpoint.set_idle_policy(setup.idle);
    if let Some(calls) = setup.task_limit {
        endpoint.set_task_limit(calls);
    }
    endpoint.serve_with(setup.routes, setup.workers);
    setup.stop.loops().push(endpoint.handle());
    if ready.send(endpoint.handle()).is_err() {
        return Ok(());
    }
    let looped = catch_unwind(AssertUnwindSafe(|| {
        endpoint.run_server(|| setup.stop.is_set());
    }));
    // Handlers may still hold the endpoint, or may have leaked it, so dropping it here may not end
    // it. But clients must learn now that the server is gone, and the port must be free. After a
    // panic of the loop, the endpoint's state may be inconsistent, so its shutdown may panic, too.
    let ended = catch_unwind(AssertUnwindSafe(|| endpoint.shutdown()));
    if let Some(rpc) = endpoint.parts().rpc() {
        rpc.transport().close();
    }
    // The panic of one loop ends the server: the address would still direct clients to that loop.
    looped.and(ended).map_err(|_panic| {
        setup.stop.set();
        ServeError::Panicked
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::Session;
    use crate::server::Nexus;
    use crate::service::Method;
    use crate::transport::udp::UdpConfig;

    #[test]
    fn a_callback_that_panics_in_the_last_turn_does_not_fail_the_server() {
        const SMALL: Method<String, u32> = Method::new("test.v1.Test/Small").max_request(4);
        let stop = Arc::new(StopSignal::default());
        let address = "127.0.0.1:0".parse().expect("an address");
        let nexus = Nexus::bind(address, 1, UdpConfig::new()).expect("a socket");
        let own = nexus.local_route();
        let seat = nexus.into_seats().pop().expect("one seat");
        let setup = LoopSetup {
            seat,
            routes: Arc::default(),
            workers: None,
            task_limit: None,
            idle: IdlePolicy::Sleep,
            config: EndpointConfig::new(),
            core: None,
            stop: Arc::clone(&stop),
        };
        let event_loop = LoopThread::start(0, setup).expect("the loop starts");
        let (called, is_called) = sync_channel(1);
        let submitted = event_loop.handle().submit(move |endpoint| {
            let session: Session = endpoint.open(own);
            // The request is too large, so the callback runs in the next turn, which is the last.
            session.call_with(&SMALL, &"too large".to_owned(), move |_| {
                called.send(()).unwrap_or(());
                panic!("the callback panics");
            });
            stop.set();
        });
        assert_eq!(submitted, Ok(()));
        let ended = event_loop.join();
        assert_eq!(is_called.try_recv(), Ok(()), "the callback has run");
        assert!(ended.is_ok(), "{ended:?}");
    }
}
