use std::cell::Cell;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use super::{VirtualNetwork, VirtualRoute, VirtualServer, VirtualTransport};
use crate::calling::CallOptions;
use crate::client::{Channel, Session};
use crate::endpoint::{Endpoint, sleep};
use crate::event_loop::EndpointStats;
use crate::protocol::{CallError, Cause, EndpointConfig};
use crate::service::{Method, MethodCollision, Mode, Outgoing, Request, Response, Routes, Service};
use crate::status::{Code, Status};
use crate::transport::fault::{FaultCounts, Faults, Outage};
use crate::transport::{MAX_BURST, NetworkError, RxQueue, Transport, TxQueue};

const ADD: Method<u64, u64> = Method::new("test.v1.Sums/Add");
const GRIND: Method<u64, u64> = Method::new("test.v1.Sums/Grind");
const NAP: Method<u64, u64> = Method::new("test.v1.Sums/Nap");
const COUNT: Method<u64, u64> = Method::new("test.v1.Sums/Count");

/// Adds numbers up.
#[derive(Default)]
struct Sums {
    sum: Arc<AtomicU64>,
    calls: Arc<AtomicU64>,
}

impl Sums {
    fn add(&self, request: Request<'_, u64>) -> Result<Response<u64>, Status> {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(self.sum.fetch_add(*request.message(), Ordering::Relaxed)))
    }

    /// Waits for a number of milliseconds. The response is the time left until the deadline, in us.
    async fn nap(&self, request: Request<'_, u64>) -> Result<Response<u64>, Status> {
        sleep(ms(*request.message())).await;
        let left = request.time_left().map_or(0, |left| left.as_micros() as u64);
        Ok(Response::new(left))
    }

    async fn count(&self, request: Request<'_, u64>, out: Outgoing<u64>) -> Result<(), Status> {
        for number in 0..*request.message() {
            out.send(&number).await?;
        }
        Ok(())
    }
}

impl Service for Sums {
    const NAME: &'static str = "test.v1.Sums";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(ADD, Mode::Dispatch, &self, Self::add)?;
        routes.unary(GRIND, Mode::Worker, &self, Self::add)?;
        routes.unary_async(NAP, &self, async |sums: &Self, request| sums.nap(request).await)?;
        let count =
            async |sums: &Self, request: Request<'_, u64>, out| sums.count(request, out).await;
        routes.server_streaming(COUNT, &self, count)
    }
}

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

type Client = (Endpoint<VirtualTransport>, Session<VirtualTransport>);

/// A network with a server and a client.
fn pair(seed: u64) -> (VirtualNetwork, VirtualServer, Client) {
    let network = VirtualNetwork::new(seed);
    let server = network.serve(Sums::default());
    let client = connect(&network, server.route());
    (network, server, client)
}

fn connect(network: &VirtualNetwork, server: VirtualRoute) -> Client {
    let endpoint = network.endpoint();
    let session = endpoint.connect(server).expect("the server answers");
    (endpoint, session)
}

/// Makes calls through the faults, and checks that each is executed once.
fn work(seed: u64, faults: Faults) -> (Duration, FaultCounts, EndpointStats) {
    let network = VirtualNetwork::new(seed);
    network.set_faults(faults);
    let sums = Sums::default();
    let calls = Arc::clone(&sums.calls);
    let server = network.serve(sums);
    let (client, session) = connect(&network, server.route());
    client.block_on(async {
        for number in 0..300 {
            let (one, other) = (session.call(&ADD, &number), session.call(&ADD, &number));
            assert!(one.await.is_ok() && other.await.is_ok(), "call {number}");
        }
    });
    assert_eq!(calls.load(Ordering::Relaxed), 600);
    (network.elapsed(), network.fault_counts(), client.stats().expect("outside of the loop"))
}

#[test]
fn a_seed_determines_a_run() {
    let faults = || Faults::none().drop(0.1).duplicate(0.1, 3, ms(5)).reorder(0.2, ms(1));
    let first = work(1, faults());
    assert_eq!(work(1, faults()), first);
    assert_ne!(work(2, faults()).0, first.0);
}

