//! Fault plans over real sockets. Client and server are processes in separate network namespaces,
//! with a cable between them. With every plan, every call ends once, with the right bytes or a true
//! error, and is executed at most once. The tests also check that every fault of the plan has
//! acted.
//!
//! The tests create the namespaces, which needs root and iproute2. Without them, the tests print
//! the reason and are skipped; if `CI_FULL` is 1, they fail instead. They change nothing outside of
//! their namespaces.
//!
//! Each test runs in three processes: the test itself, its server and its client. The latter two
//! have their role in the variable `ERPC_NAMESPACE_ROLE`.

mod cable;
mod drawn;
mod load;
mod net;

use std::env;
use std::time::{Duration, Instant};

use erpc::raw::DropReason;
use erpc::transport::fault::{FaultCounts, FaultPlan, FaultStats, Faults, Faulty, Outage};
use erpc::{Cause, Endpoint, EndpointConfig, EndpointStats, Server, Udp};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::netns::skip;
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::{LabService, loopback};

use crate::load::{LENGTHS, Load, compare, round, tell};
use crate::net::{CLIENT, Net, ROLE, SERVER, say};

/// Time limit of a client, on a machine with other load.
const LIMIT: Duration = secs(40);

/// The number of times that each fault has acted. New faults must be added here.
fn numbers(counts: &FaultCounts) -> [u64; 9] {
    let FaultCounts { dropped, burst_dropped, outage_dropped, .. } = *counts;
    let FaultCounts { duplicated, reordered, spiked, .. } = *counts;
    let FaultCounts { corrupted, truncated, extended, .. } = *counts;
    [
        dropped,
        burst_dropped,
        outage_dropped,
        duplicated,
        reordered,
        spiked,
        corrupted,
        truncated,
        extended,
    ]
}

/// The faults of the network in a test, and the expected outcomes of calls.
struct NetworkFaults {
    /// The test's name.
    test: &'static str,
    plan: FaultPlan,
    /// The number of times that each fault of the plan has acted.
    acted: fn(&FaultCounts) -> Vec<u64>,
    /// Liveness timeout of both sides.
    liveness: Duration,
    /// Least number of answered calls before the load stops.
    answers: usize,
    /// Least duration of the load.
    lasts: Duration,
    /// The cause with which sessions end. `None` if all sessions survive, so that every call must
    /// be answered.
    fatal: Option<Cause>,
    /// The plan only damages packets, each in at most one way. Then every damaged packet must be
    /// detected.
    only_damage: bool,
}

impl NetworkFaults {
    fn new(test: &'static str, plan: FaultPlan, acted: fn(&FaultCounts) -> Vec<u64>) -> Self {
        let (liveness, lasts) = (secs(10), Duration::ZERO);
        Self { test, plan, acted, liveness, answers: 5_000, lasts, fatal: None, only_damage: false }
    }

    fn config(&self) -> EndpointConfig {
        EndpointConfig::new()
            .ping_interval(self.liveness / 5)
            .liveness_timeout(self.liveness)
            .connect_timeout(secs(10))
    }

    /// Runs the test in the role of this process.
    fn run(self) {
        match env::var(ROLE).as_deref() {
            Ok("server") => self.serve(),
            Ok("client") => within(LIMIT, move || self.call()),
            Ok(role) => panic!("unknown role: {role}"),
            Err(_) => match Net::new() {
                Ok(net) => self.watch(&net),
                Err(reason) => skip(self.test, &reason),
            },
        }
    }

    /// Runs the server, which prints the id of each executed call, until its input ends.
    fn serve(&self) {
        let server = Server::builder()
            .add_service(LabService::new(|id| say(&format!("EXECUTED {id}"))))
            .threads(1)
            .udp(loopback())
            .config(self.config())
            .spawn(SERVER)
            .expect("the server starts");
        end_with_input();
        say("LISTENING");
        server.wait().expect("the server does not fail");
    }

