//! Events that need a transport of their own, or a virtual clock.
//!
//! The log is global to the process. Each test looks only at the messages that no other test here
//! brings about.

use std::fs;
use std::path::Path as FilePath;
use std::sync::Arc;
use std::time::{Duration, Instant};

use erpc_core::client::Session;
use erpc_core::endpoint::Endpoint;
use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    Acceptor, CongestionControl, EndpointConfig, ListenGroup, SessionEvent, SessionId, TimelyConfig,
};
use erpc_core::transport::mem::{MemHub, MemRoute, MemRx, MemTransport, MemTx};
use erpc_core::transport::{Capabilities, Link, Path, Transport, TransportStats, Waker};
use erpc_test_tools::events::{EventLog, Logged};
use tracing::Level;

/// Sessions that an endpoint opens.
const SESSIONS: usize = 20;

/// A memory transport that reports a link of unknown rate.
struct UnknownLink(MemTransport);

impl Transport for UnknownLink {
    type Route = MemRoute;
    type Rx = MemRx;
    type Tx = MemTx;

    fn split(&mut self) -> (&mut MemRx, &mut MemTx) {
        self.0.split()
    }

    fn capabilities(&self) -> Capabilities {
        self.0.capabilities()
    }

    fn local_route(&self) -> MemRoute {
        self.0.local_route()
    }

    fn path(&mut self, peer: &MemRoute) -> Path {
        Path { link: Link::Unknown, ..self.0.path(peer) }
    }

    fn wait(&mut self, timeout: Option<Duration>) {
        self.0.wait(timeout);
    }

    fn waker(&self) -> Waker {
        self.0.waker()
    }

    fn stats(&self) -> TransportStats {
        self.0.stats()
    }
}

/// Counts the sessions that open.
#[derive(Default)]
struct Opened(usize);

impl App<UnknownLink> for Opened {
    fn on_session(&mut self, _: &mut Context<'_, UnknownLink>, _: SessionId, event: SessionEvent) {
        assert_eq!(event, SessionEvent::Opened);
        self.0 += 1;
    }
}

/// The events of the link rate while an endpoint with this configuration opens its sessions.
fn reported(config: EndpointConfig) -> Vec<Logged> {
    let log = EventLog::install();
    let of_rate = || log.all(|event| event.message == "unknown link rate");
    let before = of_rate().len();
    let hub = MemHub::new();
    let endpoint = |config| {
        let transport = UnknownLink(hub.port(Default::default()));
        Rpc::new(transport, config).expect("a valid configuration")
    };
    let (mut server, mut client) = (endpoint(EndpointConfig::new()), endpoint(config));
    server.listen(Acceptor::new(Arc::new(ListenGroup::new([1; 16], vec![0])), 0));
    for _ in 0..SESSIONS {
        client.context().connect(server.local_route()).expect("room for a session");
    }
    let (mut opened, began) = (Opened::default(), Instant::now());
    while opened.0 < SESSIONS {
        assert!(began.elapsed() < Duration::from_secs(20), "{} sessions are open", opened.0);
        client.run_once(&mut opened);
        server.run_once(&mut Opened::default());
    }
    of_rate().split_off(before)
}

#[test]
fn an_unknown_link_rate_is_reported_once() {
    assert_eq!(reported(EndpointConfig::new().link_rate(1_250_000_000)), [], "the rate is set");
    let none = EndpointConfig::new().congestion(CongestionControl::None);
    assert_eq!(reported(none), [], "without congestion control the rate is not needed");

    let events = reported(EndpointConfig::new());
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!((event.target, event.level), ("erpc::network", Level::INFO));
    assert!(event.field("hint").contains("EndpointConfig::link_rate"), "{event:?}");
    assert!(!event.field("peer").is_empty());
    assert_eq!(reported(EndpointConfig::new()), [], "another endpoint reports nothing");

    let timely = CongestionControl::Timely(TimelyConfig::new());
    let events = reported(EndpointConfig::new().congestion(timely));
    let [event] = &events[..] else { panic!("{events:?}") };
    assert_eq!(event.level, Level::WARN);
    assert!(event.field("effect").contains("no congestion control"), "{event:?}");
    assert_eq!(reported(EndpointConfig::new().congestion(timely)), []);
}