#[test]
fn each_fault_acts_and_calls_survive_it() {
    type Acted = fn(FaultCounts) -> u64;
    let over = Outage { from: ms(1), until: ms(900), over: 0 };
    let rows: [(Faults, Acted); 8] = [
        (Faults::none().drop(0.2), |counts| counts.dropped),
        (Faults::none().bursts(0.02, 5.0, 0.9), |counts| counts.burst_dropped),
        (Faults::none().duplicate(0.3, 5, ms(20)), |counts| counts.duplicated),
        (Faults::none().reorder(0.3, ms(2)), |counts| counts.reordered),
        (Faults::none().spike(0.02, ms(700)), |counts| counts.spiked),
        (Faults::none().corrupt(0.1), |counts| counts.corrupted),
        (Faults::none().truncate(0.1).extend(0.1), |counts| counts.truncated.min(counts.extended)),
        (Faults::none().outage(over), |counts| counts.outage_dropped),
    ];
    for (faults, acted) in rows {
        let (_, counts, _) = work(3, faults.clone());
        assert!(acted(counts) > 0, "{faults:?} has not acted");
    }
    let (elapsed, counts, stats) = work(3, Faults::none());
    assert_eq!((counts, stats.protocol.retransmissions.packets()), (FaultCounts::default(), 0));
    // 301 round trips of two delays, and the turns.
    assert!((Duration::from_micros(301 * 50)..ms(20)).contains(&elapsed), "{elapsed:?}");
}

#[test]
fn the_delay_of_the_network_can_be_set() {
    let (network, _server, (client, session)) = pair(1);
    network.set_delay(ms(30));
    let begun = network.elapsed();
    assert_eq!(client.block_on(session.call(&ADD, &1)), Ok(0));
    assert!((ms(60)..ms(61)).contains(&(network.elapsed() - begun)));
}

#[test]
fn timers_and_deadlines_use_virtual_time() {
    let (network, _server, (client, session)) = pair(1);
    assert_eq!(client.block_on(session.call(&NAP, &(3_600_000))), Ok(0));
    assert!(network.elapsed() > Duration::from_secs(3_600));

    let channel = Channel::from(session.clone()).with(CallOptions::new().deadline(ms(100)));
    let left = client.block_on(channel.call(&NAP, &40)).expect("the handler has time");
    assert!((59_000..=60_000).contains(&left), "{left} us");
    let begun = network.elapsed();
    let late = client.block_on(channel.call(&NAP, &200)).expect_err("the deadline passes");
    assert_eq!(late.code(), Code::DeadlineExceeded);
    assert!((ms(99)..ms(101)).contains(&(network.elapsed() - begun)));

    let begun = network.elapsed();
    client.run_for(ms(7));
    assert_eq!(network.elapsed() - begun, ms(7));
}

#[test]
fn workers_and_streams_run_in_the_loop_of_the_server() {
    let (_network, _server, (client, session)) = pair(1);
    assert_eq!(client.block_on(session.call(&GRIND, &5)), Ok(0));
    assert_eq!(client.block_on(session.call(&ADD, &0)), Ok(5));
    let channel = Channel::from(session);
    let mut numbers = channel.server_streaming(&COUNT, &1_000);
    client.block_on(async {
        for expected in 0..1_000 {
            assert_eq!(numbers.next().await, Ok(Some(expected)));
        }
        assert_eq!(numbers.next().await, Ok(None));
    });
}

#[test]
fn a_killed_server_is_noticed_at_once_and_its_restart_is_used() {
    let (network, server, (client, _)) = pair(1);
    let channel = Channel::to(&client, vec![server.route()]).build();
    assert_eq!(client.block_on(channel.call(&ADD, &7)), Ok(0));
    let begun = network.elapsed();
    let call = channel.call(&NAP, &1_000_000);
    client.run_for(ms(1));
    server.kill();
    // The call waits for its handler, so no packet is refused before the next one is sent.
    let next = client.block_on(channel.call(&ADD, &1));
    let gone = Cause::Unreachable(NetworkError::NothingListens);
    assert_eq!(next, Err(CallError::MaybeExecuted(gone)));
    assert_eq!(client.block_on(call), Err(CallError::MaybeExecuted(gone)));
    assert!(network.elapsed() - begun < ms(100), "{:?}", network.elapsed() - begun);
    assert_eq!(server.requests(), 0);

    server.restart(Sums::default());
    let patient = channel.with(CallOptions::new().wait_for_ready(true));
    assert_eq!(client.block_on(patient.call(&ADD, &1)), Ok(0), "the new service starts at 0");
    assert_eq!(server.requests(), 1);
}

#[test]
fn a_server_that_is_cut_off_is_dead_after_the_liveness_timeout() {
    let (network, server, (client, session)) = pair(1);
    server.cut_off();
    let begun = network.elapsed();
    let lost = client.block_on(session.call(&ADD, &7));
    assert_eq!(lost, Err(CallError::MaybeExecuted(Cause::PeerDead)));
    let took = network.elapsed() - begun;
    assert!((Duration::from_secs(9)..Duration::from_secs(12)).contains(&took), "{took:?}");
    assert!(client.connect(server.route()).is_err());

    server.reconnect();
    let session = client.connect(server.route()).expect("the server answers again");
    assert_eq!(client.block_on(session.call(&ADD, &7)), Ok(0));
}

