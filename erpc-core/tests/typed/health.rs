//! The health of services: reporters, and channels that avoid servers that do not serve.

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::Poll;
use std::time::Duration;

use erpc_core::calling::CallOptions;
use erpc_core::client::{Channel, Session};
use erpc_core::health::{
    CHECK, HealthCheckRequest, HealthCheckResponse, HealthReporter, ServingStatus, WATCH,
};
use erpc_core::protocol::{CallError, Cause, EndpointConfig};
use erpc_core::service::{Outgoing, Request, Routes};
use erpc_core::status::{Code, Status};
use erpc_core::transport::mem::MemTransport;

use crate::support::number;
use crate::test_bed::{SERVER, TestBed, poll};
use crate::world::{WHO, World};

const MS: Duration = Duration::from_millis(1);
const SERVICE: &str = "test.World";

/// A world whose servers report that they serve.
fn world(servers: u64) -> World {
    let world = World::asleep(servers);
    for index in 0..servers as usize {
        world.behaviours[index].health.set(SERVICE, ServingStatus::Serving);
        world.start(index);
    }
    world
}

fn channel(world: &World) -> Channel<MemTransport> {
    let channel = Channel::to(&world.client, world.routes()).health_check(SERVICE).build();
    world.finish(channel.call(&WHO, &number(0))).unwrap();
    world.run_for(MS);
    channel
}

/// The servers that answer twelve calls.
fn answering(world: &World, channel: &Channel<MemTransport>) -> Vec<u64> {
    let mut servers: Vec<u64> =
        (0..12).map(|_| world.finish(channel.call(&WHO, &number(0))).unwrap()).collect();
    servers.sort_unstable();
    servers.dedup();
    servers
}

#[test]
fn a_server_that_does_not_serve_gets_no_calls_until_it_serves() {
    let world = world(3);
    let channel = channel(&world);
    assert_eq!(answering(&world, &channel), [0, 1, 2]);
    let health = &world.behaviours[1].health;
    for _ in 0..3 {
        health.set(SERVICE, ServingStatus::NotServing);
        world.run_for(MS);
        assert_eq!(answering(&world, &channel), [0, 2]);
        health.set(SERVICE, ServingStatus::Serving);
        world.run_for(MS);
        assert_eq!(answering(&world, &channel), [0, 1, 2]);
    }
}

#[test]
fn the_health_of_other_services_does_not_matter() {
    let world = world(2);
    let channel = channel(&world);
    world.behaviours[0].health.set("test.Other", ServingStatus::NotServing);
    world.behaviours[1].health.set("", ServingStatus::NotServing);
    world.run_for(MS);
    assert_eq!(answering(&world, &channel), [0, 1]);
}

#[test]
fn a_server_that_does_not_report_its_health_counts_as_serving() {
    let world = World::asleep(2);
    world.behaviours[0].is_silent.store(true, Ordering::Relaxed);
    (0..2).for_each(|index| world.start(index));
    let channel = channel(&world);
    assert_eq!(answering(&world, &channel), [0], "server 1 does not know the service");
}

#[test]
fn calls_fail_or_wait_while_no_server_serves() {
    let world = world(2);
    let channel = channel(&world);
    for server in &world.behaviours {
        server.health.set(SERVICE, ServingStatus::NotServing);
    }
    world.run_for(MS);
    match world.finish(channel.call(&WHO, &number(0))) {
        Err(CallError::NoServer(why)) => {
            assert_eq!(why.cause(), Cause::NotServing);
            let text = why.to_string();
            assert!(text.contains("1000") && text.contains("1001"), "{text}");
            assert!(text.contains("do not serve"), "{text}");
        }
        other => panic!("{other:?}"),
    }
    let error = world.wait(channel.ready()).unwrap_err();
    assert!(error.to_string().contains("do not serve"), "{error}");
    let waits = channel.with(CallOptions::new().wait_for_ready(true));
    let call = waits.call(&WHO, &number(0));
    world.run_for(1_000 * MS);
    assert!(!call.is_ready());
    world.behaviours[1].health.set(SERVICE, ServingStatus::Serving);
    assert_eq!(world.finish(call), Ok(1));
}

