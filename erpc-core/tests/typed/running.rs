//! The handle of a running server within the server's own event loops.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::server::{Server, ServerHandle};
use erpc_core::service::{Method, MethodCollision, Mode, Request, Response, Routes, Service};
use erpc_core::status::{Code, Status};
use erpc_test_tools::limit::{secs, within};

/// Uses the handle of its own server: 0 reads the counters, 1 drains, 2 waits for a future, 3 waits
/// for the end, 4 shuts down.
const USE: Method<u32, u32> = Method::new("test.Owner/Use");

/// A service that owns the handle of its server.
#[derive(Default)]
struct Owner {
    server: Mutex<Option<ServerHandle>>,
}

impl Owner {
    fn use_server(&self, request: Request<'_, u32>) -> Result<Response<u32>, Status> {
        let server = self.server.lock().unwrap_or_else(|error| error.into_inner()).take();
        let server = server.ok_or_else(|| Status::internal("the handle is gone"))?;
        match request.message() {
            0 => drop(server.stats()),
            1 => drop(server.drain(Duration::ZERO)),
            2 => drop(server.wait_with_shutdown(std::future::ready(()), Duration::ZERO)),
            3 => drop(server.wait()),
            _ => server.shutdown(),
        }
        Ok(Response::new(0))
    }
}

impl Service for Owner {
    const NAME: &'static str = "test.Owner";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary(USE, Mode::Dispatch, &self, Self::use_server)
    }
}

fn owned() -> (Arc<Owner>, Endpoint, Session) {
    let owner = Arc::new(Owner::default());
    let server = Server::builder().add_shared(Arc::clone(&owner)).threads(2);
    let server = server.spawn("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::udp().unwrap();
    let session = endpoint.connect(server.local_addr()).unwrap();
    *owner.server.lock().unwrap() = Some(server);
    (owner, endpoint, session)
}

#[test]
fn a_handler_that_would_wait_for_its_own_loop_panics_with_the_reason() {
    for (ask, name) in [(0, "stats"), (1, "drain"), (2, "wait_with_shutdown"), (3, "wait")] {
        within(secs(10), move || {
            let (owner, endpoint, session) = owned();
            let error = endpoint.block_on(session.call(&USE, &ask)).unwrap_err();
            // The panic has dropped the handle, which ends the server, perhaps before its answer.
            let is_told = error.code() == Code::Internal || error.code() == Code::Unavailable;
            assert!(is_told && owner.server.try_lock().is_ok(), "{name}: {error}");
        });
    }
}

#[test]
fn a_handler_may_shut_its_server_down() {
    within(secs(10), || {
        let (_owner, endpoint, session) = owned();
        // The answer may be lost with the server.
        drop(endpoint.block_on(session.call(&USE, &4)));
        endpoint.run_until(|| !session.is_open());
    });
}