    /// Runs the client: makes calls through the faults, then prints the ending of each call.
    fn call(&self) {
        end_with_input();
        let socket = Udp::bind(&loopback().address(CLIENT)).expect("the client's socket opens");
        let transport = Faulty::new(socket, self.plan.clone());
        let faults = transport.handle();
        let endpoint = Endpoint::new(transport, self.config()).expect("the configuration is valid");
        let (load, begun, mut rounds) = (Load::new(LENGTHS), Instant::now(), 0);
        let is_over = || load.answered() >= self.answers && begun.elapsed() >= self.lasts;
        while !is_over() {
            rounds += 1;
            round(&load, &endpoint, is_over);
        }
        self.check_client(&load, rounds);
        self.check_faults(&faults.stats());
        if self.only_damage {
            let stats = endpoint.stats().expect("called outside of the loop");
            check_damage(&faults.stats().rx, &stats);
        }
        eprintln!(
            "{}: {} of {} calls answered in {:?}, sessions opened {rounds} times; {:?}",
            self.test,
            load.answered(),
            load.made(),
            begun.elapsed(),
            faults.stats()
        );
        say("DONE");
    }

    fn check_client(&self, load: &Load, rounds: u32) {
        tell(load);
        for (id, outcome) in load.outcomes().iter() {
            let cause = outcome.cause();
            assert!(cause.is_none() || cause == self.fatal, "call {id} ends with {outcome:?}");
        }
        assert_eq!(rounds > 1, self.fatal.is_some(), "sessions were opened {rounds} times");
    }

    /// Checks the fault injector: each fault of the plan has acted in both directions.
    fn check_faults(&self, stats: &FaultStats) {
        for (direction, counts) in [("received", &stats.rx), ("sent", &stats.tx)] {
            let acted = (self.acted)(counts);
            assert!(acted.iter().all(|&times| times > 0), "{direction}: {counts:?}");
        }
    }

    /// Starts both processes and compares their output.
    fn watch(&self, net: &Net) {
        let mut server = Net::start(&net.server, "server", self.test);
        while server.line() != "LISTENING" {}
        let mut client = Net::start(&net.client, "client", self.test);
        let said = client.rest();
        client.finish();
        assert!(said.iter().any(|line| line == "DONE"), "the client did not finish: {said:?}");
        server.kill();
        let answered = compare(&server.rest(), &said);
        assert!(answered >= self.answers, "{answered} calls were answered");
    }
}

/// Checks that no damaged packet was delivered: all were dropped, for reasons that intact packets
/// never have.
fn check_damage(received: &FaultCounts, stats: &EndpointStats) {
    let dropped: u64 = [
        DropReason::Truncated,
        DropReason::Version,
        DropReason::Flags,
        DropReason::Checksum,
        DropReason::Trailer,
        DropReason::Control,
        DropReason::UnknownConnection,
        DropReason::WrongRole,
        DropReason::LyingSize,
    ]
    .iter()
    .map(|reason| stats.protocol.dropped(*reason))
    .sum();
    let damaged = received.corrupted + received.truncated + received.extended;
    let by_reason = DropReason::ALL.map(|reason| (reason, stats.protocol.dropped(reason)));
    assert_eq!(dropped + stats.transport.rx_truncated, damaged, "{by_reason:?}");
}

/// A plan that drops all packets of more than `over` bytes, in both directions, between `from` and
/// `until`.
fn outage(seed: u64, from: Duration, until: Duration, over: usize) -> FaultPlan {
    FaultPlan::new(seed).both(Faults::none().outage(Outage { from, until, over }))
}

#[test]
fn a_third_of_the_packets_is_lost() {
    let plan = FaultPlan::new(1).both(Faults::none().drop(0.3));
    NetworkFaults::new("a_third_of_the_packets_is_lost", plan, |acted| vec![acted.dropped]).run();
}

#[test]
fn losses_come_in_bursts() {
    let plan = FaultPlan::new(2).both(Faults::none().bursts(0.02, 10.0, 0.9));
    NetworkFaults::new("losses_come_in_bursts", plan, |acted| vec![acted.burst_dropped]).run();
}

#[test]
fn packets_are_duplicated_and_reordered() {
    let faults = Faults::none().duplicate(0.2, 5, millis(30)).reorder(0.2, millis(3));
    NetworkFaults::new(
        "packets_are_duplicated_and_reordered",
        FaultPlan::new(3).both(faults),
        |acted| vec![acted.duplicated, acted.reordered],
    )
    .run();
}

#[test]
fn bits_are_flipped() {
    let plan = FaultPlan::new(4).both(Faults::none().corrupt(0.1));
    let faults = NetworkFaults::new("bits_are_flipped", plan, |acted| vec![acted.corrupted]);
    NetworkFaults { only_damage: true, ..faults }.run();
}

#[test]
fn packets_are_truncated() {
    let plan = FaultPlan::new(11).both(Faults::none().truncate(0.1));
    let faults = NetworkFaults::new("packets_are_truncated", plan, |acted| vec![acted.truncated]);
    NetworkFaults { only_damage: true, ..faults }.run();
}

