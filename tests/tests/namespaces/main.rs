//! Fault plans over real sockets: client and server are processes in network namespaces of their own,
//! with a cable between them. Whatever the plan does, every call ends once, with the right bytes or a
//! true error, and was executed at most once; and every fault of the plan was seen to act.
//!
//! The tests make the namespaces, which takes root and iproute2. Where they are missing the tests say so
//! and do nothing else, unless `ERPC_REQUIRE_NAMESPACES` is set. Nothing outside of their namespaces is
//! touched.
//!
//! Each test runs three times: as itself, and, as `ERPC_NAMESPACE_ROLE` says, as its server and its
//! client.

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

/// Of a client, on a machine that has other things to do.
const LIMIT: Duration = secs(40);

/// How often each fault has acted.
fn numbers(counts: &FaultCounts) -> [u64; 9] {
    // Whoever adds a fault adds it here.
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

/// What the network does in a test, and what is expected of the calls.
struct NetworkFaults {
    /// The test's name.
    test: &'static str,
    plan: FaultPlan,
    /// How often each fault of the plan has acted.
    acted: fn(&FaultCounts) -> Vec<u64>,
    /// Of both sides.
    liveness: Duration,
    /// Calls go on until so many are answered, and for as long as this.
    answers: usize,
    lasts: Duration,
    /// What ends sessions; `None` if nothing does, so that no call may fail.
    fatal: Option<Cause>,
    /// A packet suffers one kind of damage or nothing: each that did must have been found out.
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

    /// The test, in whichever of its roles.
    fn run(self) {
        match env::var(ROLE).as_deref() {
            Ok("server") => self.serve(),
            Ok("client") => within(LIMIT, move || self.call()),
            Ok(role) => panic!("{role} is no role"),
            Err(_) => match Net::new() {
                Ok(net) => self.watch(&net),
                Err(reason) => skip(self.test, &reason),
            },
        }
    }

    /// Says what it executes, until its input ends.
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
        server.wait().expect("the server goes on");
    }

    /// Calls through the faults, then says how each call has ended.
    fn call(&self) {
        end_with_input();
        let socket = Udp::bind(&loopback().address(CLIENT)).expect("the client's socket");
        let transport = Faulty::new(socket, self.plan.clone());
        let faults = transport.handle();
        let endpoint = Endpoint::new(transport, self.config()).expect("the client's endpoint");
        let (load, begun, mut rounds) = (Load::new(LENGTHS), Instant::now(), 0);
        let is_over = || load.answered() >= self.answers && begun.elapsed() >= self.lasts;
        while !is_over() {
            rounds += 1;
            round(&load, &endpoint, is_over);
        }
        self.check_client(&load, rounds);
        self.check_faults(&faults.stats());
        if self.only_damage {
            check_damage(&faults.stats().rx, &endpoint.stats().expect("outside of the loop"));
        }
        eprintln!(
            "{}: {} of {} calls answered in {:?}, {rounds} times sessions; {:?}",
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

    /// A fault injector is itself tested: what is in the plan was seen to act.
    fn check_faults(&self, stats: &FaultStats) {
        for (direction, counts) in [("received", &stats.rx), ("sent", &stats.tx)] {
            let acted = (self.acted)(counts);
            assert!(acted.iter().all(|&times| times > 0), "{direction}: {counts:?}");
        }
    }

    /// Starts both processes and compares what they say.
    fn watch(&self, net: &Net) {
        let mut server = Net::start(&net.server, "server", self.test);
        while server.line() != "LISTENING" {}
        let mut client = Net::start(&net.client, "client", self.test);
        let said = client.rest();
        client.finish();
        assert!(said.iter().any(|line| line == "DONE"), "the client did nothing: {said:?}");
        server.kill();
        let answered = compare(&server.rest(), &said);
        assert!(answered >= self.answers, "{answered} calls were answered");
    }
}

/// No damaged packet was delivered: all were dropped for reasons that intact packets do not have.
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

/// A time without a network, or with a smaller one, in both directions.
fn outage(seed: u64, from: Duration, until: Duration, over: usize) -> FaultPlan {
    FaultPlan::new(seed).both(Faults::none().outage(Outage { from, until, over }))
}

#[test]
fn a_third_is_lost_each_way() {
    let plan = FaultPlan::new(1).both(Faults::none().drop(0.3));
    NetworkFaults::new("a_third_is_lost_each_way", plan, |acted| vec![acted.dropped]).run();
}

#[test]
fn losses_come_in_bursts() {
    let plan = FaultPlan::new(2).both(Faults::none().bursts(0.02, 10.0, 0.9));
    NetworkFaults::new("losses_come_in_bursts", plan, |acted| vec![acted.burst_dropped]).run();
}

#[test]
fn packets_come_again_and_out_of_order() {
    let faults = Faults::none().duplicate(0.2, 5, millis(30)).reorder(0.2, millis(3));
    NetworkFaults::new(
        "packets_come_again_and_out_of_order",
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
fn packets_are_cut_short() {
    let plan = FaultPlan::new(11).both(Faults::none().truncate(0.1));
    let faults = NetworkFaults::new("packets_are_cut_short", plan, |acted| vec![acted.truncated]);
    NetworkFaults { only_damage: true, ..faults }.run();
}

#[test]
fn packets_grow() {
    let plan = FaultPlan::new(12).both(Faults::none().extend(0.1));
    let faults = NetworkFaults::new("packets_grow", plan, |acted| vec![acted.extended]);
    NetworkFaults { only_damage: true, ..faults }.run();
}

#[test]
fn some_packets_take_long() {
    let plan = FaultPlan::new(5).both(Faults::none().spike(0.01, millis(600)));
    let faults = NetworkFaults::new("some_packets_take_long", plan, |acted| vec![acted.spiked]);
    // So long that the late ones come back to calls that are long over.
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
fn a_path_that_swallows_large_packets_from_the_beginning_loses_no_call() {
    const NAME: &str = "a_path_that_swallows_large_packets_from_the_beginning_loses_no_call";
    let over = |over| Faults::none().outage(Outage { from: millis(0), until: secs(60), over });
    // Probes that get there do not all come back.
    let plan = FaultPlan::new(13).sending(over(1_400)).receiving(over(1_300));
    let faults = NetworkFaults::new(NAME, plan, |acted| vec![acted.outage_dropped]);
    NetworkFaults { lasts: millis(1_200), ..faults }.run();
}

#[test]
fn everything_at_once() {
    let faults = Faults::none()
        .drop(0.05)
        .bursts(0.005, 5.0, 0.8)
        .duplicate(0.05, 5, millis(50))
        .reorder(0.1, millis(2))
        .spike(0.005, millis(300))
        .corrupt(0.02)
        .truncate(0.02)
        .extend(0.02)
        .outage(Outage { from: millis(300), until: millis(600), over: 0 })
        .outage(Outage { from: millis(700), until: millis(900), over: 1_400 });
    let faults =
        NetworkFaults::new("everything_at_once", FaultPlan::new(10).both(faults), |acted| {
            numbers(acted).to_vec()
        });
    NetworkFaults { lasts: millis(1_200), ..faults }.run();
}
