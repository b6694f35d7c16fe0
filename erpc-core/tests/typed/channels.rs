//! Channels: balancing, servers that stop and restart, waiting, retries.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use erpc_core::calling::{CallOptions, RetryPolicy};
use erpc_core::client::{Balance, Call, Channel, ChannelBuilder, Lookup, Resolver};
use erpc_core::endpoint::{Census, Endpoint};
use erpc_core::protocol::{CallError, Cause, ConnectError, RejectReason};
use erpc_core::server::Server;
use erpc_core::service::Metadata;
use erpc_core::status::Code;
use erpc_core::transport::mem::{MemRoute, MemTransport};
use proptest::prelude::*;

use crate::support::{DOUBLE, Math, Number, number};
use crate::world::{HELD, TELL, WHO, WHO_AGAIN, World};

const MS: Duration = Duration::from_millis(1);

fn to_all(world: &World) -> ChannelBuilder<MemTransport> {
    Channel::to(&world.client, world.routes())
}

fn who(channel: &Channel<MemTransport>) -> Call<Number, MemTransport> {
    channel.call(&WHO, &number(0))
}

/// Number of open sessions by server.
fn open(channel: &Channel<MemTransport>) -> Vec<usize> {
    channel.backends().iter().map(|backend| backend.sessions).collect()
}

fn connected(world: &World, builder: ChannelBuilder<MemTransport>) -> Channel<MemTransport> {
    let channel = builder.build();
    world.finish(who(&channel)).unwrap();
    world.run_until(|| open(&channel).iter().all(|sessions| *sessions > 0));
    channel
}

fn handled(world: &World) -> Vec<u64> {
    world.behaviours.iter().map(|server| server.handled()).collect()
}

