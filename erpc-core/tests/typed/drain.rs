//! Servers that are drained: calls and streams that run finish, new ones go to other servers.

use std::sync::Arc;
use std::time::Duration;

use erpc_core::calling::{CallOptions, RetryPolicy};
use erpc_core::client::Channel;
use erpc_core::endpoint::{sleep, timeout};
use erpc_core::executor::JoinHandle;
use erpc_core::protocol::{CallError, Cause, ConnectError};
use erpc_core::service::{Incoming, Request, Response, Routes};
use erpc_core::status::{Code, Status};
use erpc_core::testing::VirtualNetwork;
use erpc_core::transport::fault::{Faults, Outage};
use erpc_core::transport::mem::MemTransport;

use crate::support::{Number, number};
use crate::world::{HELD, LATER, STAY, SUM, WHO, World};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const REFUSED: CallError = CallError::NotExecuted(Cause::PeerDraining);

/// A channel to all servers.
fn channel(world: &World) -> Channel<MemTransport> {
    let channel = Channel::to(&world.client, world.routes()).build();
    world.finish(channel.call(&WHO, &number(0))).unwrap();
    let all_open = || channel.backends().iter().all(|backend| backend.sessions == 1);
    world.run_until(all_open);
    channel
}

/// Runs until the drain is over. Returns how many calls and streams the drain has cut off, and how
/// long it took.
fn drained(world: &World, drain: JoinHandle<usize>) -> (usize, Duration) {
    let begin = world.now();
    (world.wait(drain), world.now() - begin)
}

fn handled(world: &World) -> Vec<u64> {
    world.behaviours.iter().map(|server| server.handled()).collect()
}

#[test]
fn calls_that_a_draining_server_refuses_are_made_on_others_and_none_runs_twice() {
    let world = World::new(3);
    let channel = channel(&world);
    let before: u64 = handled(&world).iter().sum();
    // Some of these calls are on their way to the server when it begins to drain.
    let calls: Vec<_> = (0..60).map(|_| channel.call(&WHO, &number(0))).collect();
    let drain = world.drain(1, SECOND);
    for call in calls {
        world.finish(call).unwrap();
    }
    assert_eq!(handled(&world).iter().sum::<u64>(), before + 60);
    assert!(channel.stats().retries > 0, "no call was refused");
    let (cut_off, time) = drained(&world, drain);
    assert_eq!(cut_off, 0);
    assert!(time < 10 * MS, "the clients close their sessions: {time:?}");
}

#[test]
fn a_draining_server_gets_no_calls_until_it_is_back() {
    let world = World::new(3);
    let channel = channel(&world);
    let drain = world.drain(1, SECOND);
    world.run_until(|| channel.backends()[1].sessions == 0);
    for _ in 0..30 {
        assert_ne!(world.finish(channel.call(&WHO, &number(0))), Ok(1));
    }
    drained(&world, drain);
    world.stop(1);
    world.start(1);
    world.run_until(|| channel.backends()[1].sessions == 1);
    let answers: Vec<_> =
        (0..6).map(|_| world.finish(channel.call(&WHO, &number(0))).unwrap()).collect();
    assert!(answers.contains(&1), "{answers:?}");
}

#[test]
fn a_deferred_call_finishes_before_the_drain_ends() {
    let world = World::new(1);
    let channel = channel(&world);
    let call = channel.call(&HELD, &number(0));
    world.run_until(|| world.behaviours[0].handled() == 2);
    let drain = world.drain(0, 5 * SECOND);
    world.run_for(2 * SECOND);
    assert!(!drain.is_finished() && !call.is_ready());
    assert_eq!(world.behaviours[0].answer(), 1);
    assert_eq!(world.finish(call), Ok(0));
    let (cut_off, time) = drained(&world, drain);
    assert!(cut_off == 0 && time < 10 * MS, "{cut_off} {time:?}");
}

#[test]
fn a_task_finishes_before_the_drain_ends() {
    let world = World::new(1);
    let channel = channel(&world);
    let call = channel.call(&LATER, &number(500));
    world.run_until(|| world.behaviours[0].handled() == 2);
    let drain = world.drain(0, SECOND);
    assert_eq!(world.finish(call), Ok(0));
    assert_eq!(drained(&world, drain).0, 0);
}

#[test]
fn calls_that_run_longer_are_told_at_the_deadline_that_they_may_have_been_executed() {
    let world = World::new(1);
    let session = world.client.open(World::route(0));
    let calls = [session.call(&LATER, &number(60_000)), session.call(&HELD, &number(0))];
    world.run_until(|| world.behaviours[0].handled() == 2);
    let (cut_off, time) = drained(&world, world.drain(0, 200 * MS));
    assert_eq!(cut_off, 2);
    assert!((200 * MS..210 * MS).contains(&time), "{time:?}");
    for call in calls {
        let error = world.finish(call).unwrap_err();
        assert!(matches!(error, CallError::Status(_)), "{error:?}");
        assert_eq!(error.code(), Code::Unavailable);
        assert!(error.to_string().contains("shut down"), "{error}");
    }
    // The handler's own answer comes too late, and is dropped.
    world.behaviours[0].answer();
    world.run_for(10 * MS);
}

