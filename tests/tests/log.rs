//! Each event of the log, brought about by what it reports.
//!
//! The tests run in one process and share its log, so each of them looks for its own peers,
//! endpoints and methods. No test here brings about more than a few events per second of the kinds that
//! others look for: further ones would be suppressed.

use std::cell::Cell;
use std::net::UdpSocket;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread;
use std::time::{Duration, Instant};

use erpc::service::{Method, MethodCollision, Routes};
use erpc::transport::fault::{FaultPlan, Faults, Faulty};
use erpc::transport::udp::UdpRoute;
use erpc::{
    Channel, Code, Endpoint, EndpointConfig, Request, Resolver, Response, Server, Status, Udp,
};
use erpc_test_tools::events::{EventLog, Logged};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_tests::lab::{LabService, client, loopback, work};
use erpc_tests::logged::{about, assert_kind, connect, lab, run_until, start};
use erpc_tests::proto::*;
use tracing::Level;

#[test]
fn panics_of_handlers_are_reported_with_method_and_text() {
    within(secs(60), || {
        let log = EventLog::install();
        let server = start(lab(LabService::default()).workers(1));
        let endpoint = client(EndpointConfig::new());
        let lab = connect(&endpoint, server.local_addr());
        let panic = |message: &str| FailRequest {
            panic: true,
            message: message.into(),
            ..FailRequest::default()
        };
        assert!(endpoint.block_on(lab.fail(panic("once in the loop"))).is_err());
        assert!(endpoint.block_on(lab.fail_slowly(panic("once on a worker"))).is_err());
        let no_reactor =
            "there is no reactor running, must be called from the context of a Tokio 1.x runtime";
        assert!(endpoint.block_on(lab.fail(panic(no_reactor))).is_err());
        for (method, text, is_advised) in [
            ("test.v1.Lab/Fail", "once in the loop", false),
            ("test.v1.Lab/FailSlowly", "once on a worker", false),
            ("test.v1.Lab/Fail", no_reactor, true),
        ] {
            let panicked =
                log.expect("handler panicked", |event| event.field("panic").contains(text));
            assert_kind(&panicked, "erpc::handler", Level::ERROR);
            assert_eq!(panicked.field("method"), method);
            let hint = panicked.fields.get("hint");
            assert_eq!(hint.is_some_and(|hint| hint.contains("erpc::sleep")), is_advised);
            assert_eq!(hint.is_some(), is_advised, "{panicked:?}");
        }
    });
}

#[test]
fn a_handler_that_holds_the_loop_is_reported_by_name() {
    within(secs(60), || {
        let log = EventLog::install();
        let slow = LabService::new(|millis| thread::sleep(Duration::from_millis(millis)));
        let config = EndpointConfig::new().slow_handler(millis(80));
        let server = start(lab(slow).config(config));
        let endpoint = client(EndpointConfig::new());
        let lab = connect(&endpoint, server.local_addr());
        let is_own = about("endpoint", server.local_addr());
        assert!(endpoint.block_on(lab.work(work(150, 1, 1).0)).is_ok());
        let held = log.expect("event loop held", is_own);
        assert_kind(&held, "erpc::handler", Level::WARN);
        assert_eq!(held.field("method"), "test.v1.Lab/Work");
        assert!((150..10_000).contains(&held.number("held_ms")), "{held:?}");
    });
}

#[test]
fn a_loop_of_a_server_that_stands_still_is_reported_while_it_does() {
    within(secs(60), || {
        let log = EventLog::install();
        let (release, released) = channel();
        let (ended, end) = tokio::sync::oneshot::channel();
        let server = start(lab(LabService::default()).threads(2));
        let is_own = about("endpoint", server.local_addr());
        let stuck = server.handles().nth(1).expect("two loops");
        stuck.submit(move |_| released.recv().expect("the test releases the loop")).unwrap();
        let server = thread::spawn(|| {
            let shutdown = async { end.await.expect("the test ends the server") };
            server.wait_with_shutdown(shutdown, secs(10))
        });
        let event = log.expect("event loop stuck", is_own);
        assert_kind(&event, "erpc::handler", Level::ERROR);
        assert_eq!(event.field("thread"), "erpc-1");
        assert_eq!(event.number("for_ms"), 2_000);
        release.send(()).unwrap();
        ended.send(()).unwrap();
        server.join().unwrap().unwrap();
        assert_eq!(log.all(|event| event.message == "event loop stuck"), [event]);
    });
}

