//! An unknown link rate is logged once, whatever the number of sessions.
//!
//! The log is global to the process, so all checks are in one test.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use erpc_core::event_loop::{App, Context, Rpc};
use erpc_core::protocol::{
    Acceptor, CongestionControl, EndpointConfig, ListenGroup, SessionEvent, SessionId, TimelyConfig,
};
use erpc_core::transport::mem::{MemHub, MemRoute, MemRx, MemTransport, MemTx};
use erpc_core::transport::{Capabilities, Link, Path, Transport, TransportStats, Waker};
use log::{Level, LevelFilter, Log, Metadata, Record};

/// Sessions that an endpoint opens.
const SESSIONS: usize = 20;

/// The lines that erpc has logged.
struct Lines(Mutex<Vec<(Level, String)>>);

static LINES: Lines = Lines(Mutex::new(Vec::new()));

impl Log for Lines {
    fn enabled(&self, _: &Metadata<'_>) -> bool {
        true
    }

    fn log(&self, record: &Record<'_>) {
        let mut lines = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        lines.push((record.level(), record.args().to_string()));
    }

    fn flush(&self) {}
}

impl Lines {
    /// Takes the lines that were logged since the last call of this function.
    fn take(&self) -> Vec<(Level, String)> {
        std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

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

/// The lines logged while an endpoint with this configuration opens its sessions.
fn logged(config: EndpointConfig) -> Vec<(Level, String)> {
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
    LINES.take()
}

#[test]
fn an_unknown_link_rate_is_logged_once() {
    log::set_logger(&LINES).expect("the first logger");
    log::set_max_level(LevelFilter::Info);
    assert_eq!(logged(EndpointConfig::new().link_rate(1_250_000_000)), [], "the rate is set");
    let none = EndpointConfig::new().congestion(CongestionControl::None);
    assert_eq!(logged(none), [], "without congestion control the rate is not needed");

    let lines = logged(EndpointConfig::new());
    let [(Level::Info, line)] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("EndpointConfig::link_rate"), "{line}");
    assert_eq!(logged(EndpointConfig::new()), [], "another endpoint logs nothing");

    let timely = CongestionControl::Timely(TimelyConfig::new());
    let lines = logged(EndpointConfig::new().congestion(timely));
    let [(Level::Warn, line)] = &lines[..] else { panic!("{lines:?}") };
    assert!(line.contains("no congestion control") && line.contains("EndpointConfig::link_rate"));
    assert_eq!(logged(EndpointConfig::new().congestion(timely)), []);
}
