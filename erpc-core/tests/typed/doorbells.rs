//! When endpoints ring their transport's doorbell.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::Poll;
use std::time::Duration;

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::executor::join_all;
use erpc_core::protocol::EndpointConfig;
use erpc_core::time::Instant;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemTransport};
use erpc_core::transport::udp::UdpConfig;
use erpc_core::transport::{
    Capabilities, MAX_BURST, Path, RxPacket, RxQueue, Transport, TransportStats, TxPacket, TxQueue,
    Waker,
};

use crate::support::{DOUBLE, math, number, server};

/// A port that notes how many packets each doorbell sends.
struct Noting {
    rx: NotingRx,
    tx: NotingTx,
    line: Line,
}

type Line = Rc<RefCell<Noted>>;

struct Noted {
    port: MemTransport,
    staged: usize,
    /// The packets of each doorbell that sent any.
    rings: Vec<usize>,
}

impl Noting {
    fn new(port: MemTransport) -> (Self, Line) {
        let line = Rc::new(RefCell::new(Noted { port, staged: 0, rings: Vec::new() }));
        let rx = NotingRx { line: Rc::clone(&line), packets: Vec::new(), is_drained: true };
        let tx = NotingTx { line: Rc::clone(&line) };
        (Self { rx, tx, line: Rc::clone(&line) }, line)
    }
}

impl Transport for Noting {
    type Route = MemRoute;
    type Rx = NotingRx;
    type Tx = NotingTx;

    fn split(&mut self) -> (&mut NotingRx, &mut NotingTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        self.line.borrow().port.capabilities()
    }

    fn local_route(&self) -> MemRoute {
        self.line.borrow().port.local_route()
    }

    fn path(&mut self, peer: &MemRoute) -> Path {
        self.line.borrow_mut().port.path(peer)
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.line.borrow_mut().port.wait(timeout);
    }

    fn waker(&self) -> Waker {
        self.line.borrow().port.waker()
    }

    fn stats(&self) -> TransportStats {
        self.line.borrow().port.stats()
    }
}

struct NotingRx {
    line: Line,
    packets: Vec<(MemRoute, Vec<u8>)>,
    is_drained: bool,
}

impl RxQueue for NotingRx {
    type Route = MemRoute;

    fn burst(&mut self) -> usize {
        let mut line = self.line.borrow_mut();
        let (rx, _) = line.port.split();
        let count = rx.burst();
        let packets = (0..count).map(|at| (rx.packet(at).route, rx.packet(at).bytes.to_vec()));
        self.packets = packets.collect();
        self.is_drained = rx.is_drained();
        count
    }

    fn is_drained(&self) -> bool {
        self.is_drained
    }

    fn packet(&self, index: usize) -> RxPacket<'_, MemRoute> {
        let (route, bytes) = &self.packets[index];
        RxPacket { route: *route, bytes, marked: false }
    }
}

struct NotingTx {
    line: Line,
}

impl TxQueue for NotingTx {
    type Route = MemRoute;

    fn push_bytes(&mut self, route: &MemRoute, bytes: &[u8]) {
        let mut line = self.line.borrow_mut();
        line.staged += 1;
        line.port.split().1.push_bytes(route, bytes);
    }

    fn push(&mut self, route: &MemRoute, packet: TxPacket<'_>) {
        let mut line = self.line.borrow_mut();
        line.staged += 1;
        line.port.split().1.push(route, packet);
    }

    fn flush(&mut self) {
        let mut line = self.line.borrow_mut();
        line.port.split().1.flush();
        match std::mem::take(&mut line.staged) {
            0 => {}
            packets => line.rings.push(packets),
        }
    }
}

#[test]
fn join_all_over_16_servers_rings_one_doorbell() {
    let (hub, routes) = (MemHub::new(), math());
    let (servers, peers): (Vec<_>, Vec<_>) = (0..16).map(|_| server(&hub, routes.clone())).unzip();
    let (port, line) = Noting::new(hub.port(MemConfig::default()));
    let client = Endpoint::new(port, EndpointConfig::new()).unwrap();
    let now = RefCell::new(Instant::from_nanos(1_000_000_000));
    let turn = || {
        let now = now.replace_with(|now| now.plus_nanos(1_000));
        client.run_once_at(now);
        for server in &servers {
            server.run_once_at(now);
        }
    };
    let sessions: Vec<Session<_>> = peers.into_iter().map(|peer| client.open(peer)).collect();
    while !sessions.iter().all(Session::is_open) {
        turn();
    }
    // In the second round, the task is woken by packets that the same turn has received.
    let task = client.spawn(async move {
        for round in 0..2 {
            line.borrow_mut().rings.clear();
            let calls = sessions.iter().map(|session| session.call(&DOUBLE, &number(round + 1)));
            for reply in join_all(calls).await {
                assert_eq!(reply, Ok(number(2 * (round + 1))));
            }
            assert_eq!(line.borrow().rings, [16], "packets of each doorbell in round {round}");
        }
    });
    while !task.is_finished() {
        turn();
    }
    client.block_on(task);
}

