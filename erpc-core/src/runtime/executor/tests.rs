use std::cell::RefCell;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::mpsc;

use super::*;
use crate::runtime::join::join_all;
use crate::transport::Waker as TransportWaker;

fn executor() -> (Executor, Arc<Bell>) {
    let bell = Arc::new(Bell::new(TransportWaker::new(|| {})));
    (Executor::new(Arc::clone(&bell)), bell)
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

/// Yields once, waking itself first.
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
fn tasks_take_turns_and_bring_outputs() {
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
    assert!(executor.state.borrow().slots.len() <= 3);
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
fn a_panic_reaches_who_awaits_and_nobody_else() {
    let (executor, _bell) = executor();
    let bad = executor.spawn(async { panic!("as arranged") });
    let good = executor.spawn(async { 1 });
    assert_eq!(block_on(&executor, good), 1);
    let caught = catch_unwind(AssertUnwindSafe(|| block_on::<JoinHandle<()>>(&executor, bad)));
    assert_eq!(*caught.unwrap_err().downcast::<&str>().unwrap(), "as arranged");
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
fn clearing_drops_tasks() {
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