#[test]
fn a_call_on_a_session_whose_server_drains_fails_with_the_reason() {
    let world = World::new(1);
    let session = world.client.open(World::route(0));
    assert_eq!(world.finish(session.call(&WHO, &number(0))), Ok(0));
    let held = session.call(&HELD, &number(0));
    world.run_until(|| world.behaviours[0].handled() == 2);
    let drain = world.drain(0, 5 * SECOND);
    // The server drains now, and the client does not know it yet.
    world.turn();
    let sent = session.call(&WHO, &number(0));
    assert_eq!(world.finish(sent), Err(REFUSED));
    assert_eq!(world.finish(session.call(&WHO, &number(0))), Err(REFUSED));
    assert!(!session.is_open());
    world.behaviours[0].answer();
    assert_eq!(world.finish(held), Ok(0));
    drained(&world, drain);
    assert_eq!(world.finish(session.call(&WHO, &number(0))), Err(REFUSED));
}

#[test]
fn a_draining_server_refuses_sessions_and_calls_say_so_if_there_is_no_other_server() {
    let world = World::new(1);
    let held = world.client.open(World::route(0));
    let call = held.call(&HELD, &number(0));
    world.run_until(|| world.behaviours[0].handled() == 1);
    let drain = world.drain(0, 5 * SECOND);
    world.run_for(MS);
    let channel = Channel::to(&world.client, world.routes()).build();
    match world.finish(channel.call(&WHO, &number(0))) {
        Err(CallError::NoServer(why)) => {
            assert_eq!(why.cause(), Cause::Connect(ConnectError::Draining));
        }
        other => panic!("{other:?}"),
    }
    world.behaviours[0].answer();
    world.finish(call).unwrap();
    drained(&world, drain);
}

#[test]
fn a_stream_goes_on_while_its_server_drains() {
    let world = World::new(1);
    let channel = channel(&world);
    let (out, mut numbers) = channel.bidi_streaming(&STAY);
    assert_eq!(world.wait(numbers.next()).unwrap().unwrap().value, 0);
    let drain = world.drain(0, 60 * SECOND);
    // The stream stays open for 10 s. This is longer than an idle session is kept, and longer than
    // a ping interval.
    for _ in 0..10 {
        world.run_for(SECOND);
        world.wait(out.send(number(1))).unwrap();
    }
    assert!(!drain.is_finished());
    drop(out);
    assert_eq!(world.wait(numbers.next()).unwrap(), None);
    let (cut_off, time) = drained(&world, drain);
    assert!(cut_off == 0 && time < 10 * MS, "{cut_off} {time:?}");
}

#[test]
fn a_stream_whose_items_nobody_reads_goes_on_while_its_server_drains() {
    let world = World::new(1);
    let channel = channel(&world);
    let (out, mut numbers) = channel.bidi_streaming(&STAY);
    // The first item is pulled and unread, so no call waits at the server.
    world.run_for(10 * MS);
    let drain = world.drain(0, 60 * SECOND);
    world.run_for(5 * SECOND);
    assert_eq!(world.wait(numbers.next()).unwrap().unwrap().value, 0);
    drop(out);
    assert_eq!(world.wait(numbers.next()).unwrap(), None);
    assert_eq!(drained(&world, drain).0, 0);
}

#[test]
fn a_stream_is_told_at_the_deadline() {
    let world = World::new(1);
    let channel = channel(&world);
    let (_out, mut numbers) = channel.bidi_streaming(&STAY);
    world.wait(numbers.next()).unwrap();
    let (cut_off, time) = drained(&world, world.drain(0, 200 * MS));
    assert_eq!(cut_off, 1);
    assert!((200 * MS..210 * MS).contains(&time), "{time:?}");
    assert_eq!(world.wait(numbers.next()).unwrap_err().code(), Code::Unavailable);
}

#[test]
fn a_stream_that_a_draining_server_refuses_begins_on_another() {
    for batches in 0..4u64 {
        let world = World::new(2);
        let channel = channel(&world);
        // Opens a session for streams to each server.
        for _ in 0..4 {
            let upload = channel.client_streaming(&SUM);
            world.wait(upload.finish()).unwrap();
        }
        let before: u64 = handled(&world).iter().sum();
        let drain = world.drain(0, SECOND);
        // The server drains now, and the client does not know it yet.
        world.turn();
        let uploads = [channel.client_streaming(&SUM), channel.client_streaming(&SUM)];
        for upload in uploads {
            for value in 1..=batches {
                world.wait(upload.send(number(value))).unwrap();
            }
            let sum = world.wait(upload.finish()).unwrap();
            assert_eq!((sum.value, sum.ballast.len()), (batches * (batches + 1) / 2, 1));
        }
        assert_eq!(handled(&world).iter().sum::<u64>(), before + 2);
        assert_eq!(drained(&world, drain).0, 0);
    }
}