/// The cause in the error of a call for which no server was reached.
#[track_caller]
fn no_server(failed: Result<u64, CallError>) -> Cause {
    match failed {
        Err(CallError::NoServer(why)) => why.cause(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn nothing_is_connected_before_the_first_call() {
    let world = World::new(2);
    let channel = to_all(&world).sessions(3).build();
    world.run_for(100 * MS);
    assert_eq!((world.sessions(0), channel.backends().len()), (0, 0));
    world.finish(who(&channel)).unwrap();
    world.run_until(|| open(&channel) == [3, 3]);
    assert_eq!((world.sessions(0), world.sessions(1)), (3, 3));
    drop(channel);
    world.run_until(|| world.sessions(0) + world.sessions(1) == 0);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn calls_are_spread_evenly(
        servers in 1..8u64,
        sessions in 1..3usize,
        calls in 1..200u64,
        balance in prop::sample::select(vec![
            Balance::RoundRobin, Balance::LeastOutstanding, Balance::TwoChoices,
        ]),
    ) {
        let world = World::new(servers);
        let channel = connected(&world, to_all(&world).balance(balance).sessions(sessions));
        let before = handled(&world);
        // All calls are made before the first is answered.
        let calls: Vec<_> = (0..calls).map(|_| who(&channel)).collect();
        let loads: Vec<u32> = channel.backends().iter().map(|backend| backend.calls).collect();
        for call in calls {
            world.finish(call).unwrap();
        }
        let got: Vec<u64> =
            handled(&world).iter().zip(&before).map(|(now, before)| now - before).collect();
        let spread = got.iter().max().unwrap() - got.iter().min().unwrap();
        prop_assert!(spread <= if balance == Balance::TwoChoices { 8 } else { 1 }, "{:?}", got);
        prop_assert_eq!(loads.iter().map(|load| u64::from(*load)).collect::<Vec<_>>(), got);
        prop_assert!(channel.backends().iter().all(|backend| backend.calls == 0));
    }
}

#[test]
fn a_slow_server_gets_no_call_while_others_are_idle() {
    let world = World::new(3);
    let channel = connected(&world, to_all(&world).balance(Balance::LeastOutstanding));
    let held: Vec<_> = (0..3).map(|_| channel.call(&HELD, &number(0))).collect();
    world.run_until(|| handled(&world).iter().sum::<u64>() == 4);
    world.behaviours[0].answer();
    world.behaviours[1].answer();
    world.run_until(|| held.iter().filter(|call| call.is_ready()).count() == 2);
    let before = world.behaviours[2].handled();
    for _ in 0..20 {
        assert_ne!(world.finish(who(&channel)), Ok(2), "server 2 has a call in progress");
    }
    assert_eq!(world.behaviours[2].handled(), before);
}

#[test]
fn a_stopped_server_is_skipped_until_it_is_back() {
    let world = World::new(3);
    let channel = connected(&world, to_all(&world));
    for round in 0..3 {
        world.stop(1);
        // The server has closed the session. After the turn in which the client learns this, the
        // server gets no more calls.
        world.run_until(|| open(&channel)[1] == 0);
        for _ in 0..10 {
            assert_ne!(world.finish(who(&channel)), Ok(1), "round {round}");
        }
        world.run_for(700 * MS);
        world.start(1);
        world.run_until(|| open(&channel)[1] == 1);
        let answers: Vec<_> = (0..6).map(|_| world.finish(who(&channel)).unwrap()).collect();
        assert_eq!(answers.iter().filter(|server| **server == 1).count(), 2, "{answers:?}");
        assert_eq!(channel.stats().reconnects, round + 1);
    }
}

#[test]
fn pauses_between_attempts_grow() {
    let world = World::asleep(1);
    world.start_deaf(0);
    let channel = to_all(&world).backoff(50 * MS, 400 * MS).build();
    let failed = world.finish(who(&channel));
    assert_eq!(no_server(failed), Cause::Connect(ConnectError::NotListening));
    let sent = || world.client.stats().unwrap().transport.tx_packets;
    // A refused attempt is one packet. The first pauses are 25 to 50, 50 to 100 and 100 to 200 ms.
    let begin = sent();
    world.run_for(400 * MS);
    assert!((2..=5).contains(&(sent() - begin)), "{} attempts in 0.4 s", sent() - begin);
    world.run_for(600 * MS);
    let begin = sent();
    world.run_for(10_000 * MS);
    assert!((24..=50).contains(&(sent() - begin)), "{} attempts in 10 s", sent() - begin);
}

#[test]
fn calls_fail_immediately_while_no_server_can_be_reached() {
    let world = World::asleep(2);
    let channel = to_all(&world).build();
    let unreachable = Cause::Connect(ConnectError::Timeout);
    // The first calls wait for the result of the channel's first attempt to connect.
    let first: Vec<_> = (0..3).map(|_| who(&channel)).collect();
    for call in first {
        assert_eq!(no_server(world.finish(call)), unreachable);
    }
    let asked = world.now();
    assert_eq!(no_server(world.finish(who(&channel))), unreachable);
    assert!(world.now() - asked < MS);
    world.run_for(3_000 * MS);
    let asked = world.now();
    assert_eq!(no_server(world.finish(who(&channel))), unreachable);
    assert!(world.now() - asked < MS, "calls also fail immediately during another attempt");
    world.start(0);
    world.run_until(|| open(&channel)[0] == 1);
    assert_eq!(world.finish(who(&channel)), Ok(0));
}

#[test]
fn a_wait_for_ready_call_waits_for_a_server_or_its_deadline() {
    let world = World::asleep(1);
    let channel = to_all(&world).options(CallOptions::new().wait_for_ready(true)).build();
    let patient: Vec<_> = (0..3).map(|_| who(&channel)).collect();
    let limited = channel.with(CallOptions::new().deadline(700 * MS));
    let asked = world.now();
    let late = world.finish(who(&limited));
    assert_eq!(late, Err(CallError::NotExecuted(Cause::DeadlineExceeded)));
    let took = world.now() - asked;
    assert!((700 * MS..701 * MS).contains(&took), "{took:?}");
    drop(who(&channel));
    world.start(0);
    for call in patient {
        assert_eq!(world.finish(call), Ok(0));
    }
    assert_eq!(world.behaviours[0].handled(), 3, "the dropped call was never sent");
}

#[test]
fn the_queue_of_waiting_calls_is_bounded() {
    let world = World::asleep(1);
    let channel = to_all(&world).queue_limit(2).build();
    let (_first, second) = (who(&channel), who(&channel));
    let third = who(&channel);
    assert!(third.is_ready());
    assert_eq!(world.finish(third), Err(CallError::Rejected(RejectReason::QueueFull)));
    drop(second);
    assert!(!who(&channel).is_ready(), "a dropped call leaves the queue");
}

#[test]
fn callbacks_wait_and_fail_like_futures() {
    let world = World::asleep(1);
    let channel = to_all(&world).build();
    let results = Rc::new(RefCell::new(Vec::new()));
    let call = |channel: &Channel<MemTransport>| {
        let results = Rc::clone(&results);
        channel.call_with(&WHO, &number(0), move |result| results.borrow_mut().push(result));
    };
    call(&channel);
    world.run_until(|| results.borrow().len() == 1);
    call(&channel);
    assert_eq!(results.borrow().len(), 1, "a callback does not run within `call_with`");
    world.run_until(|| results.borrow().len() == 2);
    call(&channel.with(CallOptions::new().wait_for_ready(true)));
    // A queued call keeps the channel alive.
    drop(channel);
    world.start(0);
    world.run_until(|| results.borrow().len() == 3);
    assert_eq!(results.borrow()[2], Ok(number(0)));
    assert!(matches!(results.borrow()[..2], [Err(CallError::NoServer(_)), Err(_)]));
    world.run_until(|| world.sessions(0) == 0);
}

fn retrying(attempts: u32) -> CallOptions {
    CallOptions::new().retry(RetryPolicy::new(attempts).budget(0.0, 1))
}

#[test]
fn an_idempotent_call_is_retried_on_another_server() {
    let world = World::new(2);
    let channel = connected(&world, to_all(&world)).with(retrying(3));
    let before: u64 = handled(&world).iter().sum();
    for server in &world.behaviours {
        server.unavailable.store(1, Ordering::Relaxed);
    }
    assert!(world.finish(channel.call(&WHO_AGAIN, &number(0))).is_ok());
    assert_eq!(
        handled(&world).iter().sum::<u64>() - before,
        3,
        "each server failed once, then one answered"
    );
}

#[test]
fn a_call_that_is_not_idempotent_is_not_retried() {
    let world = World::new(2);
    let channel = connected(&world, to_all(&world));
    world.behaviours.iter().for_each(|server| server.unavailable.store(9, Ordering::Relaxed));
    for channel in [channel.with(retrying(3)), channel] {
        let before: u64 = handled(&world).iter().sum();
        match world.finish(who(&channel)) {
            Err(CallError::Status(status)) => assert_eq!(status.code(), Code::Unavailable),
            other => panic!("{other:?}"),
        }
        assert_eq!(handled(&world).iter().sum::<u64>() - before, 1);
    }
}

#[test]
fn retries_have_a_budget() {
    let world = World::new(1);
    // A new budget holds as many retries as it gains in 10 s, here 10. It gains a few more during
    // the test.
    let channel = connected(&world, to_all(&world)).with(retrying(2));
    world.behaviours[0].unavailable.store(10_000, Ordering::Relaxed);
    let before = world.behaviours[0].handled();
    for _ in 0..100 {
        assert!(world.finish(channel.call(&WHO_AGAIN, &number(0))).is_err());
    }
    let retries = world.behaviours[0].handled() - before - 100;
    assert!((10..=12).contains(&retries), "{retries} of 100 calls were retried");
    let stats = channel.stats();
    assert_eq!((stats.retries, stats.retries_refused), (retries, 100 - retries));
}

#[test]
fn a_call_whose_server_dies_goes_to_another() {
    let world = World::new(2);
    let channel = connected(&world, to_all(&world)).with(retrying(3));
    let before = handled(&world);
    let call = channel.call(&HELD, &number(0));
    world.run_until(|| handled(&world) != before);
    let first = usize::from(handled(&world)[1] != before[1]);
    world.stop(first);
    let other = 1 - first;
    world.run_until(|| world.behaviours[other].answer() == 1);
    assert_eq!(world.finish(call), Ok(other as u64));
}

#[test]
fn a_call_that_may_have_run_is_never_reported_as_not_executed() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world)).with(retrying(3));
    let before = handled(&world);
    let call = channel.call(&HELD, &number(0));
    world.run_until(|| handled(&world) != before);
    world.stop(0);
    let failed = world.finish(call);
    assert!(matches!(failed, Err(CallError::MaybeExecuted(_))), "{failed:?}");
}