#[test]
fn packets_are_extended() {
    let plan = FaultPlan::new(12).both(Faults::none().extend(0.1));
    let faults = NetworkFaults::new("packets_are_extended", plan, |acted| vec![acted.extended]);
    NetworkFaults { only_damage: true, ..faults }.run();
}

#[test]
fn some_packets_are_late() {
    let plan = FaultPlan::new(5).both(Faults::none().spike(0.01, millis(600)));
    let faults = NetworkFaults::new("some_packets_are_late", plan, |acted| vec![acted.spiked]);
    // The load lasts long enough that late packets arrive after their calls have ended.
    NetworkFaults { lasts: millis(1_500), ..faults }.run();
}

#[test]
fn an_outage_shorter_than_the_liveness_timeout_loses_no_call() {
    const NAME: &str = "an_outage_shorter_than_the_liveness_timeout_loses_no_call";
    let plan = outage(6, millis(200), millis(900), 0);
    let faults = NetworkFaults::new(NAME, plan, |acted| vec![acted.outage_dropped]);
    NetworkFaults { liveness: secs(5), lasts: millis(1_200), ..faults }.run();
}

#[test]
fn after_an_outage_longer_than_the_liveness_timeout_new_sessions_work() {
    const NAME: &str = "after_an_outage_longer_than_the_liveness_timeout_new_sessions_work";
    let plan = outage(7, millis(300), millis(2_800), 0);
    let faults = NetworkFaults::new(NAME, plan, |acted| vec![acted.outage_dropped]);
    let fatal = Some(Cause::PeerDead);
    NetworkFaults { liveness: millis(1_000), lasts: millis(3_200), fatal, ..faults }.run();
}

#[test]
fn an_mtu_that_shrinks_for_a_while_loses_no_call() {
    const NAME: &str = "an_mtu_that_shrinks_for_a_while_loses_no_call";
    let plan = outage(8, millis(200), millis(900), 1_400);
    let faults = NetworkFaults::new(NAME, plan, |acted| vec![acted.outage_dropped]);
    NetworkFaults { liveness: secs(5), lasts: millis(1_200), ..faults }.run();
}

#[test]
fn an_mtu_that_shrinks_for_longer_than_the_liveness_timeout_loses_no_call() {
    const NAME: &str = "an_mtu_that_shrinks_for_longer_than_the_liveness_timeout_loses_no_call";
    let plan = outage(9, millis(200), millis(2_800), 1_400);
    let faults = NetworkFaults::new(NAME, plan, |acted| vec![acted.outage_dropped]);
    NetworkFaults { liveness: millis(1_000), lasts: millis(3_200), ..faults }.run();
}

#[test]
fn a_path_that_drops_large_packets_from_the_beginning_loses_no_call() {
    const NAME: &str = "a_path_that_drops_large_packets_from_the_beginning_loses_no_call";
    let over = |over| Faults::none().outage(Outage { from: millis(0), until: secs(60), over });
    // Some path probes reach the server, but their answers do not reach the client.
    let plan = FaultPlan::new(13).sending(over(1_400)).receiving(over(1_300));
    let faults = NetworkFaults::new(NAME, plan, |acted| vec![acted.outage_dropped]);
    NetworkFaults { lasts: millis(1_200), ..faults }.run();
}

#[test]
fn all_faults_together_lose_no_call() {
    let faults = Faults::none()
        .drop(0.05)
        .bursts(0.005, 5.0, 0.8)
        .duplicate(0.05, 5, millis(50))
        .reorder(0.1, millis(2))
        .spike(0.005, millis(300))
        .corrupt(0.02)
        .truncate(0.02)
        .extend(0.02);
    // The way back fails first, so that it has answers to drop.
    let outages = |faults: Faults, begin| {
        faults.outage(Outage { from: begin, until: millis(600), over: 0 }).outage(Outage {
            from: millis(700),
            until: millis(900),
            over: 1_400,
        })
    };
    let plan = FaultPlan::new(10)
        .sending(outages(faults.clone(), millis(400)))
        .receiving(outages(faults, millis(300)));
    let faults = NetworkFaults::new("all_faults_together_lose_no_call", plan, |acted| {
        numbers(acted).to_vec()
    });
    NetworkFaults { lasts: millis(1_200), ..faults }.run();
}
