//! Calls over a channel that were certainly not executed are made again, even without a retry
//! policy.

use std::cell::RefCell;
use std::rc::Rc;
use std::time::Duration;

use erpc_core::calling::{CallOptions, RetryPolicy};
use erpc_core::client::{Balance, Call, Channel};
use erpc_core::protocol::{CallError, Cause, RejectReason};
use erpc_core::service::{Metadata, Method};
use erpc_core::transport::mem::MemTransport;

use crate::support::{Number, number};
use crate::world::{STAY, SUM, TELL, WHO, World};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Calls that fit into a session at once.
const SLOTS: u64 = 8;

/// Like `world::HELD`, but not idempotent: the name alone decides which handler runs.
const HELD_ONCE: Method<Number, Number> = Method::new("test.World/Held");

fn connected(world: &World) -> Channel<MemTransport> {
    let channel = Channel::to(&world.client, world.routes()).build();
    world.wait(channel.ready()).unwrap();
    // If the session ended within this time, the channel would not reopen it immediately.
    world.run_for(50 * MS);
    channel
}

/// Makes `count` calls, of which the server's handler holds the first eight.
fn held(
    world: &World,
    channel: &Channel<MemTransport>,
    count: u64,
) -> Vec<Call<Number, MemTransport>> {
    let before = world.behaviours[0].handled();
    let calls = (0..count).map(|_| channel.call(&HELD_ONCE, &number(0))).collect();
    world.run_until(|| world.behaviours[0].handled() == before + SLOTS);
    calls
}

#[test]
fn a_call_after_an_absence_of_the_loop_succeeds_and_runs_once() {
    for away in [6, 8, 11, 15, 100] {
        let world = World::new(1);
        let channel = connected(&world);
        assert_eq!(world.finish(channel.call(&WHO, &number(0))), Ok(0));
        world.client_away(away * SECOND);
        assert_eq!(world.finish(channel.call(&WHO, &number(0))), Ok(0), "{away} s");
        assert_eq!(world.behaviours[0].handled(), 2, "{away} s");
        let is_new = away >= 11;
        assert_eq!(channel.stats().reconnects, u64::from(is_new), "{away} s");
    }
}

#[test]
fn a_session_reports_that_a_call_after_an_absence_was_not_executed() {
    let world = World::new(1);
    let session = world.wait(world.client.connect_async(World::route(0))).unwrap();
    world.client_away(8 * SECOND);
    assert_eq!(world.finish(session.call(&WHO, &number(0))), Ok(0), "the server knows the session");
    world.client_away(15 * SECOND);
    let ended = world.finish(session.call(&WHO, &number(0)));
    assert_eq!(ended, Err(CallError::NotExecuted(Cause::PeerReset)));
    // A channel over this session cannot open another one.
    let channel = Channel::from(session);
    let ended = world.finish(channel.call(&WHO, &number(0)));
    assert_eq!(ended, Err(CallError::NotExecuted(Cause::PeerReset)));
    assert_eq!(world.behaviours[0].handled(), 1);
}

#[test]
fn calls_that_wait_for_a_slot_survive_the_end_of_their_session() {
    let world = World::new(1);
    let channel = connected(&world);
    let mut calls = held(&world, &channel, SLOTS + 4);
    let waiting = calls.split_off(SLOTS as usize);
    world.stop(0);
    for call in calls {
        let ended = world.finish(call);
        assert_eq!(ended, Err(CallError::MaybeExecuted(Cause::PeerClosed)));
    }
    world.start(0);
    world.run_until(|| world.behaviours[0].handled() == SLOTS + 4);
    // The eight responders of the ended session answer nobody.
    assert_eq!(world.behaviours[0].answer(), 12);
    for call in waiting {
        assert_eq!(world.finish(call), Ok(0));
    }
    assert_eq!((channel.stats().retries, channel.stats().retries_refused), (4, 0));
}

#[test]
fn callbacks_metadata_and_deadlines_survive_a_retry() {
    let world = World::new(1);
    let channel = connected(&world);
    let _held = held(&world, &channel, SLOTS);
    let mut metadata = Metadata::new();
    metadata.insert("trace", b"t-17").unwrap();
    let traced = channel.with(CallOptions::new().metadata(metadata).deadline(SECOND));
    let asked = world.now();
    let call = traced.call(&TELL, &number(0)).with_metadata();
    let heard = Rc::new(RefCell::new(None));
    let hear = Rc::clone(&heard);
    channel.call_with(&WHO, &number(0), move |reply| *hear.borrow_mut() = Some(reply));
    world.turn();
    world.stop(0);
    world.run_for(20 * MS);
    world.start(0);
    let (reply, back) = world.wait(call).unwrap();
    let spent = (world.now() - asked).as_micros() as u64;
    assert_eq!((reply.value, back.get("trace")), (0, Some(&b"t-17"[..])));
    let left = u64::from_le_bytes(back.get("time-left").unwrap().try_into().unwrap());
    assert!(left + spent >= 1_000_000 && left < 985_000, "{left} us left, {spent} us spent");
    world.run_until(|| heard.borrow().is_some());
    assert_eq!(heard.take(), Some(Ok(number(0))));
}