#[test]
fn also_unexecuted_retries_calls_that_are_not_idempotent() {
    let world = World::asleep(1);
    let policy = RetryPolicy::new(20).backoff(40 * MS).also_unexecuted();
    let channel = to_all(&world).options(CallOptions::new().retry(policy)).build();
    let call = who(&channel);
    world.run_for(300 * MS);
    assert!(!call.is_ready());
    world.start(0);
    assert_eq!(world.finish(call), Ok(0));
}

#[test]
fn a_dropped_call_is_not_retried() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world)).with(retrying(9));
    world.behaviours[0].unavailable.store(1, Ordering::Relaxed);
    let before = world.behaviours[0].handled();
    let call = channel.call(&WHO_AGAIN, &number(0));
    world.run_until(|| world.behaviours[0].handled() > before);
    drop(call);
    world.run_for(2_000 * MS);
    assert_eq!(world.behaviours[0].handled(), before + 1);
}

#[test]
fn a_deadline_ends_a_call_and_its_retries() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    let limited = channel.with(CallOptions::new().deadline(20 * MS));
    let asked = world.now();
    let late = world.finish(limited.call(&HELD, &number(0)));
    assert_eq!(late, Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
    let took = world.now() - asked;
    assert!((20 * MS..21 * MS).contains(&took), "{took:?}");
    assert_eq!(channel.backends()[0].calls, 0);

    world.behaviours[0].unavailable.store(99, Ordering::Relaxed);
    let policy = RetryPolicy::new(99).backoff(4 * MS);
    let asked = world.now();
    let failed =
        world.finish(limited.with(CallOptions::new().retry(policy)).call(&WHO_AGAIN, &number(0)));
    assert!(matches!(failed, Err(CallError::Status(_))), "{failed:?}");
    assert!(world.now() - asked <= 20 * MS);
    let tries = 99 - world.behaviours[0].unavailable.load(Ordering::Relaxed);
    assert!((2..=4).contains(&tries), "{tries}");
}

