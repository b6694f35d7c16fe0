//! Tasks that other threads wake, under every schedule.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use loom::sync::atomic::{AtomicU32, Ordering};
use loom::thread;

use crate::event_loop::bell::Bell;
use crate::event_loop::parker::LoomParker;
use crate::executor::join::JoinHandle;
use crate::executor::tasks::Executor;

/// Runs turns like an endpoint's, until `done`.
fn run(executor: &Executor, parker: &LoomParker, bell: &Bell, done: impl Fn() -> bool) {
    while !done() {
        if bell.is_rung() && bell.answer(Bell::WAKES) != 0 {
            executor.take_remote();
        }
        if executor.run_ready() == 0 {
            bell.sleep(|| parker.wait());
        }
    }
}

/// A counter that threads increment, and these threads.
#[derive(Clone, Default)]
struct Wakers {
    count: Arc<AtomicU32>,
    threads: Rc<RefCell<Vec<thread::JoinHandle<()>>>>,
}

impl Wakers {
    /// Starts a thread that increments the counter and then uses the waker.
    fn start(&self, waker: &Waker) {
        let (count, waker) = (Arc::clone(&self.count), waker.clone());
        self.threads.borrow_mut().push(thread::spawn(move || {
            // Relaxed, so that tests fail if the wake does not make the increment visible to the
            // task.
            count.fetch_add(1, Ordering::Relaxed);
            waker.wake();
        }));
    }

    /// Ready when `goal` threads have incremented the counter.
    fn poll(&self, goal: u32) -> Poll<()> {
        if self.count.load(Ordering::Relaxed) >= goal { Poll::Ready(()) } else { Poll::Pending }
    }

    fn join(&self) {
        self.threads.take().into_iter().for_each(|thread| thread.join().expect("no panic"));
    }
}

/// A task that starts `threads` threads and waits until `goal` threads have incremented the
/// counter. Also returns the number of its polls.
fn spawn(
    executor: &Executor,
    wakers: &Wakers,
    threads: usize,
    goal: u32,
) -> (JoinHandle<()>, Rc<Cell<u32>>) {
    let (wakers, polls) = (wakers.clone(), Rc::new(Cell::new(0)));
    let counted = Rc::clone(&polls);
    let task = executor.spawn(poll_fn(move |cx| {
        if counted.replace(counted.get() + 1) == 0 {
            (0..threads).for_each(|_| wakers.start(cx.waker()));
        }
        wakers.poll(goal)
    }));
    (task, polls)
}

#[test]
fn a_task_sees_the_writes_of_all_its_wakers() {
    loom::model(|| {
        let (parker, bell) = LoomParker::new();
        let (executor, wakers) =
            (Executor::new(Arc::clone(&bell), Duration::MAX), Wakers::default());
        let (task, _) = spawn(&executor, &wakers, 2, 2);
        run(&executor, &parker, &bell, || task.is_finished());
        wakers.join();
    });
}

#[test]
fn a_late_wake_of_a_finished_task_costs_at_most_a_poll() {
    loom::model(|| {
        let (parker, bell) = LoomParker::new();
        let (executor, wakers) =
            (Executor::new(Arc::clone(&bell), Duration::MAX), Wakers::default());
        let (first, _) = spawn(&executor, &wakers, 1, 0);
        run(&executor, &parker, &bell, || first.is_finished());
        // The second task gets the first task's slot, so a late wake of the first task may wake the
        // second.
        let (second, polls) = spawn(&executor, &wakers, 1, 2);
        run(&executor, &parker, &bell, || second.is_finished());
        assert!((1..=3).contains(&polls.get()), "a wake costs at most one poll");
        wakers.join();
    });
}

#[test]
fn wakes_of_an_ended_executor_do_nothing() {
    loom::model(|| {
        let (_parker, bell) = LoomParker::new();
        let (executor, wakers) = (Executor::new(bell, Duration::MAX), Wakers::default());
        let (_task, polls) = spawn(&executor, &wakers, 2, 3);
        executor.run_ready();
        executor.clear();
        wakers.join();
        executor.take_remote();
        assert!(!executor.has_ready() && polls.get() == 1, "the task is gone");
    });
}
