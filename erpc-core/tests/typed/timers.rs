//! Sleeps and timeouts.

use std::cell::{Cell, RefCell};
use std::panic::catch_unwind;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use erpc_core::endpoint::{self, Endpoint};
use erpc_core::event_loop::IdlePolicy;
use erpc_core::executor::{Elapsed, join_all};
use erpc_core::service::{Method, Request, Response, Routes};
use erpc_core::status::Status;
use erpc_core::time::Instant;
use erpc_core::transport::mem::MemHub;

use crate::support::{Background, Number, client, number};
use crate::world::World;

const MS: Duration = Duration::from_millis(1);

#[test]
fn sleepers_wake_in_order_and_not_early() {
    let world = World::new(0);
    let start = world.now();
    let log = Rc::new(RefCell::new(Vec::new()));
    for millis in [5, 1, 4, 2, 3] {
        let (log, sleep) = (Rc::clone(&log), world.client.sleep(millis * MS));
        let endpoint = world.client.clone();
        drop(world.client.spawn(async move {
            sleep.await;
            log.borrow_mut().push((millis, endpoint.now()));
        }));
    }
    world.run_until(|| log.borrow().len() == 5);
    for (at, (millis, woken)) in log.borrow().iter().enumerate() {
        assert_eq!(*millis as usize, at + 1);
        assert!(
            (start + *millis * MS..start + *millis * MS + MS / 10).contains(woken),
            "{woken:?}"
        );
    }
    assert_eq!(world.client.next_deadline(), Instant::NEVER);
}

#[test]
fn a_timeout_ends_a_late_future_and_returns_an_early_one() {
    let world = World::new(0);
    let late = world.client.spawn(world.client.timeout(MS, std::future::pending::<()>()));
    let early = world.client.spawn(world.client.timeout(5 * MS, world.client.sleep(MS)));
    world.run_until(|| late.is_finished() && early.is_finished());
    assert_eq!(world.client.next_deadline(), Instant::NEVER, "no timer is left");
    assert_eq!(world.client.block_on(late), Err(Elapsed));
    assert_eq!(world.client.block_on(early), Ok(()));
}

#[test]
fn sleeping_loops_wake_for_their_timers() {
    let endpoint = client(&MemHub::new());
    endpoint.set_idle_policy(IdlePolicy::Sleep);
    let start = endpoint.now();
    endpoint.block_on(join_all([endpoint.sleep(2 * MS), endpoint.sleep(7 * MS)]));
    let slept = endpoint.now() - start;
    assert!((7 * MS..500 * MS).contains(&slept), "{slept:?}");
}

#[test]
fn a_sleep_until_the_past_ends_in_the_next_turn() {
    let world = World::new(0);
    let done = Rc::new(Cell::new(false));
    let (sleep, set) = (world.client.sleep_until(Instant::ZERO), Rc::clone(&done));
    drop(world.client.spawn(async move {
        sleep.await;
        set.set(true);
    }));
    world.client.run_once_at(world.now());
    world.client.run_once_at(world.now());
    assert!(done.get());
}

#[test]
fn a_sleep_ends_when_its_endpoint_is_dropped() {
    let (hub, other) = (MemHub::new(), client(&MemHub::new()));
    let endpoint = client(&hub);
    let sleep = endpoint.sleep(Duration::from_secs(3_600));
    let task = other.spawn(sleep);
    other.run_once();
    assert!(!task.is_finished());
    drop(endpoint);
    other.block_on(task);
}

const NAP: Method<Number, Number> = Method::new("test.Bed/Nap");

/// Sleeps for as many milliseconds as the request says, but at most 5, and answers with this
/// number. It calls functions of the module `endpoint`, which find the current endpoint themselves.
async fn nap(_: &(), request: Request<'_, Number>) -> Result<Response<Number>, Status> {
    let value = request.message().value;
    let slept = endpoint::sleep(Duration::from_millis(value));
    let slept = endpoint::timeout(5 * MS, slept).await.map(|()| value);
    let answer = endpoint::spawn(async move { slept.unwrap_or(5) });
    Ok(Response::new(number(answer.await)))
}

#[test]
fn handlers_over_any_transport_sleep_without_an_endpoint_in_hand() {
    let hub = MemHub::new();
    let mut routes = Routes::new();
    routes.unary_async(NAP, &Arc::new(()), nap).unwrap();
    let server = Background::start(&hub, Arc::new(routes), None);
    let (caller, session) = server.connect(&hub);
    let begin = caller.now();
    assert_eq!(caller.block_on(session.call(&NAP, &number(3))), Ok(number(3)));
    assert!(caller.now() - begin >= 3 * MS);
    assert_eq!(caller.block_on(session.call(&NAP, &number(3_600_000))), Ok(number(5)));
}

#[test]
fn a_sleep_belongs_to_the_innermost_loop_of_its_thread() {
    let (outer, inner) = (client(&MemHub::new()), client(&MemHub::new()));
    outer.block_on(async {
        inner.block_on(async { endpoint::sleep(MS).await });
        endpoint::sleep(MS).await;
    });
    let udp = Endpoint::udp().unwrap();
    udp.block_on(async { endpoint::sleep(MS).await });
}

#[test]
fn outside_of_a_loop_a_sleep_panics_with_advice() {
    let calls: [(&str, fn()); 3] = [
        ("sleep", || drop(endpoint::sleep(MS))),
        ("timeout", || drop(endpoint::timeout(MS, async {}))),
        ("spawn", || drop(endpoint::spawn(async {}))),
    ];
    for (name, call) in calls {
        let panic = catch_unwind(call).expect_err("no loop runs here");
        let message = panic.downcast_ref::<String>().unwrap();
        let example = format!("block_on(async {{ erpc::{name}(..).await }})");
        assert!(message.contains(&example), "{message}");
        assert!(message.contains(&format!("`Endpoint::{name}`")), "{message}");
    }
}