#[test]
fn a_deadline_of_the_caller_replaces_the_deadline_of_the_method() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    let quick = HELD.deadline(5 * MS);
    let expect = |call: Call<Number, MemTransport>, time: Duration| {
        let asked = world.now();
        let late = world.finish(call);
        assert_eq!(late, Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
        assert!((time..time + MS).contains(&(world.now() - asked)));
    };
    expect(channel.call(&quick, &number(0)), 5 * MS);
    let session = world.client.open(World::route(0));
    world.run_until(|| session.is_open());
    expect(session.call(&quick, &number(0)), 5 * MS);
    expect(Channel::from(session).call(&quick, &number(0)), 5 * MS);
    let own = channel.with(CallOptions::new().deadline(9 * MS));
    expect(own.call(&quick, &number(0)), 9 * MS);
    expect(own.call(&HELD, &number(0)), 9 * MS);
    let patient = own.with(CallOptions::new().no_deadline()).call(&quick, &number(0));
    world.run_for(100 * MS);
    world.behaviours[0].answer();
    assert_eq!(world.finish(patient), Ok(0));
}

#[test]
fn metadata_travels_both_ways_and_survives_a_retry() {
    let world = World::new(2);
    let channel = connected(&world, to_all(&world)).with(retrying(3));
    let mut metadata = Metadata::new();
    metadata.insert("trace", b"t-17").unwrap();
    let traced =
        channel.with(CallOptions::new().metadata(metadata).deadline(Duration::from_secs(1)));
    world.behaviours.iter().for_each(|server| server.unavailable.store(1, Ordering::Relaxed));
    let (reply, back) = world.wait(traced.call(&TELL, &number(0)).with_metadata()).unwrap();
    assert!(reply.value < 2);
    assert_eq!(back.get("trace"), Some(&b"t-17"[..]));
    let left = u64::from_le_bytes(back.get("time-left").unwrap().try_into().unwrap());
    assert!((990_000..=1_000_000).contains(&left), "{left} us were left after two retries");
    // A caller that does not ask for metadata gets only the message.
    assert!(world.finish(traced.call(&TELL, &number(0))).is_ok());
    let got = Rc::new(RefCell::new(None));
    let set = Rc::clone(&got);
    traced.call_with(&TELL, &number(0), move |reply| *set.borrow_mut() = Some(reply));
    world.run_until(|| got.borrow().is_some());
    assert!(got.take().unwrap().is_ok());
    let (_, none) = world.wait(who(&channel).with_metadata()).unwrap();
    assert!(none.is_empty());
}

