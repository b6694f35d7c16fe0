//! A loop that is about to sleep wakes the tasks that it held back. One of them may be its own.

use std::cell::Cell;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Waker as TaskWaker};
use std::time::Duration;

use erpc_core::client::{SharedCall, SharedChannel};
use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::IdlePolicy;
use erpc_core::protocol::EndpointConfig;
use erpc_core::service::{Method, MethodCollision, Mode, Request, Response, Routes, Service};
use erpc_core::status::Status;
use erpc_core::transport::mem::{MemConfig, MemHub, MemRoute, MemRx, MemTransport, MemTx};
use erpc_core::transport::{Capabilities, Path, Transport, TransportStats, Waker};

const DOUBLE: Method<u32, u32> = Method::new("test.Math/Double");

struct Math;

impl Math {
    fn double(&self, request: Request<'_, u32>) -> Result<Response<u32>, Status> {
        Ok(Response::new(request.message() * 2))
    }
}

impl Service for Math {
    const NAME: &'static str = "test.Math";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(DOUBLE, Mode::Dispatch, &self, Self::double)
    }
}

/// A memory transport that counts how often its loop sleeps, and ends each sleep at once.
struct Sleepless {
    port: MemTransport,
    sleeps: Rc<Cell<u32>>,
}

impl Transport for Sleepless {
    type Route = MemRoute;
    type Rx = MemRx;
    type Tx = MemTx;

    fn split(&mut self) -> (&mut MemRx, &mut MemTx) {
        self.port.split()
    }

    fn capabilities(&self) -> Capabilities {
        self.port.capabilities()
    }

    fn local_route(&self) -> MemRoute {
        self.port.local_route()
    }

    fn path(&mut self, peer: &MemRoute) -> Path {
        self.port.path(peer)
    }

    fn wait(&mut self, _: Option<Duration>) {
        self.sleeps.set(self.sleeps.get() + 1);
    }

    fn waker(&self) -> Waker {
        self.port.waker()
    }

    fn stats(&self) -> TransportStats {
        self.port.stats()
    }
}

#[test]
fn a_loop_does_not_sleep_before_the_held_future_of_its_block_on_is_polled() {
    let (hub, sleeps) = (MemHub::new(), Rc::new(Cell::new(0)));
    let server = Endpoint::new(hub.port(MemConfig::default()), EndpointConfig::new()).unwrap();
    let mut routes = Routes::new();
    Arc::new(Math).register(&mut routes).unwrap();
    server.listen();
    assert!(server.serve(Arc::new(routes), None));
    let port = Sleepless { port: hub.port(MemConfig::default()), sleeps: Rc::clone(&sleeps) };
    let client = Endpoint::new(port, EndpointConfig::new()).unwrap();
    client.set_idle_policy(IdlePolicy::Sleep);
    let servers = vec![server.local_route().unwrap()];
    let channel = SharedChannel::on(&client.handle(), servers).build().unwrap();
    // Runs both endpoints until the call has ended.
    let finish = |call: &SharedCall<u32, Sleepless>| {
        while !call.is_ready() {
            client.run_once();
            server.run_once();
        }
    };
    finish(&channel.call(&DOUBLE, &1));

    let (mut first, second) = (channel.call(&DOUBLE, &2), channel.call(&DOUBLE, &3));
    let mut cx = Context::from_waker(TaskWaker::noop());
    assert!(pin!(&mut first).poll(&mut cx).is_pending());
    while client.run_once() > 0 {}
    while server.run_once() > 0 {}
    // The client receives both responses in one burst. It wakes the task of the first call and
    // holds back that of the second, which is the loop itself.
    assert!(!first.is_ready() && !second.is_ready());
    assert_eq!(client.block_on(second), Ok(6));
    assert!(first.is_ready(), "the same burst");
    assert_eq!(sleeps.get(), 0);
}