#[test]
fn the_policy_never_switches_retries_of_unexecuted_calls_off() {
    let world = World::new(1);
    let never = CallOptions::new().retry(RetryPolicy::never());
    let channel = connected(&world).with(never);
    let waiting = held(&world, &channel, SLOTS + 2).split_off(SLOTS as usize);
    world.stop(0);
    for call in waiting {
        assert_eq!(world.finish(call), Err(CallError::NotExecuted(Cause::PeerClosed)));
    }
    assert_eq!(channel.stats().retries, 0);
}

#[test]
fn a_policy_for_idempotent_calls_leaves_the_retries_of_other_unexecuted_calls_on() {
    let world = World::new(1);
    let channel = connected(&world).with(CallOptions::new().retry(RetryPolicy::new(2)));
    let waiting = held(&world, &channel, SLOTS + 2).split_off(SLOTS as usize);
    world.stop(0);
    world.start(0);
    world.run_until(|| world.behaviours[0].handled() == SLOTS + 2);
    world.behaviours[0].answer();
    for call in waiting {
        assert_eq!(world.finish(call), Ok(0));
    }
}

#[test]
fn a_call_that_is_made_again_ends_at_its_deadline() {
    let world = World::new(1);
    let channel = connected(&world);
    let _held = held(&world, &channel, SLOTS);
    let patient = channel.with(CallOptions::new().wait_for_ready(true).deadline(300 * MS));
    let asked = world.now();
    let call = patient.call(&WHO, &number(0));
    world.turn();
    world.stop(0);
    assert_eq!(world.finish(call), Err(CallError::NotExecuted(Cause::DeadlineExceeded)));
    let took = world.now() - asked;
    assert!((300 * MS..301 * MS).contains(&took), "{took:?}");
    assert_eq!(channel.backends()[0].calls, 0);
}

#[test]
fn a_call_that_is_made_again_fails_if_no_server_can_be_reached() {
    let world = World::new(1);
    let channel = connected(&world);
    let _held = held(&world, &channel, SLOTS);
    let call = channel.call(&WHO, &number(0));
    world.turn();
    world.stop(0);
    match world.finish(call) {
        Err(CallError::NoServer(why)) => assert!(why.to_string().contains("1000"), "{why}"),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_dropped_call_is_not_made_again() {
    let world = World::new(1);
    let channel = connected(&world);
    let waiting = held(&world, &channel, SLOTS + 3).split_off(SLOTS as usize);
    world.stop(0);
    world.run_until(|| channel.stats().retries == 3);
    drop(waiting);
    world.start(0);
    assert_eq!(world.finish(channel.call(&WHO, &number(0))), Ok(0));
    world.run_for(SECOND);
    assert_eq!(world.behaviours[0].handled(), SLOTS + 1);
}

#[test]
fn retries_of_unexecuted_calls_have_a_budget() {
    let world = World::new(1);
    let channel = connected(&world);
    let waiting = held(&world, &channel, SLOTS + 1_020).split_off(SLOTS as usize);
    world.stop(0);
    world.run_until(|| waiting.iter().filter(|call| call.is_ready()).count() >= 20);
    let stats = channel.stats();
    assert_eq!((stats.retries, stats.retries_refused), (1_000, 20));
    world.start(0);
    for (at, call) in waiting.into_iter().enumerate() {
        world.behaviours[0].answer();
        let expected = match at {
            0..1_000 => Ok(0),
            _ => Err(CallError::NotExecuted(Cause::PeerClosed)),
        };
        assert_eq!(world.finish_answered(call), expected, "call {at}");
    }
}

#[test]
fn a_full_queue_is_reported_at_once() {
    let world = World::new(1);
    let channel = connected(&world);
    let _held = held(&world, &channel, SLOTS + 1_024);
    let refused = world.finish(channel.call(&WHO, &number(0)));
    assert_eq!(refused, Err(CallError::Rejected(RejectReason::QueueFull)));
    assert_eq!(channel.stats().retries, 0);
}

#[test]
fn a_stream_that_leaves_its_server_pauses_and_takes_a_retry_from_the_budget() {
    let world = World::new(1);
    let channel = connected(&world);
    let sum = || world.wait(channel.client_streaming(&SUM).finish()).map(|sum| sum.value);
    assert_eq!(sum(), Ok(0));
    // The server drops the idle session that the next stream takes.
    world.client_away(15 * SECOND);
    let begun = world.now();
    assert_eq!(sum(), Ok(0));
    assert!(world.now() - begun >= MS / 2, "{:?}", world.now() - begun);
    assert_eq!(channel.stats().retries, 1);
}

#[test]
fn a_stream_avoids_the_server_that_it_has_left() {
    let world = World::asleep(2);
    world.start_narrow(0);
    world.start(1);
    let balance = Balance::LeastOutstanding;
    let channel = Channel::to(&world.client, world.routes()).balance(balance).build();
    world.wait(channel.ready()).unwrap();
    world.run_until(|| channel.backends().iter().all(|backend| backend.sessions == 1));
    // Server 0 accepts no session for a stream. Once a stream runs at server 1, server 0 has the
    // smaller load.
    let mut streams = [(); 3].map(|()| channel.bidi_streaming(&STAY));
    for (_, numbers) in &mut streams {
        let first = world.wait(numbers.next()).map(|number| number.map(|number| number.value));
        assert_eq!(first, Ok(Some(1)));
    }
}
