//! A server and a client for the tests of the log, and what these tests expect of an event.

use std::net::SocketAddr;
use std::time::Instant;

use erpc::{Endpoint, Server, ServerBuilder, ServerHandle};
use erpc_test_tools::events::{EventLog, Logged};
use erpc_test_tools::limit::{millis, secs};
use tracing::Level;

use crate::lab::{LabService, loopback};
use crate::proto::LocalLabClient;

/// A server of `service` on the loopback interface, which is not started yet.
pub fn lab(service: LabService) -> ServerBuilder {
    Server::builder().add_service(service).udp(loopback())
}

/// Starts a server at a free port.
///
/// # Panics
/// If the server does not start.
pub fn start(server: ServerBuilder) -> ServerHandle {
    server.spawn("127.0.0.1:0").expect("the server starts")
}

/// A client with a session to `server`.
///
/// # Panics
/// If the server does not answer.
pub fn connect(endpoint: &Endpoint, server: SocketAddr) -> LocalLabClient {
    LocalLabClient::new(endpoint.connect(server).expect("the server answers"))
}

/// Whether an event's `field` has this value.
pub fn about(field: &'static str, value: impl ToString) -> impl Fn(&Logged) -> bool {
    let value = value.to_string();
    move |event| event.fields.get(field) == Some(&value)
}

/// Checks the target and the level of `event`.
///
/// # Panics
/// If one of them differs.
#[track_caller]
pub fn assert_kind(event: &Logged, target: &str, level: Level) {
    assert_eq!((event.target, event.level), (target, level), "{event:?}");
}

/// Runs the loop of `endpoint` until the log has the event.
///
/// # Panics
/// If the event does not come within 20 s.
#[track_caller]
pub fn run_until(
    log: &EventLog,
    endpoint: &Endpoint,
    message: &str,
    is_wanted: impl Fn(&Logged) -> bool,
) -> Logged {
    let is_it = |event: &Logged| event.message == message && is_wanted(event);
    let end = Instant::now() + secs(20);
    while log.all(is_it).is_empty() {
        assert!(Instant::now() < end, "no `{message}` in {:#?}", log.all(|_| true));
        endpoint.run_for(millis(5));
    }
    log.expect(message, is_it)
}
