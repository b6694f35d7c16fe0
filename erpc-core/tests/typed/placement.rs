//! Streams of channels: choice of the server, waiting for a server, and cleanup.

use std::cell::RefCell;
use std::io;
use std::rc::Rc;
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::{Balance, Channel, Resolver};
use erpc_core::service::{Incoming, Outgoing};
use erpc_core::transport::mem::{MemRoute, MemTransport};

use crate::support::{Number, number};
use crate::world::{HELD, STAY, World};

type Stream = (Outgoing<Number>, Incoming<Number>);

/// Opens a stream. Returns it with the index of its server.
fn begun(world: &World, channel: &Channel<MemTransport>) -> (u64, Stream) {
    let (out, mut numbers) = channel.bidi_streaming(&STAY);
    let server = world.wait(numbers.next()).unwrap().unwrap();
    (server.value, (out, numbers))
}

/// The load of each server as the channel counts it.
fn loads(channel: &Channel<MemTransport>) -> Vec<u32> {
    channel.backends().iter().map(|backend| backend.calls).collect()
}

/// A resolver that returns the current list. The test holds the list too, and its reference count
/// tells whether the resolver still exists.
struct List(Rc<RefCell<Vec<MemRoute>>>);

impl List {
    fn of(routes: Vec<MemRoute>) -> (Self, Rc<RefCell<Vec<MemRoute>>>) {
        let list = Rc::new(RefCell::new(routes));
        (Self(Rc::clone(&list)), list)
    }
}

impl Resolver<MemRoute> for List {
    fn resolve(&mut self) -> impl Future<Output = io::Result<Vec<MemRoute>>> {
        std::future::ready(Ok(self.0.borrow().clone()))
    }

    fn good_for(&self) -> Option<Duration> {
        Some(Duration::from_millis(10))
    }
}

#[test]
fn streams_count_as_load_of_their_servers() {
    let world = World::new(2);
    let channel =
        Channel::to(&world.client, world.routes()).balance(Balance::LeastOutstanding).build();
    world.wait(channel.ready()).unwrap();
    world.run_until(|| channel.backends().iter().all(|backend| backend.sessions > 0));
    let mut streams: Vec<_> = (0..10).map(|_| begun(&world, &channel)).collect();
    assert_eq!(loads(&channel), [5, 5]);
    // Server 1 has less load now, so new calls go there.
    streams.retain(|(server, _)| *server == 0);
    world.run_until(|| loads(&channel) == [5, 0]);
    let calls: Vec<_> = (0..4).map(|_| channel.call(&HELD, &number(0))).collect();
    assert_eq!(loads(&channel), [5, 4]);
    assert_eq!(begun(&world, &channel).0, 1);
    drop((streams, calls));
    world.run_until(|| loads(&channel) == [0, 0]);
}

#[test]
fn streams_count_as_load_of_a_channel_over_a_session() {
    let world = World::new(1);
    let session = world.wait(world.client.connect_async(World::route(0))).unwrap();
    let channel = Channel::from(session);
    let (_, stream) = begun(&world, &channel);
    assert_eq!(loads(&channel), [1]);
    drop(stream);
    world.run_until(|| loads(&channel) == [0]);
}

#[test]
fn stream_sessions_close_when_the_resolver_removes_their_server() {
    let world = World::new(2);
    let (resolver, list) = List::of(vec![World::route(0)]);
    let channel = Channel::to(&world.client, resolver).build();
    let (idle, running) = (begun(&world, &channel), begun(&world, &channel));
    drop(idle);
    *list.borrow_mut() = vec![World::route(1)];
    world.run_until(|| channel.backends()[0].peer == World::route(1));
    // The running stream continues, and its session closes when the stream ends.
    world.run_until(|| world.sessions(0) == 1);
    let (_, (out, mut numbers)) = running;
    drop(out);
    assert_eq!(world.wait(numbers.next()), Ok(None));
    drop(numbers);
    world.run_until(|| world.sessions(0) == 0);
    assert_eq!(begun(&world, &channel).0, 1);
}

#[test]
fn a_waiting_stream_releases_its_channel_when_it_is_dropped() {
    let world = World::new(1);
    let unserved = MemRoute::new(77);
    for waited in [Duration::from_millis(1), Duration::from_secs(2)] {
        let (resolver, list) = List::of(vec![unserved]);
        let channel = Channel::to(&world.client, resolver)
            .options(CallOptions::new().wait_for_ready(true))
            .build();
        let stream = channel.bidi_streaming(&STAY);
        world.run_for(waited);
        drop(channel);
        world.run_for(waited);
        assert_eq!(Rc::strong_count(&list), 2, "the stream looks for a server");
        drop(stream);
        world.run_until(|| Rc::strong_count(&list) == 1);
    }
}

#[test]
fn a_waiting_stream_outlives_the_last_handle_of_its_channel() {
    let world = World::asleep(1);
    let channel = Channel::to(&world.client, world.routes())
        .options(CallOptions::new().wait_for_ready(true))
        .build();
    let (_out, mut numbers) = channel.bidi_streaming(&STAY);
    world.run_for(Duration::from_secs(1));
    drop(channel);
    world.start(0);
    assert_eq!(world.wait(numbers.next()), Ok(Some(number(0))));
}