#[test]
fn a_dropped_call_is_not_sent_or_is_cancelled_at_the_server() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    let before = world.behaviours[0].handled();
    drop(who(&channel));
    world.run_for(100 * MS);
    assert_eq!(world.behaviours[0].handled(), before, "the dropped call was not sent");
    let calls: Vec<_> = (0..12).map(|_| channel.call(&HELD, &number(0))).collect();
    world.run_until(|| world.behaviours[0].handled() == before + 8);
    drop(calls);
    world.run_for(100 * MS);
    assert_eq!(world.behaviours[0].handled(), before + 8, "the four queued calls were not sent");
    assert_eq!(channel.backends()[0].calls, 0);
    // The server's answers to the cancelled calls free their slots.
    assert_eq!(world.behaviours[0].answer(), 8);
    assert_eq!(world.finish(who(&channel)), Ok(0));
}

#[test]
fn a_request_larger_than_its_method_allows_is_rejected() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    let small = WHO.max_request(10);
    let large = Number { value: 1, ballast: vec![0; 20] };
    let refused = world.finish(channel.call(&small, &large));
    let reason = RejectReason::TooLarge { size: 24, limit: 10 };
    assert_eq!(refused, Err(CallError::Rejected(reason)));
    assert_eq!(world.finish(channel.call(&small, &number(3))), Ok(0));
}

#[test]
fn waiting_calls_end_with_their_endpoint() {
    let world = World::asleep(1);
    let channel = to_all(&world).build();
    let patient = channel.with(CallOptions::new().wait_for_ready(true)).call(&WHO, &number(0));
    let pausing = channel
        .with(CallOptions::new().retry(RetryPolicy::new(9).backoff(500 * MS)))
        .call(&WHO_AGAIN, &number(0));
    let heard = Rc::new(RefCell::new(None));
    let set = Rc::clone(&heard);
    channel
        .with(CallOptions::new().wait_for_ready(true).deadline(Duration::from_secs(9)))
        .call_with(&WHO, &number(0), move |reply| *set.borrow_mut() = Some(reply));
    world.run_for(300 * MS);
    assert!(!patient.is_ready() && !pausing.is_ready() && heard.borrow().is_none());
    world.client.shutdown();
    let gone = Err(CallError::NotExecuted(Cause::Shutdown));
    assert_eq!(world.wait(patient).map(|reply| reply.value), gone);
    assert_eq!(world.wait(pausing).map(|reply| reply.value), gone);
    assert_eq!(heard.take().unwrap().map(|reply| reply.value), gone);
    assert_eq!(world.finish(who(&channel)), gone, "later calls fail immediately");
    assert_eq!(world.finish(who(&to_all(&world).build())), gone);
}

