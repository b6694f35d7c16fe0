//! The events of sessions, of both sides.
//!
//! As in `log.rs`, the tests share one log. They are a process of their own, because the tests of
//! other events open more sessions per second than are reported.

use std::net::SocketAddr;
use std::thread;

use erpc::{CallError, Cause, Channel, Endpoint, EndpointConfig, Session};
use erpc_test_tools::events::EventLog;
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::process::Process;
use erpc_tests::lab::{LabService, client};
use erpc_tests::logged::{about, assert_kind, connect, lab, run_until, start};
use erpc_tests::proto::*;
use tracing::Level;

#[test]
fn a_channel_reports_the_loss_of_a_killed_server_and_the_reconnection() {
    within(secs(60), || {
        let log = EventLog::install();
        let serve = |address: &str| {
            let process =
                Process::start("server", env!("CARGO_BIN_EXE_lab_server"), &[address, "1"]);
            let address = process.expect_address("LISTENING");
            (process, address)
        };
        let (mut server, address) = serve("127.0.0.1:0");
        let endpoint =
            client(EndpointConfig::new().ping_interval(millis(100)).liveness_timeout(secs(1)));
        let channel = Channel::to(&endpoint, vec![address.into()]).build();
        let lab = LocalLabClient::new(channel);
        assert!(endpoint.block_on(lab.count(CountRequest { number: 1 })).is_ok());
        let opened = log.expect("session opened", about("peer", address));
        assert_kind(&opened, "erpc::session", Level::INFO);

        server.kill();
        let lost = run_until(log, &endpoint, "session lost", about("peer", address));
        assert_kind(&lost, "erpc::session", Level::WARN);
        assert!(!lost.field("cause").is_empty());
        // The port is closed now.
        let refused = run_until(log, &endpoint, "session not opened", about("peer", address));
        assert_kind(&refused, "erpc::session", Level::WARN);
        assert!(refused.field("cause").contains("refused"), "{refused:?}");

        let _server = serve(&address.to_string());
        let back = run_until(log, &endpoint, "reconnected", about("peer", address));
        assert_kind(&back, "erpc::channel", Level::INFO);
        assert!(back.number("failures") >= 1, "{back:?}");
        assert!((1..20_000).contains(&back.number("after_ms")), "{back:?}");
    });
}

#[test]
fn a_server_reports_the_sessions_of_its_clients() {
    within(secs(60), || {
        let log = EventLog::install();
        let config = EndpointConfig::new().ping_interval(millis(50)).liveness_timeout(millis(300));
        let server = start(lab(LabService::default()).config(config.clone()));
        let [polite, dead] = [(); 2].map(|()| client(config.clone()));
        let address = |endpoint: &Endpoint| {
            let local = endpoint.local_route().expect("called outside of the loop");
            SocketAddr::from(([127, 0, 0, 1], local.socket_addr().port()))
        };
        let mut sessions = Vec::new();
        for endpoint in [&polite, &dead] {
            let session = endpoint.connect(server.local_addr()).expect("the server answers");
            let opened = log.expect("client session opened", about("peer", address(endpoint)));
            assert_kind(&opened, "erpc::session", Level::INFO);
            sessions.push(session);
        }
        let [polite_address, dead_address] = [address(&polite), address(&dead)];
        polite.shutdown();
        let closed = log.expect("client session closed", about("peer", polite_address));
        assert_kind(&closed, "erpc::session", Level::DEBUG);
        assert_eq!(closed.field("cause"), Cause::PeerClosed.to_string());
        // Nobody runs the loop of this client any more.
        let lost = log.expect("client session lost", about("peer", dead_address));
        assert_kind(&lost, "erpc::session", Level::WARN);
        assert_eq!(lost.field("cause"), Cause::PeerDead.to_string());
    });
}

#[test]
fn a_session_that_the_client_closes_is_not_lost() {
    within(secs(60), || {
        let log = EventLog::install();
        let server = start(lab(LabService::default()));
        let endpoint = client(EndpointConfig::new());
        let session: Session = endpoint.connect(server.local_addr()).expect("the server answers");
        endpoint.block_on(session.disconnect());
        let closed = log.expect("session closed", about("peer", server.local_addr()));
        assert_kind(&closed, "erpc::session", Level::DEBUG);
        assert_eq!(closed.field("cause"), Cause::Disconnected.to_string());
    });
}

#[test]
fn a_server_that_drains_reports_the_handshakes_and_calls_that_it_refuses() {
    within(secs(60), || {
        let log = EventLog::install();
        let server = start(lab(LabService::default()).workers(1));
        let address = server.local_addr();
        let [endpoint, other] = [(); 2].map(|()| client(EndpointConfig::new()));
        let [lab, _idle] = [&endpoint, &other].map(|endpoint| connect(endpoint, address));
        let nap = lab.nap(NapRequest { millis: 1_000 });
        endpoint.run_for(millis(20));
        let draining = thread::spawn(move || server.drain(secs(20)));
        let message = "server shuts down";
        let told = run_until(log, &other, message, about("peer", address));
        assert_kind(&told, "erpc::session", Level::INFO);
        let error = other.connect(address).expect_err("the server drains");
        assert!(error.to_string().contains("shutting down"), "{error}");
        // This client did not run its loop, so it has not heard that the server drains.
        let count = lab.count(CountRequest { number: 1 });
        let refused = endpoint.block_on(count).expect_err("the server drains");
        assert_eq!(refused, CallError::NotExecuted(Cause::PeerDraining));
        assert!(endpoint.block_on(nap).is_ok());
        while !draining.is_finished() {
            endpoint.run_for(millis(5));
        }
        for message in ["handshakes refused", "calls refused"] {
            let refused = log.expect(message, about("endpoint", address));
            assert_kind(&refused, "erpc::server", Level::INFO);
            assert_eq!(refused.field("reason"), "the server shuts down");
            assert_eq!(refused.number("count"), 1, "{refused:?}");
        }
    });
}