/// A client and a server in memory, with a virtual clock.
struct Pair {
    client: Endpoint<MemTransport>,
    server: Endpoint<MemTransport>,
    now: erpc_core::time::Instant,
}

impl Pair {
    fn new() -> Self {
        let hub = MemHub::new();
        let endpoint = || {
            let config = EndpointConfig::new();
            Endpoint::new(hub.port(Default::default()), config).expect("a valid configuration")
        };
        let (client, server) = (endpoint(), endpoint());
        server.listen();
        Self { client, server, now: erpc_core::time::Instant::from_nanos(1_000_000_000) }
    }

    /// Opens `count` sessions, in less than 100 ms of the virtual clock.
    fn open(&mut self, count: usize) -> Vec<Session<MemTransport>> {
        let peer = self.server.local_route().expect("called outside of the loop");
        let sessions: Vec<_> = (0..count).map(|_| self.client.open(peer)).collect();
        let end = self.now.plus_nanos(100_000_000);
        while !sessions.iter().all(Session::is_open) {
            self.now = self.now.plus_nanos(10_000);
            assert!(self.now < end, "the sessions do not open");
            self.client.run_once_at(self.now);
            self.server.run_once_at(self.now);
        }
        self.client.run_once_at(self.now);
        self.server.run_once_at(self.now);
        sessions
    }
}

#[test]
fn ten_events_of_a_kind_are_emitted_per_second_and_the_next_one_counts_the_others() {
    let log = EventLog::install();
    let mut pair = Pair::new();
    let peers = [&pair.server, &pair.client]
        .map(|endpoint| endpoint.local_route().expect("called outside of the loop").to_string());
    let events = |message: &str, peer: &str| {
        log.all(|event| event.message == message && event.field("peer") == peer)
    };
    let _sessions = pair.open(25);
    pair.now = pair.now.plus_nanos(1_000_000_000);
    let _session = pair.open(1);
    for (message, peer) in ["session opened", "client session opened"].into_iter().zip(&peers) {
        let events = events(message, peer);
        let suppressed: Vec<_> =
            events.iter().map(|event| event.fields.get("suppressed")).collect();
        assert_eq!(events.len(), 11, "{message}: {events:?}");
        assert_eq!(suppressed[..10], [None; 10], "{message}");
        assert_eq!(suppressed[10].map(String::as_str), Some("15"), "{message}");
    }
}

/// The string literals of `text`, in order. None of them contains an escaped quotation mark.
fn literals(text: &str) -> Vec<&str> {
    text.split('"').skip(1).step_by(2).collect()
}

#[test]
fn the_facade_lists_all_events() {
    let root = FilePath::new(env!("CARGO_MANIFEST_DIR"));
    let source = fs::read_to_string(root.join("src/log/mod.rs")).expect("the file exists");
    let facade = fs::read_to_string(root.join("../src/lib.rs")).expect("the file exists");
    let rows: Vec<&str> = facade.lines().filter(|line| line.starts_with("//! | `erpc::")).collect();
    // The first use is the one within the macro.
    let uses: Vec<&str> = source.split("event!(").skip(2).collect();
    assert!(uses.len() > 15, "{} events", uses.len());
    let mut wanted = Vec::new();
    for event in &uses {
        let (target, message) = (literals(event)[0], literals(event)[1]);
        let level = event.split(',').nth(1).expect("the level follows the target").trim();
        wanted.push(format!("//! | `{target}` | {level} | {message} |"));
    }
    for row in &wanted {
        assert!(rows.iter().any(|line| line.starts_with(row)), "src/lib.rs has no row {row}");
    }
    for line in rows {
        assert!(wanted.iter().any(|row| line.starts_with(row)), "there is no event {line}");
    }
}