#[test]
fn a_full_worker_queue_is_reported() {
    within(secs(60), || {
        let log = EventLog::install();
        let server = start(lab(LabService::default()).workers(1).worker_queue(1));
        let endpoint = client(EndpointConfig::new());
        let lab = connect(&endpoint, server.local_addr());
        let refused = Rc::new(Cell::new(0));
        let ended = Rc::new(Cell::new(0));
        for _ in 0..4 {
            let (refused, ended) = (Rc::clone(&refused), Rc::clone(&ended));
            lab.nap_with(NapRequest { millis: 300 }, move |reply| {
                refused.set(refused.get() + usize::from(reply.is_err()));
                ended.set(ended.get() + 1);
            });
        }
        endpoint.run_until(|| ended.get() == 4);
        assert!(refused.get() >= 1);
        let full = log.expect("worker queue full", about("method", "test.v1.Lab/Nap"));
        assert_kind(&full, "erpc::server", Level::WARN);
        assert_eq!(full.number("limit"), 1);
        assert!((1..=refused.get() as u64).contains(&full.number("count")), "{full:?}");
    });
}

/// A service with an asynchronous method.
struct Patient;

const WAIT: &str = "test.log.Patient/Wait";

impl Patient {
    async fn wait(&self, _: Request<'_, u32>) -> Result<Response<u32>, Status> {
        erpc::sleep(millis(200)).await;
        Ok(Response::new(0))
    }
}

impl erpc::Service for Patient {
    const NAME: &'static str = "test.log.Patient";

    fn register(self: Arc<Self>, routes: &mut Routes) -> Result<(), MethodCollision> {
        routes.unary_async(Method::<u32, u32>::new(WAIT), &self, Self::wait)
    }
}

#[test]
fn a_call_beyond_the_limit_of_tasks_is_reported() {
    within(secs(60), || {
        let log = EventLog::install();
        let server = start(Server::builder().add_service(Patient).udp(loopback()).task_limit(1));
        let endpoint = client(EndpointConfig::new());
        let session = endpoint.connect(server.local_addr()).expect("the server answers");
        let method = Method::<u32, u32>::new(WAIT);
        let (one, other) = (session.call(&method, &1), session.call(&method, &2));
        assert_eq!(endpoint.block_on(one), Ok(0));
        let refused = endpoint.block_on(other).expect_err("one call at a time");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let refused = log.expect("calls refused", about("method", WAIT));
        assert_kind(&refused, "erpc::server", Level::WARN);
        assert_eq!((refused.field("reason"), refused.number("limit")), ("task_limit calls run", 1));
        assert_eq!(refused.number("count"), 1);
    });
}

#[test]
fn calls_that_are_refused_for_memory_are_reported() {
    within(secs(60), || {
        let log = EventLog::install();
        let config = EndpointConfig::new().memory_limit(1 << 20);
        let server = start(lab(LabService::default()).config(config));
        let endpoint = client(EndpointConfig::new());
        let lab = connect(&endpoint, server.local_addr());
        let large = EchoRequest { body: vec![1; 2 << 20].into() };
        let refused = endpoint.block_on(lab.echo(large)).expect_err("more than the memory");
        assert_eq!(refused.code(), Code::ResourceExhausted);
        let refused = log.expect("calls refused", about("endpoint", server.local_addr()));
        assert_kind(&refused, "erpc::server", Level::WARN);
        assert!(refused.field("reason").contains("memory_limit"), "{refused:?}");
        assert_eq!(refused.number("count"), 1);
    });
}

#[test]
fn handshakes_beyond_a_limit_are_reported() {
    within(secs(60), || {
        let log = EventLog::install();
        let limits = [
            (
                EndpointConfig::new().max_sessions(1).reserved_sessions(0, 1),
                "max_sessions are open",
            ),
            (
                EndpointConfig::new().max_sessions_per_host(1),
                "the limit of sessions or sockets per host is reached",
            ),
        ];
        for (config, reason) in limits {
            let server = start(lab(LabService::default()).config(config));
            let endpoint = client(EndpointConfig::new());
            let _lab = connect(&endpoint, server.local_addr());
            assert!(endpoint.connect(server.local_addr()).is_err());
            let refused = log.expect("handshakes refused", about("endpoint", server.local_addr()));
            assert_kind(&refused, "erpc::server", Level::WARN);
            assert_eq!((refused.field("reason"), refused.number("count")), (reason, 1));
        }
    });
}