#[test]
fn a_session_is_a_channel() {
    let world = World::new(1);
    let session = world.client.open(World::route(0));
    let channel = Channel::from(session.clone()).with(retrying(3));
    world.wait(channel.ready()).unwrap();
    world.behaviours[0].unavailable.store(2, Ordering::Relaxed);
    assert_eq!(world.finish(channel.call(&WHO_AGAIN, &number(0))), Ok(0));
    assert_eq!(world.behaviours[0].handled(), 3);
    assert_eq!(channel.backends()[0].peer, World::route(0));
    world.stop(0);
    world.run_until(|| !session.is_open());
    // A channel over a session never opens another session.
    let closed = Err(CallError::NotExecuted(Cause::PeerClosed));
    assert_eq!(world.finish(channel.call(&WHO_AGAIN, &number(0))), closed);
    assert!(world.wait(channel.ready()).is_err());
}

/// A resolver that returns the servers in a list and counts the queries.
#[derive(Clone, Default)]
struct List(Rc<RefCell<(Vec<MemRoute>, u32)>>);

impl List {
    fn set(&self, servers: &[usize]) {
        self.0.borrow_mut().0 = servers.iter().map(|index| World::route(*index)).collect();
    }

    fn questions(&self) -> u32 {
        self.0.borrow().1
    }
}

impl Resolver<MemRoute> for List {
    async fn resolve(&mut self) -> io::Result<Vec<MemRoute>> {
        let mut list = self.0.borrow_mut();
        list.1 += 1;
        if list.0.is_empty() { Err(io::ErrorKind::NotFound.into()) } else { Ok(list.0.clone()) }
    }
}

#[test]
fn a_channel_follows_the_answers_of_its_resolver() {
    let world = World::new(3);
    let list = List::default();
    list.set(&[0, 1]);
    let channel =
        connected(&world, Channel::to(&world.client, list.clone()).resolve_pause(300 * MS));
    let call = channel.call(&HELD, &number(0));
    world.run_until(|| handled(&world).iter().sum::<u64>() == 2);
    list.set(&[1, 2]);
    world.run_for(2_000 * MS);
    assert_eq!(list.questions(), 1, "an answer is valid until something fails");
    world.stop(1);
    let is_new = |channel: &Channel<_>| channel.backends()[1].peer == World::route(2);
    world.run_until(|| is_new(&channel) && open(&channel)[1] == 1);
    // The session to the server that is no longer listed ends after its call.
    if world.behaviours[0].answer() == 1 {
        assert_eq!(world.finish(call), Ok(0));
    }
    world.run_until(|| world.sessions(0) == 0);
    for _ in 0..4 {
        assert_eq!(world.finish(who(&channel)), Ok(2));
    }
    let asked = list.questions();
    world.run_for(3_000 * MS);
    assert!(list.questions() - asked <= 10, "queries keep the resolve pause");
}

#[test]
fn a_resolver_without_an_answer_is_asked_again() {
    let world = World::new(1);
    let list = List::default();
    let channel = Channel::to(&world.client, list.clone()).build();
    let failed = world.finish(who(&channel));
    assert_eq!(no_server(failed), Cause::Unresolved);
    let patient = channel.with(CallOptions::new().wait_for_ready(true)).call(&WHO, &number(0));
    world.run_for(5_000 * MS);
    assert!((4..=7).contains(&list.questions()), "{}", list.questions());
    list.set(&[0]);
    assert_eq!(world.finish(patient), Ok(0));
}

#[test]
fn calls_to_many_servers_are_sent_in_one_turn() {
    let world = World::new(8);
    let channel = connected(&world, to_all(&world));
    let before = handled(&world);
    let calls: Vec<_> = (0..8).map(|_| who(&channel)).collect();
    let all = world.client.spawn(erpc_core::executor::join_all(calls));
    // All requests are sent and handled in this one turn.
    world.turn();
    let got: Vec<u64> = handled(&world).iter().zip(&before).map(|(now, was)| now - was).collect();
    assert_eq!(got, [1; 8]);
    world.run_until(|| all.is_finished());
}