#[test]
fn calls_of_tasks_leave_in_the_turn_that_makes_them() {
    let (hub, routes) = (MemHub::new(), math());
    let (server, peer) = server(&hub, routes);
    let (port, line) = Noting::new(hub.port(MemConfig::default()));
    let client = Endpoint::new(port, EndpointConfig::new()).unwrap();
    let session = client.open(peer);
    while !session.is_open() {
        client.run_once();
        server.run_once();
    }
    let task = client.spawn(async move {
        for round in 1..=3 {
            assert_eq!(session.call(&DOUBLE, &number(round)).await, Ok(number(2 * round)));
        }
    });
    // Each turn takes a reply and sends the next call.
    for calls in 1..=3 {
        line.borrow_mut().rings.clear();
        client.run_once();
        assert_eq!(
            line.borrow().rings,
            [1],
            "packets of each doorbell in the turn of call {calls}"
        );
        server.run_once();
    }
    client.run_once();
    assert!(task.is_finished());
}

/// As many calls as the queue passes to the protocol at once, so that none is left in it.
#[test]
fn a_full_queue_of_calls_leaves_in_the_turn_that_makes_them() {
    const CALLS: usize = 32;
    let (hub, routes) = (MemHub::new(), math());
    let (server, peer) = server(&hub, routes);
    let (port, line) = Noting::new(hub.port(MemConfig::default()));
    let client = Endpoint::new(port, EndpointConfig::new()).unwrap();
    let sessions = [(); 4].map(|()| client.open(peer));
    while !sessions.iter().all(Session::is_open) {
        client.run_once();
        server.run_once();
    }
    line.borrow_mut().rings.clear();
    let task = client.spawn(async move {
        let call = |at: usize| sessions[at % 4].call(&DOUBLE, &number(1));
        join_all((0..CALLS).map(call)).await
    });
    client.run_once();
    let sent: usize = line.borrow().rings.iter().sum();
    assert_eq!(sent, CALLS, "packets that left in the turn of the calls");
    server.run_once();
    client.run_once();
    assert!(task.is_finished());
}

fn over_udp() -> Endpoint {
    let address = "127.0.0.1:0".parse().unwrap();
    let config = EndpointConfig::new().slots(64);
    Endpoint::udp_with(&UdpConfig::new().address(address), config).unwrap()
}

#[test]
fn a_loop_that_ends_sends_the_answers_that_it_holds() {
    let (client, server) = (over_udp(), over_udp());
    server.listen();
    assert!(server.serve(math(), None));
    let sessions = [(); 2].map(|()| client.open(server.local_route().unwrap()));
    while !sessions.iter().all(Session::is_open) {
        client.run_once();
        server.run_once();
    }
    let requests = || server.stats().expect("outside of a turn").protocol.requests;
    // Two bursts of requests, which leave as one run.
    let calls = 2 * MAX_BURST;
    let begin = || {
        let done = Rc::new(Cell::new(0));
        for at in 0..calls {
            let (done, call) = (Rc::clone(&done), sessions[at % 2].call(&DOUBLE, &number(1)));
            client.spawn(async move {
                assert_eq!(call.await, Ok(number(2)));
                done.set(done.get() + 1);
            });
        }
        client.run_once();
        done
    };
    let end = |done: &Cell<usize>| {
        while done.get() < calls {
            client.run_once();
            server.run_once();
        }
    };
    for round in 0..6 {
        // After a pause, a loop does not hold packets for some hundred turns.
        (0..300).for_each(|_| end(&begin()));
        let (done, before) = (begin(), requests());
        let is_under_way = || requests() > before;
        if round % 2 == 0 {
            server.run_until(is_under_way);
        } else {
            server.block_on(poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if is_under_way() { Poll::Ready(()) } else { Poll::Pending }
            }));
        }
        let executed = (requests() - before) as usize;
        assert_eq!(executed, MAX_BURST, "a run is received as one datagram");
        client.run_for(Duration::from_millis(20));
        assert_eq!(done.get(), executed, "answers that have arrived in round {round}");
        end(&done);
    }
}