#[test]
fn an_overflow_of_the_receive_buffer_is_reported_with_what_to_do() {
    within(secs(60), || {
        let log = EventLog::install();
        let slow = LabService::new(|millis| thread::sleep(Duration::from_millis(millis)));
        let server = start(lab(slow));
        let endpoint = client(EndpointConfig::new());
        let lab = connect(&endpoint, server.local_addr());
        let call = lab.work(work(300, 1, 1).0);
        endpoint.run_for(millis(5));
        // The handler holds the loop, which does not read its buffer meanwhile.
        let flood = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        for _ in 0..1_000 {
            flood.send_to(&[0; 1_000], server.local_addr()).expect("sent");
        }
        assert!(endpoint.block_on(call).is_ok());
        let is_own = about("endpoint", server.local_addr());
        let lost = run_until(log, &endpoint, "receive queue overflowed", is_own);
        assert_kind(&lost, "erpc::network", Level::WARN);
        assert!((1..1_000).contains(&lost.number("packets")), "{lost:?}");
        let hint = lost.field("hint");
        assert!(hint.contains("net.core.rmem_max") && hint.contains("UdpConfig::recv_buffer"));
    });
}

#[test]
fn a_storm_of_retransmissions_is_reported() {
    within(secs(60), || {
        let log = EventLog::install();
        let server = start(lab(LabService::default()));
        let plan = FaultPlan::new(7).both(Faults::none().drop(0.3));
        let transport = Faulty::new(Udp::bind(&loopback()).expect("a socket"), plan);
        let endpoint: Endpoint<Faulty<Udp>> =
            Endpoint::new(transport, EndpointConfig::new()).expect("a valid configuration");
        let labs: Vec<LocalLabClient<_>> = (0..2)
            .map(|_| LocalLabClient::connect(&endpoint, server.local_addr()).expect("it opens"))
            .collect();
        let local = endpoint.local_route().expect("called outside of the loop").to_string();
        let message = "many retransmissions";
        let is_own = |event: &Logged| event.message == message && event.field("endpoint") == local;
        let end = Instant::now() + secs(20);
        while log.all(is_own).is_empty() {
            assert!(Instant::now() < end, "{:?}", endpoint.stats());
            let calls = (0..64).map(|id| labs[id % 2].count(CountRequest { number: 1 }));
            for reply in endpoint.block_on(erpc::join_all(calls.collect::<Vec<_>>())) {
                assert!(reply.is_ok(), "{reply:?}");
            }
        }
        let storm = log.expect(message, is_own);
        assert_kind(&storm, "erpc::network", Level::WARN);
        let number = |name| storm.number(name);
        assert_eq!(
            number("packets"),
            number("after_gap") + number("after_timeout") + number("probes")
        );
        assert!(number("packets") * 10 >= number("sent") && number("packets") >= 100, "{storm:?}");
        assert!(number("within_ms") >= 1_000, "{storm:?}");
    });
}

/// A resolver whose name server is down.
struct Broken;

impl Resolver<UdpRoute> for Broken {
    async fn resolve(&mut self) -> std::io::Result<Vec<UdpRoute>> {
        Err(std::io::Error::other("the name server is down"))
    }

    fn name(&self) -> String {
        "broken.example:31850".into()
    }
}

#[test]
fn names_that_are_not_resolved_are_reported() {
    within(secs(60), || {
        let log = EventLog::install();
        let endpoint = client(EndpointConfig::new());
        let lab = LocalLabClient::new(Channel::to(&endpoint, Broken).build());
        assert!(endpoint.block_on(lab.count(CountRequest { number: 1 })).is_err());
        let unresolved = log.expect("names not resolved", |event| {
            event.field("error").contains("broken.example:31850")
        });
        assert_kind(&unresolved, "erpc::channel", Level::WARN);
        assert!(unresolved.field("error").contains("the name server is down"), "{unresolved:?}");
    });
}