#[test]
fn the_first_calls_wait_for_the_first_report() {
    let world = world(2);
    world.behaviours[0].health.set(SERVICE, ServingStatus::NotServing);
    let channel = Channel::to(&world.client, world.routes()).health_check(SERVICE).build();
    let calls: Vec<_> = (0..6).map(|_| channel.call(&WHO, &number(0))).collect();
    for call in calls {
        assert_eq!(world.finish(call), Ok(1));
    }
    assert_eq!(world.behaviours[0].handled(), 0);
}

#[test]
fn a_server_that_restarts_is_asked_again() {
    let world = world(2);
    let channel = channel(&world);
    for status in [ServingStatus::NotServing, ServingStatus::Serving] {
        world.stop(1);
        world.run_until(|| channel.backends()[1].sessions == 0);
        world.behaviours[1].health.set(SERVICE, status);
        world.run_for(300 * MS);
        world.start(1);
        world.run_until(|| channel.backends()[1].sessions == 1);
        world.run_for(MS);
        let serves = status == ServingStatus::Serving;
        assert_eq!(answering(&world, &channel).contains(&1), serves, "{status:?}");
    }
}

#[test]
fn watching_clients_are_told_of_a_drain_and_do_not_delay_it() {
    let world = world(2);
    let channel = channel(&world);
    let session = world.client.open(World::route(0));
    let mut reports = watch(&session, SERVICE);
    assert_eq!(next(&world, &mut reports), Some(ServingStatus::Serving));
    world.behaviours[0].health.shut_down();
    let begun = world.now();
    let drain = world.drain(0, 1_000 * MS);
    assert_eq!(next(&world, &mut reports), Some(ServingStatus::NotServing));
    assert_eq!(next(&world, &mut reports), None);
    drop((reports, session));
    assert_eq!(world.wait(drain), 0);
    assert!(world.now() - begun < 10 * MS, "{:?}", world.now() - begun);
    assert_eq!(answering(&world, &channel), [1]);
}

type Reports = erpc_core::service::Incoming<erpc_core::health::HealthCheckResponse>;

fn watch(session: &Session<MemTransport>, service: &str) -> Reports {
    session.server_streaming(&WATCH, &HealthCheckRequest { service: service.to_owned() })
}

fn next(world: &World, reports: &mut Reports) -> Option<ServingStatus> {
    world.wait(reports.next()).unwrap().map(|report| report.status())
}

#[test]
fn a_check_and_a_watch_report_the_status() {
    let world = world(1);
    let session = world.client.open(World::route(0));
    let check = |service: &str| {
        let request = HealthCheckRequest { service: service.to_owned() };
        world.wait(session.call(&CHECK, &request)).map(|report| report.status())
    };
    let health = &world.behaviours[0].health;
    assert_eq!(
        (check(""), check(SERVICE)),
        (Ok(ServingStatus::Serving), Ok(ServingStatus::Serving))
    );
    assert_eq!(check("test.Unknown").unwrap_err().code(), Code::NotFound);
    let mut unknown = watch(&session, "test.Unknown");
    assert_eq!(next(&world, &mut unknown), Some(ServingStatus::ServiceUnknown));
    let mut reports = watch(&session, SERVICE);
    assert_eq!(next(&world, &mut reports), Some(ServingStatus::Serving));
    health.set(SERVICE, ServingStatus::NotServing);
    assert_eq!(next(&world, &mut reports), Some(ServingStatus::NotServing));
    assert_eq!(check(SERVICE), Ok(ServingStatus::NotServing));
    health.set("test.Unknown", ServingStatus::Serving);
    assert_eq!(next(&world, &mut unknown), Some(ServingStatus::Serving));
}

#[test]
fn no_service_serves_after_the_reporter_was_shut_down() {
    let health = HealthReporter::new();
    health.set(SERVICE, ServingStatus::Serving);
    health.shut_down();
    health.set(SERVICE, ServingStatus::Serving);
    assert_eq!(health.status(SERVICE), ServingStatus::NotServing);
    assert_eq!(health.status(""), ServingStatus::NotServing);
    assert_eq!(health.status("test.Unknown"), ServingStatus::ServiceUnknown);
}

/// A server whose watches are counted.
struct Watched {
    began: AtomicU64,
    first_report: FirstReport,
}

/// The first report of a watch with this number, from 1, if there is one. `Err` if the server does
/// not report its health.
type FirstReport = fn(u64) -> Result<Option<ServingStatus>, Status>;