#[test]
fn refused_calls_and_streams_stay_refused_if_retries_are_off() {
    let world = World::new(2);
    let channel = channel(&world).with(CallOptions::new().retry(RetryPolicy::never()));
    for _ in 0..4 {
        world.wait(channel.client_streaming(&SUM).finish()).unwrap();
    }
    let before: u64 = handled(&world).iter().sum();
    let drain = world.drain(0, SECOND);
    // The server drains now, and the client does not know it yet.
    world.turn();
    let uploads = [channel.client_streaming(&SUM), channel.client_streaming(&SUM)];
    let calls = [channel.call(&WHO, &number(0)), channel.call(&WHO, &number(0))];
    let streams = uploads.map(|upload| world.wait(upload.finish()).map(|_| ()));
    let calls = calls.map(|call| world.finish(call).map(|_| ()));
    for mut ended in [streams, calls] {
        ended.sort_unstable_by_key(Result::is_err);
        assert_eq!(ended, [Ok(()), Err(REFUSED)]);
    }
    assert_eq!(handled(&world).iter().sum::<u64>(), before + 2);
    assert_eq!(channel.stats().retries, 0);
    drained(&world, drain);
}

#[test]
fn large_batches_of_a_refused_stream_arrive_in_order_at_another_server() {
    let world = World::new(2);
    let channel = channel(&world);
    let drain = world.drain(0, SECOND);
    let uploads = [channel.client_streaming(&SUM), channel.client_streaming(&SUM)];
    for upload in uploads {
        for value in 1..=8 {
            let mut item = number(value);
            item.ballast = vec![7; 30_000];
            world.wait(upload.send(item)).unwrap();
        }
        let sum = world.wait(upload.finish()).unwrap();
        assert_eq!((sum.value, sum.ballast.len()), (36, 1));
    }
    assert_eq!(drained(&world, drain).0, 0);
}

/// Adds up the client's numbers.
async fn sum(_: &(), request: Request<'_, Incoming<Number>>) -> Result<Response<Number>, Status> {
    let (mut numbers, mut sum) = (request.into_message(), 0);
    while let Some(number) = numbers.next().await? {
        sum += number.value;
    }
    Ok(Response::new(number(sum)))
}

#[test]
fn a_stream_moves_if_its_first_call_has_arrived_in_part_when_its_server_drains() {
    // The first call has more packets than its session has credits. Those after the first burst are
    // lost and are sent again, so that the next call, of one small packet, overtakes them. The seeds
    // differ in the time at which the loss and the drain begin.
    let mut refused = 0;
    for seed in 0..40 {
        let network = VirtualNetwork::new(seed);
        let serve = || {
            let mut routes = Routes::new();
            routes.client_streaming(SUM, &Arc::new(()), sum).unwrap();
            network.serve_routes(routes)
        };
        let servers = [serve(), serve()];
        let client = network.endpoint();
        let targets: Vec<_> = servers.iter().map(|server| server.route()).collect();
        let channel = Channel::to(&client, targets).build();
        client.block_on(async {
            for _ in 0..4 {
                channel.client_streaming(&SUM).finish().await.unwrap();
            }
            let uploads = [channel.client_streaming(&SUM), channel.client_streaming(&SUM)];
            for upload in &uploads {
                upload.send(Number { value: 1, ballast: vec![7; 60_000] }).await.unwrap();
                upload.send(number(2)).await.unwrap();
            }
            sleep(Duration::from_micros(4 * seed)).await;
            let only_small = Outage { from: Duration::ZERO, until: 3 * MS, over: 200 };
            network.set_faults(Faults::none().outage(only_small));
            let drain = servers[0].drain(10 * SECOND);
            for upload in uploads {
                let sum = timeout(5 * SECOND, upload.finish()).await;
                let sum = sum.unwrap_or_else(|_| panic!("seed {seed}: the stream hangs"));
                assert_eq!(sum.map(|sum| sum.value), Ok(3), "seed {seed}");
            }
            refused += servers[1].requests();
            drop(drain);
        });
    }
    assert!(refused > 0);
}

#[test]
fn a_stream_of_a_session_is_refused_with_the_reason() {
    let world = World::new(1);
    let session = world.client.open(World::route(0));
    world.finish(session.call(&WHO, &number(0))).unwrap();
    let (out, mut numbers) = session.bidi_streaming(&STAY);
    world.wait(numbers.next()).unwrap();
    let drain = world.drain(0, SECOND);
    let refused = session.client_streaming(&SUM);
    let error = world.wait(refused.finish()).unwrap_err();
    let reasons = [REFUSED, CallError::NotExecuted(Cause::Connect(ConnectError::Draining))];
    assert!(reasons.contains(&error), "{error:?}");
    drop((out, numbers));
    assert_eq!(drained(&world, drain).0, 0);
}

#[test]
fn a_client_that_does_not_run_delays_the_end_by_half_a_second() {
    let world = World::new(1);
    let channel = channel(&world);
    let now = world.now();
    let drain = world.drain(0, 60 * SECOND);
    let end = world.run_server_alone(0, &drain);
    assert!((450 * MS..600 * MS).contains(&(end - now)), "{:?}", end - now);
    drop(channel);
}
