//! A loop loses its core during an RX burst. Packets that arrive in this time must not count as
//! received before the burst.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::sleep;
use std::time::Duration;

use erpc_core::buf::{MsgBuf, TxPacket};
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    Acceptor, CallError, EndpointConfig, ListenGroup, NewCall, Reply, Request, SessionEvent,
};
use erpc_core::transport::mem::{MemHub, MemRoute, MemTransport};
use erpc_core::transport::{
    Capabilities, Path, RxPacket, RxQueue, Transport, TransportStats, TxQueue, Waker,
};

/// Duration of a burst. No answer arrives earlier, so it is also the shortest possible RTT.
const BURST: Duration = Duration::from_millis(3);

/// Code that runs during a burst.
type During = Box<dyn FnMut()>;

/// A memory port whose bursts count as system calls and take [`BURST`].
struct Slow {
    port: Rc<RefCell<MemTransport>>,
    rx: SlowRx,
    tx: SlowTx,
}

struct SlowRx {
    port: Rc<RefCell<MemTransport>>,
    during: During,
    lent: Vec<(MemRoute, Vec<u8>)>,
}

struct SlowTx(Rc<RefCell<MemTransport>>);

impl Slow {
    fn new(port: MemTransport, during: During) -> Self {
        let port = Rc::new(RefCell::new(port));
        let rx = SlowRx { port: Rc::clone(&port), during, lent: Vec::new() };
        Self { rx, tx: SlowTx(Rc::clone(&port)), port }
    }
}

impl RxQueue for SlowRx {
    type Route = MemRoute;

    const IS_SYSTEM_CALL: bool = true;

    fn burst(&mut self) -> usize {
        (self.during)();
        let mut port = self.port.borrow_mut();
        let (rx, _) = port.split();
        let count = rx.burst();
        let packets = (0..count).map(|at| rx.packet(at));
        self.lent = packets.map(|packet| (packet.route, packet.bytes.to_vec())).collect();
        count
    }

    fn is_drained(&self) -> bool {
        self.port.borrow_mut().split().0.is_drained()
    }

    fn packet(&self, index: usize) -> RxPacket<'_, MemRoute> {
        let (route, bytes) = &self.lent[index];
        RxPacket { route: *route, bytes, marked: false }
    }
}

impl TxQueue for SlowTx {
    type Route = MemRoute;

    fn push_bytes(&mut self, route: &MemRoute, bytes: &[u8]) {
        self.0.borrow_mut().split().1.push_bytes(route, bytes);
    }

    fn push(&mut self, route: &MemRoute, packet: TxPacket<'_>) {
        self.0.borrow_mut().split().1.push(route, packet);
    }

    fn flush(&mut self) {
        self.0.borrow_mut().split().1.flush();
    }
}

impl Transport for Slow {
    type Route = MemRoute;
    type Rx = SlowRx;
    type Tx = SlowTx;

    fn split(&mut self) -> (&mut SlowRx, &mut SlowTx) {
        (&mut self.rx, &mut self.tx)
    }

    fn capabilities(&self) -> Capabilities {
        self.port.borrow().capabilities()
    }

    fn local_route(&self) -> MemRoute {
        self.port.borrow().local_route()
    }

    fn path(&mut self, peer: &MemRoute) -> Path {
        self.port.borrow_mut().path(peer)
    }

    fn wait(&mut self, _: Option<Duration>) {
        unreachable!("the loop spins");
    }

    fn waker(&self) -> Waker {
        self.port.borrow().waker()
    }

    fn stats(&self) -> TransportStats {
        self.port.borrow().stats()
    }
}

/// Answers requests immediately, and counts the responses to its own calls.
#[derive(Default)]
struct User {
    is_open: bool,
    answered: usize,
}

impl<T: Transport> App<T> for User {
    fn on_request(&mut self, cx: &mut Context<'_, T>, request: Request<'_, T::Route>) {
        let response = cx.response_buffer(request.buffer, 0).expect("memory");
        cx.respond(request.handle, response, false);
    }

    fn on_reply(
        &mut self,
        _: &mut Context<'_, T>,
        _: u64,
        reply: Result<Reply<'_>, CallError>,
        _: MsgBuf,
    ) {
        self.answered += usize::from(reply.is_ok());
    }

    fn on_session(
        &mut self,
        _: &mut Context<'_, T>,
        _: erpc_core::protocol::SessionId,
        event: SessionEvent,
    ) {
        self.is_open |= event == SessionEvent::Opened;
    }
}

#[test]
fn the_rtt_of_a_response_that_arrives_during_a_burst_includes_the_burst() {
    let hub = MemHub::new();
    let config = || EndpointConfig::new().min_rto(Duration::from_millis(500));
    let server = hub.port(Default::default());
    let route = server.local_route();
    let mut server = Rpc::new(server, config()).expect("a valid configuration");
    server.listen(Acceptor::new(Arc::new(ListenGroup::new([7; 16], vec![0])), 0));
    let mut serves = User::default();
    // The server answers the client's requests at the end of the client's burst.
    let during = Box::new(move || {
        sleep(BURST);
        server.rested();
        server.run_once(&mut serves);
    });
    let port = Slow::new(hub.port(Default::default()), during);
    let mut client = Rpc::new(port, config()).expect("a valid configuration");
    let mut calls = User::default();
    let session = client.context().connect(route).expect("room");
    while !calls.is_open {
        client.run_once(&mut calls);
    }
    for round in 1..=20 {
        let request = client.context().alloc(0).expect("memory");
        client.context().call(session, NewCall::new(1, request, 0)).expect("accepted");
        while calls.answered < round {
            client.run_once(&mut calls);
        }
        let stats = client.context().session_stats(session).expect("open");
        let rtt = stats.rtt.expect("measured");
        assert!(rtt >= BURST, "round {round}: {rtt:?}");
    }
}
