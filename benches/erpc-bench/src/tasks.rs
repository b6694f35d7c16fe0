//! The cost of a switch from one task of an endpoint to the next.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use clap::Args;
use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{Endpoint, EndpointConfig, IdlePolicy};

use crate::failure::Failure;
use crate::machine;
use crate::report::Line;

#[derive(Args)]
pub(crate) struct TasksArgs {
    /// Tasks that run
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u32).range(2..=1_000_000))]
    tasks: u32,
    /// Seconds, half of them for each kind of switch
    #[arg(long, default_value_t = 2.0, value_parser = machine::seconds)]
    secs: f64,
    /// Core to run on
    #[arg(long, default_value_t = 0)]
    core: usize,
}

/// Measures both kinds of switch: tasks that yield, and pairs of tasks that wake each other.
pub(crate) fn run(args: &TasksArgs) -> Result<(), Failure> {
    machine::pin(args.core)?;
    let time = Duration::from_secs_f64(args.secs / 2.0);
    let (yields, yield_ns) = measure(args.tasks, time, |endpoint, count, _| {
        let count = Rc::clone(count);
        drop(endpoint.spawn(async move {
            loop {
                count.set(count.get() + 1);
                yield_now().await;
            }
        }));
    })?;
    let ball = RefCell::new(Rc::new(Ball::default()));
    let (pings, ping_ns) = measure(args.tasks / 2 * 2, time, |endpoint, count, task| {
        // One ball per pair of tasks.
        if task % 2 == 0 {
            ball.replace(Rc::default());
        }
        let ball = Rc::clone(&ball.borrow());
        drop(endpoint.spawn(play(ball, task % 2, Rc::clone(count))));
    })?;
    eprintln!("{yield_ns:.1} ns per switch by a yield, {ping_ns:.1} ns by a wake");
    Line::new()
        .int("tasks", args.tasks.into())
        .int("switches", yields + pings)
        .number("ns_per_switch", Some(yield_ns.max(ping_ns)))
        .number("ns_per_yield", Some(yield_ns))
        .number("ns_per_ping", Some(ping_ns))
        .print();
    Ok(())
}

/// Starts each of `tasks` tasks with `start`, and runs them for `time`. Each time a task runs, it
/// increments the counter that `start` gets. Returns by how much the counter grew, and the CPU time
/// per count in nanoseconds.
fn measure(
    tasks: u32,
    time: Duration,
    start: impl Fn(&Endpoint<MemTransport>, &Rc<Cell<u64>>, u32),
) -> Result<(u64, f64), Failure> {
    let port = MemHub::new().port(MemConfig::default());
    let endpoint =
        Endpoint::new(port, EndpointConfig::new()).map_err(Failure::of("no endpoint"))?;
    endpoint.set_idle_policy(IdlePolicy::Spin);
    let count = Rc::new(Cell::new(0));
    (0..tasks).for_each(|task| start(&endpoint, &count, task));
    let run = |time: Duration| {
        let (begin, mut turns) = (Instant::now(), 0u32);
        endpoint.run_until(|| {
            turns += 1;
            turns.is_multiple_of(64) && begin.elapsed() >= time
        });
    };
    run(time / 10);
    let (before, begin) = (count.get(), machine::cpu_time());
    run(time);
    let switches = count.get() - before;
    Ok((switches, (machine::cpu_time() - begin).as_nanos() as f64 / switches as f64))
}

/// Lets the other tasks run.
async fn yield_now() {
    let mut yielded = false;
    poll_fn(|cx| {
        if std::mem::replace(&mut yielded, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// State that two tasks share: the number of the task that may continue, and the wakers of both.
#[derive(Default)]
struct Ball {
    holder: Cell<u32>,
    waiters: RefCell<[Option<Waker>; 2]>,
}

async fn play(ball: Rc<Ball>, side: u32, count: Rc<Cell<u64>>) {
    loop {
        poll_fn(|cx| {
            if ball.holder.get() == side {
                return Poll::Ready(());
            }
            // A task keeps its waker here, so that the measurement does not include clones of it.
            let mut waiters = ball.waiters.borrow_mut();
            let waiter = &mut waiters[side as usize];
            if !waiter.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waiter = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await;
        count.set(count.get() + 1);
        ball.holder.set(1 - side);
        if let Some(waker) = &ball.waiters.borrow()[1 - side as usize] {
            waker.wake_by_ref();
        }
    }
}