#[test]
fn a_channel_over_udp_reconnects_to_its_server() {
    let start = |address: &str| Server::builder().add_service(Math::default()).spawn(address);
    let server = start("127.0.0.1:0").unwrap();
    let address = server.local_addr();
    let endpoint = Endpoint::udp().unwrap();
    let channel = Channel::to(&endpoint, Lookup::new(address.to_string()))
        .options(CallOptions::new().wait_for_ready(true))
        .build();
    endpoint.block_on(channel.ready()).unwrap();
    assert_eq!(endpoint.block_on(channel.call(&DOUBLE, &number(4))), Ok(number(8)));
    server.shutdown();
    while channel.backends()[0].sessions == 1 {
        endpoint.run_once();
    }
    let call = channel.call(&DOUBLE, &number(5));
    let _server = start(&address.to_string()).unwrap();
    assert_eq!(endpoint.block_on(call), Ok(number(10)));
    let unknown = Channel::to(&endpoint, Lookup::new("no such name:1")).build();
    let error = endpoint.block_on(unknown.ready()).unwrap_err();
    assert!(error.to_string().contains("look up"), "{error}");
}

#[test]
fn a_call_that_was_dropped_costs_no_retry() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    let before = world.behaviours[0].handled();
    let dropped = Rc::new(RefCell::new(None));
    let drops = Rc::clone(&dropped);
    // Both calls fail in the same turn. The first one's user then drops the second call.
    channel.call_with(&HELD, &number(0), move |_| drop(drops.take()));
    *dropped.borrow_mut() = Some(channel.with(retrying(9)).call(&HELD, &number(0)));
    world.run_until(|| world.behaviours[0].handled() == before + 2);
    world.stop(0);
    world.run_until(|| dropped.borrow().is_none());
    world.run_for(100 * MS);
    let stats = channel.stats();
    assert_eq!((stats.retries, stats.retries_refused), (0, 0));
}

#[test]
fn a_retry_avoids_the_server_of_the_attempt_before() {
    let world = World::new(2);
    let balance = Balance::LeastOutstanding;
    let channel = connected(&world, to_all(&world).balance(balance)).with(retrying(2));
    let before = handled(&world);
    let held = channel.call(&HELD, &number(0));
    world.run_until(|| handled(&world) != before);
    let busy = usize::from(handled(&world)[1] != before[1]);
    // The idle server has the least calls, for the first attempt and for the second.
    world.behaviours[1 - busy].unavailable.store(9, Ordering::Relaxed);
    assert_eq!(world.finish(channel.call(&WHO_AGAIN, &number(0))), Ok(busy as u64));
    drop(held);
}

#[test]
fn a_channel_ends_although_a_server_cannot_be_reached() {
    let world = World::asleep(2);
    world.start(0);
    // While some sessions to server 1 are tried, others always pause.
    let channel = to_all(&world).sessions(3).backoff(400 * MS, 2_000 * MS).build();
    assert_eq!(world.finish(who(&channel)), Ok(0));
    world.run_for(5_000 * MS);
    drop(channel);
    world.run_for(100 * MS);
    assert_eq!(world.sessions(0), 0, "the sessions are closed");
    assert_eq!(Census::of(&world.client), Census::default());
}

#[test]
fn a_call_that_is_dropped_in_its_backoff_leaves_no_timer() {
    let world = World::new(1);
    let policy = RetryPolicy::new(2).backoff(400 * MS);
    let channel = connected(&world, to_all(&world));
    world.behaviours[0].unavailable.store(1, Ordering::Relaxed);
    let retried = channel.with(CallOptions::new().retry(policy));
    let call = retried.call(&WHO_AGAIN, &number(0));
    world.run_until(|| channel.stats().retries == 1);
    drop(call);
    world.stop(0);
    world.run_until(|| open(&channel) == [0]);
    // This call has the key of the dropped one. It waits in the line, where a timer is a deadline.
    let waits = channel.with(CallOptions::new().wait_for_ready(true));
    let patient = waits.call(&WHO, &number(0));
    world.run_for(1_000 * MS);
    assert!(!patient.is_ready());
    world.start(0);
    assert_eq!(world.finish(patient), Ok(0));
}