impl Watched {
    async fn watch(
        &self,
        _: Request<'_, HealthCheckRequest>,
        out: Outgoing<HealthCheckResponse>,
    ) -> Result<(), Status> {
        let number = self.began.fetch_add(1, Ordering::Relaxed) + 1;
        if let Some(status) = (self.first_report)(number)? {
            out.send(HealthCheckResponse { status: status.into() }).await?;
        }
        std::future::pending().await
    }
}

fn watched(first_report: FirstReport, client: EndpointConfig) -> (TestBed, Arc<Watched>) {
    let service = Arc::new(Watched { began: AtomicU64::new(0), first_report });
    let mut routes = Routes::new();
    routes.server_streaming(WATCH, &service, Watched::watch).unwrap();
    (TestBed::with(routes, client, EndpointConfig::new()), service)
}

#[test]
fn a_server_that_does_not_report_in_time_counts_as_not_serving() {
    let (bed, service) = watched(|_| Ok(None), EndpointConfig::new());
    let channel = Channel::to(&bed.client(), vec![SERVER]).health_check(SERVICE).build();
    let begun = bed.now();
    let error = bed.wait(channel.ready()).unwrap_err();
    assert!(error.to_string().contains("do not serve"), "{error}");
    let took = bed.now() - begun;
    assert!((2_000 * MS..2_200 * MS).contains(&took), "{took:?}");
    assert_eq!(service.began.load(Ordering::Relaxed), 1, "the watch goes on");
}

/// Whether a call would find a server that serves.
fn is_ready(channel: &Channel<MemTransport>) -> bool {
    matches!(poll(pin!(channel.ready())), Poll::Ready(Ok(())))
}

/// A channel with two sessions, of which the second opens after the watch has begun.
struct LateSession {
    bed: TestBed,
    service: Arc<Watched>,
    channel: Channel<MemTransport>,
}

impl LateSession {
    /// Runs until the second session is open. Before and after that, the channel is ready.
    ///
    /// The second session or the watch opens first, by chance. `None` if it is the second session.
    fn after(millis: u32, first_report: FirstReport) -> Option<Self> {
        // The client may have three sessions. Two of them are in use elsewhere at first.
        let (bed, service) = watched(first_report, EndpointConfig::new().max_sessions(3));
        let client = bed.client();
        let mut others = vec![bed.session(), bed.session()];
        let began = || service.began.load(Ordering::Relaxed);
        let channel = Channel::to(&client, vec![SERVER]).health_check(SERVICE).sessions(2);
        let channel = channel.backoff(20 * MS, 20 * MS).build();
        let is_ready = || is_ready(&channel);
        assert!(!is_ready());
        bed.run_for(millis * MS);
        let sessions = || channel.backends()[0].sessions;
        assert_eq!(sessions(), 1);
        others.pop();
        bed.until("the place is taken", || began() == 1 || sessions() == 2);
        if sessions() == 2 {
            return None;
        }
        bed.until("the server reports", is_ready);
        others.pop();
        bed.until("the second session is open", || {
            assert!(is_ready(), "the server still serves");
            sessions() == 2
        });
        Some(Self { bed, service, channel })
    }

    fn all(first_report: FirstReport) -> Vec<Self> {
        let all: Vec<_> = (20..40).filter_map(|millis| Self::after(millis, first_report)).collect();
        assert!(!all.is_empty());
        all
    }

    fn is_ready(&self) -> bool {
        is_ready(&self.channel)
    }

    /// Number of watches that the server has seen.
    fn began(&self) -> u64 {
        self.service.began.load(Ordering::Relaxed)
    }
}

#[test]
fn a_further_session_to_a_server_that_reports_asks_nothing_and_takes_it_no_calls() {
    for late in LateSession::all(|_| Ok(Some(ServingStatus::Serving))) {
        for _ in 0..1_000 {
            assert!(late.is_ready(), "the server still serves");
            late.bed.turn();
        }
        assert_eq!(late.began(), 1);
    }
}

#[test]
fn a_server_that_does_not_report_is_asked_again_when_any_session_opens() {
    // The first watch reaches a server that does not report. The session that opens after it may
    // lead to another server at the same address, which reports that it does not serve.
    let changed: FirstReport = |number| match number {
        1 => Err(Status::unimplemented("the test's status")),
        _ => Ok(Some(ServingStatus::NotServing)),
    };
    for late in LateSession::all(changed) {
        late.bed.until("the channel heeds the report", || !late.is_ready());
        assert_eq!(late.began(), 2);
    }
}
