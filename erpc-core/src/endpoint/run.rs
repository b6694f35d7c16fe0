//! Running the loop of an endpoint.

use std::future::Future;
use std::panic::resume_unwind;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use super::entered::EnteredEndpoint;
use super::open::Endpoint;
use crate::event_loop::idle::Idler;
use crate::time::Instant;
use crate::transport::Transport;

impl<T: Transport> Endpoint<T> {
    /// Runs the loop, with its tasks and calls, until `future` is ready, and at least once. So a
    /// program that repeats a call which fails immediately still receives packets.
    ///
    /// # Panics
    /// Within a handler or a callback, because they run within the loop: use [`Endpoint::spawn`]
    /// there. Panics of the future and of callbacks pass through.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let _running = self.enter();
        let mut future = pin!(future);
        let root = self.owner.parts.scheduler().executor().root();
        let mut idler = Idler::new(self.owner.idle.get());
        let mut has_run = false;
        loop {
            if root.is_woken()
                && let Poll::Ready(output) = root.poll(future.as_mut())
            {
                if !has_run {
                    self.turn();
                }
                self.owner.parts.send_held();
                return output;
            }
            has_run = true;
            if self.turn() == 0 && !root.is_woken() {
                self.rest(&mut idler, None);
            } else {
                idler.worked();
            }
        }
    }

    /// Runs the loop until `done` returns true. The loop calls `done` before the first turn and
    /// after every turn. If another thread changes the result of `done`, it must call
    /// [`Handle::wake`](super::Handle::wake), because the loop may sleep.
    ///
    /// # Panics
    /// As [`Endpoint::block_on`].
    pub fn run_until(&self, mut done: impl FnMut() -> bool) {
        let _running = self.enter();
        let mut idler = Idler::new(self.owner.idle.get());
        while !done() {
            if self.turn() == 0 {
                self.rest(&mut idler, None);
            } else {
                idler.worked();
            }
        }
        self.owner.parts.send_held();
    }

    /// Runs the loop for `duration`.
    ///
    /// # Panics
    /// As [`Endpoint::block_on`].
    pub fn run_for(&self, duration: Duration) {
        let _running = self.enter();
        let mut idler = Idler::new(self.owner.idle.get());
        let end = self.now() + duration;
        loop {
            let now = self.now();
            if now >= end {
                self.owner.parts.send_held();
                return;
            }
            if self.turn() == 0 {
                self.rest(&mut idler, Some(end - now));
            } else {
                idler.worked();
            }
        }
    }

    /// Runs one turn: receives at most a burst of packets and runs their handlers and callbacks,
    /// runs submitted jobs and every task that is ready, and sends the results, with one of the next
    /// three turns at the latest. Returns the amount of work, 0 if there was none. Does not wait. A
    /// turn without work leaves nothing to send.
    ///
    /// # Panics
    /// As [`Endpoint::block_on`].
    pub fn run_once(&self) -> usize {
        let _running = self.enter();
        self.turn()
    }

    /// Runs one turn like [`Endpoint::run_once`], at the time `now`, for virtual clocks: until the
    /// next turn, `now` is the time for everything in the endpoint. Do not mix with loops that read
    /// the clock.
    ///
    /// # Panics
    /// As [`Endpoint::block_on`].
    pub fn run_once_at(&self, now: Instant) -> usize {
        let _running = self.enter();
        self.owner.parts.scheduler().set_time(now);
        self.turn()
    }

    fn turn(&self) -> usize {
        let work = self.turn_containing_panics();
        if let Some(panic) = self.owner.parts.scheduler().take_panic() {
            resume_unwind(panic);
        }
        work
    }

    fn turn_containing_panics(&self) -> usize {
        let parts = &*self.owner.parts;
        let work = parts.turn() + parts.run_jobs();
        parts.wake_tasks();
        let turns = parts.scheduler().executor().standstill().count_turn();
        self.owner.watch.look(parts, turns);
        work
    }

    /// The loop of a server's thread, until `done`, and a last turn, which sends the answers of the
    /// turn before. Panics of callbacks and jobs were reported by the panic hook, and do not end the
    /// server.
    pub(crate) fn run_server(&self, mut done: impl FnMut() -> bool) {
        let _running = self.enter();
        let mut idler = Idler::new(self.owner.idle.get());
        loop {
            let is_last = done();
            let work = self.turn_containing_panics();
            drop(self.owner.parts.scheduler().take_panic());
            if is_last {
                self.owner.parts.send_held();
                return;
            }
            if work == 0 {
                self.rest(&mut idler, None);
            } else {
                idler.worked();
            }
        }
    }

    /// Called after a turn without work.
    #[inline]
    fn rest(&self, idler: &mut Idler, limit: Option<Duration>) {
        if idler.should_sleep(|| self.now()) {
            self.owner.watch.look_now(&self.owner.parts);
            if self.owner.parts.wake_all_tasks() {
                // The future of `block_on`, or of an executor in `done`, may be among the tasks.
                return;
            }
            self.owner.parts.sleep(limit);
        } else {
            idler.pause();
        }
    }

    fn enter(&self) -> RunningLoop<'_, T> {
        let executor = self.owner.parts.scheduler().executor();
        RunningLoop {
            endpoint: self,
            _entered: EnteredEndpoint::enter(Rc::clone(&self.owner) as _, executor),
        }
    }
}

/// While this value exists, this thread runs the loop of `endpoint`.
struct RunningLoop<'e, T: Transport> {
    endpoint: &'e Endpoint<T>,
    _entered: EnteredEndpoint,
}

impl<T: Transport> Drop for RunningLoop<'_, T> {
    /// No turn may follow for long.
    fn drop(&mut self) {
        self.endpoint.owner.parts.wake_all_tasks();
    }
}