#[test]
fn a_drained_server_finishes_what_runs_and_refuses_the_rest() {
    let (_network, server, (client, session)) = pair(1);
    let running = session.call(&NAP, &50);
    client.run_for(ms(1));
    let drained = server.drain(ms(1_000));
    client.run_for(ms(1));
    let refused = client.block_on(session.call(&ADD, &1));
    assert_eq!(refused, Err(CallError::NotExecuted(Cause::PeerDraining)));
    assert_eq!(client.block_on(running), Ok(0));
    assert_eq!(client.block_on(drained), 0);
}

#[test]
fn all_endpoints_run_while_one_of_them_waits() {
    let (network, server, (first, session)) = pair(1);
    let (second, other) = connect(&network, server.route());
    let done = Rc::new(Cell::new(false));
    let sees = Rc::clone(&done);
    other.call_with(&NAP, &10, move |reply| sees.set(reply.is_ok()));
    assert_eq!(first.block_on(session.call(&NAP, &20)), Ok(0));
    assert!(done.get());
    assert_eq!(second.now(), first.now());
    drop((second, other));
    assert_eq!(first.block_on(session.call(&ADD, &1)), Ok(0));
}

#[test]
fn dropping_a_server_tells_its_clients() {
    let (network, server, (client, session)) = pair(1);
    let begun = network.elapsed();
    drop(server);
    client.run_for(ms(1));
    assert!(!session.is_open());
    assert_eq!(network.elapsed() - begun, ms(1));
}

#[test]
fn a_network_keeps_no_endpoint_alive() {
    let (network, server, (client, session)) = pair(1);
    let world = Rc::downgrade(network.world());
    drop((network, server, client, session));
    assert!(world.upgrade().is_none());
}

#[test]
#[should_panic(expected = "a future waits for something that never happens")]
fn a_wait_without_end_panics() {
    VirtualNetwork::new(1).endpoint().block_on(std::future::pending::<()>());
}

/// The numbers of the packets that arrive, of 200 of which half are lost.
fn survivors(seed: u64) -> Vec<u8> {
    let network = VirtualNetwork::new(seed);
    network.set_faults(Faults::none().drop(0.5));
    let (mut one, mut other) =
        (network.world().open(VirtualRoute(1)), network.world().open(VirtualRoute(2)));
    (0..200).for_each(|number| one.split().1.push_bytes(&VirtualRoute(2), &[number]));
    other.wait(None);
    let mut numbers = Vec::new();
    loop {
        let (rx, _) = other.split();
        let count = rx.burst();
        numbers.extend((0..count).map(|at| rx.packet(at).bytes[0]));
        if rx.is_drained() {
            return numbers;
        }
    }
}

#[test]
fn the_seed_determines_which_packets_are_lost() {
    let numbers = survivors(1);
    assert!((60..140).contains(&numbers.len()), "{} packets arrive", numbers.len());
    assert_eq!(survivors(1), numbers);
    assert_ne!(survivors(2), numbers);
}

#[test]
fn a_port_drops_packets_that_are_too_long_or_find_its_queue_full() {
    let network = VirtualNetwork::new(1);
    let (mut one, mut other) =
        (network.world().open(VirtualRoute(1)), network.world().open(VirtualRoute(2)));
    let port = one.capabilities();
    let room = port.rx_capacity / port.charge.charge(1);
    network.world().send(one.local_route(), VirtualRoute(2), vec![0; port.max_datagram + 1]);
    (0..room + 3).for_each(|_| one.split().1.push_bytes(&VirtualRoute(2), &[7]));
    other.wait(None);
    let stats = other.stats();
    assert_eq!((stats.rx_truncated, stats.rx_overflow), (1, 3));
    assert_eq!(other.split().0.burst(), MAX_BURST);
}

#[test]
fn packets_to_a_port_without_a_listener_are_reported_to_their_sender() {
    let network = VirtualNetwork::new(1);
    let world = network.world();
    let mut port = world.open(VirtualRoute(1));
    port.split().1.push_bytes(&VirtualRoute(2), b"to nobody");
    port.wait(Some(ms(10)));
    let report = port.next_undelivered().expect("the packet was refused");
    assert_eq!((report.route, report.quote()), (VirtualRoute(2), &b"to nobody"[..]));
    assert_eq!(network.elapsed(), Duration::from_micros(50));
    port.wait(Some(ms(10)));
    assert!(!port.has_undelivered());
}

#[test]
fn a_setting_out_of_range_is_refused() {
    let network = VirtualNetwork::new(1);
    assert!(network.endpoint_with(EndpointConfig::new().liveness_timeout(ms(0))).is_err());
}
