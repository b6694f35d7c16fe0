use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;

use super::*;
use crate::executor::join::join_all;
use crate::transport::Waker as TransportWaker;

fn executor() -> (Executor, Arc<Bell>) {
    let bell = Arc::new(Bell::new(TransportWaker::new(|| {})));
    (Executor::new(Arc::clone(&bell), Duration::MAX), bell)
}

fn block_on<F: Future>(executor: &Executor, future: F) -> F::Output {
    let mut future = pin!(future);
    let root = executor.root();
    loop {
        if root.is_woken()
            && let Poll::Ready(output) = root.poll(future.as_mut())
        {
            return output;
        }
        executor.take_remote();
        executor.run_ready();
    }
}

/// Wakes itself and yields once.
fn yield_now() -> impl Future<Output = ()> {
    let mut yielded = false;
    poll_fn(move |cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
}

#[test]
fn tasks_are_polled_in_turn_and_return_outputs() {
    let (executor, _bell) = executor();
    let log = Rc::new(RefCell::new(Vec::new()));
    let tasks: Vec<_> = (0..3)
        .map(|task| {
            let log = Rc::clone(&log);
            executor.spawn(async move {
                for round in 0..2 {
                    log.borrow_mut().push((round, task));
                    yield_now().await;
                }
                task * 10
            })
        })
        .collect();
    assert_eq!(block_on(&executor, join_all(tasks)), [0, 10, 20]);
    assert_eq!(*log.borrow(), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
}

#[test]
fn a_slot_is_reused_even_if_its_task_was_woken_while_it_ended() {
    let (executor, _bell) = executor();
    for round in 0..100 {
        let handle = executor.spawn(poll_fn(move |cx| {
            cx.waker().wake_by_ref();
            Poll::Ready(round)
        }));
        assert_eq!(block_on(&executor, handle), round);
    }
    assert!(executor.slots.borrow().all.len() <= 3);
}

#[test]
fn another_thread_wakes_a_task() {
    let (executor, bell) = executor();
    let (send, receive) = mpsc::channel::<Waker>();
    let done = Arc::new(AtomicBool::new(false));
    let waker_thread = std::thread::spawn({
        let done = Arc::clone(&done);
        move || {
            for waker in receive {
                done.store(true, Ordering::Release);
                waker.wake();
            }
        }
    });
    let handle = executor.spawn(poll_fn(move |cx| {
        if done.load(Ordering::Acquire) {
            return Poll::Ready(5);
        }
        send.send(cx.waker().clone()).map_or(Poll::Ready(0), |()| Poll::Pending)
    }));
    assert_eq!(block_on(&executor, handle), 5);
    waker_thread.join().unwrap();
    assert!(bell.is_rung());
}

#[test]
fn a_panic_reaches_only_the_future_that_awaits_the_task() {
    let (executor, _bell) = executor();
    let bad = executor.spawn(async { panic!("expected panic") });
    let good = executor.spawn(async { 1 });
    assert_eq!(block_on(&executor, good), 1);
    let caught = catch_unwind(AssertUnwindSafe(|| block_on::<JoinHandle<()>>(&executor, bad)));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "expected panic");
}

#[test]
fn the_executor_knows_its_own_tasks() {
    let (executor, _bell) = executor();
    let executor = Rc::new(executor);
    let inner = Rc::clone(&executor);
    block_on(
        &executor,
        poll_fn(move |cx| {
            assert!(matches!(inner.wake_slot(cx), WakeSlot::Task(_)));
            let foreign = Context::from_waker(Waker::noop());
            assert!(matches!(inner.wake_slot(&foreign), WakeSlot::Other(_)));
            Poll::Ready(())
        }),
    );
}

#[test]
fn clear_drops_all_tasks() {
    let (executor, _bell) = executor();
    let held = Rc::new(());
    let task = Rc::clone(&held);
    drop(executor.spawn(async move {
        std::future::pending::<()>().await;
        drop(task);
    }));
    executor.run_ready();
    executor.clear();
    assert_eq!(Rc::strong_count(&held), 1);
}

/// Counts its drop.
struct Canary(Rc<Cell<u32>>);

impl Drop for Canary {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
    }
}

#[test]
fn an_aborted_task_is_dropped_and_its_id_is_stale() {
    let (executor, _bell) = executor();
    let ended = Rc::new(Cell::new(0));
    let canary = Canary(Rc::clone(&ended));
    let task = executor.start(async move {
        let _canary = canary;
        std::future::pending().await
    });
    executor.run_ready();
    executor.abort(task);
    assert_eq!(ended.get(), 1);
    let canary = Canary(Rc::clone(&ended));
    let next = executor.start(async move {
        let _canary = canary;
        std::future::pending().await
    });
    assert_eq!(next.slot, task.slot);
    executor.abort(task);
    assert_eq!(ended.get(), 1, "the slot belongs to another task");
    executor.abort(next);
    assert_eq!((ended.get(), executor.run_ready()), (2, 1), "the task was on the ready queue");
    assert!(!executor.has_ready());
}