#[test]
fn a_call_that_is_retried_on_another_server_ends_at_its_deadline() {
    let world = World::new(2);
    let channel = connected(&world, to_all(&world)).with(retrying(3).deadline(300 * MS));
    let (before, asked) = (handled(&world), world.now());
    let call = channel.call(&HELD, &number(0));
    world.run_until(|| handled(&world) != before);
    world.stop(usize::from(handled(&world)[1] != before[1]));
    assert_eq!(world.finish(call), Err(CallError::MaybeExecuted(Cause::DeadlineExceeded)));
    let took = world.now() - asked;
    assert!((300 * MS..301 * MS).contains(&took), "{took:?}");
    assert_eq!(channel.stats().retries, 1);
}

#[test]
fn only_first_attempts_earn_retries() {
    let world = World::new(1);
    let policy = RetryPolicy::new(3).budget(0.5, 0);
    let channel = connected(&world, to_all(&world)).with(CallOptions::new().retry(policy));
    world.behaviours[0].unavailable.store(10_000, Ordering::Relaxed);
    for _ in 0..100 {
        assert!(world.finish(channel.call(&WHO_AGAIN, &number(0))).is_err());
    }
    assert_eq!(channel.stats().retries, 50);
}

#[test]
fn the_pauses_begin_anew_after_a_session_was_open() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    for (outage, limit) in [(20_000 * MS, 5_500 * MS), (150 * MS, 250 * MS)] {
        // A session that ends earlier than this is not reopened immediately.
        world.run_for(50 * MS);
        world.stop(0);
        world.run_for(outage);
        world.start(0);
        let began = world.now();
        world.run_until(|| open(&channel) == [1]);
        let took = world.now() - began;
        assert!(took < limit, "reopened {took:?} after an outage of {outage:?}");
    }
}

#[test]
fn calls_wait_while_a_lost_session_is_reopened() {
    let world = World::new(1);
    let channel = connected(&world, to_all(&world));
    world.run_for(50 * MS);
    world.stop(0);
    world.run_until(|| open(&channel) == [0]);
    world.start(0);
    assert_eq!(world.finish(who(&channel)), Ok(0));
}

/// A resolver whose answers take time.
struct Slow(List, Endpoint<MemTransport>);

impl Resolver<MemRoute> for Slow {
    async fn resolve(&mut self) -> io::Result<Vec<MemRoute>> {
        let found = self.0.resolve().await;
        self.1.sleep(200 * MS).await;
        found
    }
}

#[test]
fn a_failure_during_a_query_leads_to_another() {
    let world = World::new(2);
    let list = List::default();
    list.set(&[0]);
    let resolver = Slow(list.clone(), world.client.clone());
    let builder = Channel::to(&world.client, resolver).resolve_pause(300 * MS);
    let channel = connected(&world, builder.backoff(10_000 * MS, 10_000 * MS));
    world.run_for(11_000 * MS);
    assert_eq!(list.questions(), 1);
    // The end of the session leads to the second query, whose answer is the old one.
    world.stop(0);
    world.run_until(|| list.questions() == 2);
    list.set(&[1]);
    // The session cannot be reopened, which is known before the answer. The next attempt is later.
    let patient = channel.with(CallOptions::new().wait_for_ready(true));
    let asked = world.now();
    assert_eq!(world.finish(patient.call(&WHO, &number(0))), Ok(1));
    assert!(world.now() - asked < 2_000 * MS, "{:?}", world.now() - asked);
    world.client.shutdown();
}

#[test]
fn attempts_to_connect_leave_nothing() {
    let world = World::asleep(1);
    world.start_deaf(0);
    let channel = to_all(&world).build();
    assert!(world.finish(who(&channel)).is_err());
    world.run_for(2_000 * MS);
    assert!(Census::of(&world.client).links <= 1, "one attempt is made at a time");
    drop(channel);
    world.run_for(2_000 * MS);
    assert_eq!(Census::of(&world.client), Census::default());
}