#[test]
fn a_task_that_is_aborted_while_it_is_polled_ends_with_the_poll() {
    let (executor, _bell) = executor();
    let (executor, ended) = (Rc::new(executor), Rc::new(Cell::new(0)));
    let (own, task) = (Rc::clone(&executor), Rc::new(Cell::new(None)));
    let (named, canary) = (Rc::clone(&task), Canary(Rc::clone(&ended)));
    task.set(Some(executor.start(poll_fn(move |cx| {
        own.abort(named.get().unwrap());
        cx.waker().wake_by_ref();
        assert_eq!(canary.0.get(), 0);
        Poll::Pending
    }))));
    executor.run_ready();
    assert_eq!(ended.get(), 1);
    executor.take_remote();
    assert_eq!(block_on(&executor, executor.spawn(async { 3 })), 3, "the slot is reused");
}

#[test]
fn wakes_within_the_loop_ring_no_bell() {
    let (first, first_bell) = executor();
    let (second, second_bell) = executor();
    let waker = Rc::new(Cell::new(None));
    let own = Rc::clone(&waker);
    first.start(poll_fn(move |cx| {
        own.set(Some(cx.waker().clone()));
        Poll::Pending
    }));
    first.run_ready();
    let wake = || {
        let woken: Waker = waker.take().unwrap();
        woken.wake_by_ref();
        waker.set(Some(woken));
    };
    let entered = first.enter();
    wake();
    assert_eq!((first.run_ready(), first_bell.is_rung()), (1, false));
    let nested = second.enter();
    wake();
    assert_eq!(
        (first.run_ready(), first_bell.is_rung()),
        (0, true),
        "the loop of another executor runs"
    );
    first_bell.answer(Bell::WAKES);
    first.take_remote();
    assert_eq!(first.run_ready(), 1);
    drop(nested);
    wake();
    assert_eq!((first.run_ready(), first_bell.is_rung()), (1, false));
    drop(entered);
    wake();
    assert!(first_bell.is_rung() && !second_bell.is_rung());
}

#[test]
fn the_id_of_a_task_that_was_aborted_while_ready_is_stale() {
    let (executor, _bell) = executor();
    let ended = Rc::new(Cell::new(0));
    let start = || {
        let canary = Canary(Rc::clone(&ended));
        executor.start(async move {
            let _canary = canary;
            std::future::pending().await
        })
    };
    let task = start();
    executor.abort(task);
    assert_eq!(ended.get(), 1, "the task was ready, but was never polled");
    assert!(executor.run_ready() <= 1);
    let next = start();
    assert_eq!(next.slot, task.slot);
    executor.abort(task);
    assert_eq!(ended.get(), 1, "the slot belongs to another task");
    executor.abort(next);
    assert_eq!(ended.get(), 2);
}

#[test]
fn another_thread_wakes_a_task_twice() {
    let (executor, _bell) = executor();
    let (send, wakers) = mpsc::channel::<Waker>();
    let polls = Rc::new(Cell::new(0));
    let counted = Rc::clone(&polls);
    executor.start(poll_fn(move |cx| {
        counted.set(counted.get() + 1);
        send.send(cx.waker().clone()).unwrap();
        Poll::Pending
    }));
    executor.run_ready();
    for expected in 2..=3 {
        let waker = wakers.recv().unwrap();
        std::thread::spawn(move || waker.wake()).join().unwrap();
        executor.take_remote();
        executor.run_ready();
        assert_eq!(polls.get(), expected);
    }
}

/// Counts its drop, and panics in it.
struct Explosive(Rc<Cell<u32>>);

impl Drop for Explosive {
    fn drop(&mut self) {
        self.0.set(self.0.get() + 1);
        panic!("a value of the task panics in its destructor");
    }
}

#[test]
fn all_tasks_end_with_the_executor_although_their_destructors_panic() {
    let (executor, _bell) = executor();
    let drops = Rc::new(Cell::new(0));
    for _ in 0..3 {
        let value = Explosive(Rc::clone(&drops));
        executor.start(async move {
            let _value = value;
            std::future::pending::<()>().await;
        });
    }
    executor.run_ready();
    executor.clear();
    assert_eq!((drops.get(), executor.tasks()), (3, 0));
}
