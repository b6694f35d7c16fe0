//! The simulator's faults over real sockets: what `erpc_sim::plan` draws for two hosts happens to both
//! ends of a cable, at the same time, while calls are made. Sessions carry checksums here, because the
//! faulty transport says that it damages packets: contents are right in all plans.

use std::env;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use erpc::transport::fault::{FaultHandle, FaultPlan, Faults, Faulty};
use erpc::{Endpoint, EndpointConfig, Udp};
use erpc_sim::plan::{Cut, Plan};
use erpc_sim::{Feature, Features, Scenario};
use erpc_test_tools::limit::{millis, secs, within};
use erpc_test_tools::netns::skip;
use erpc_test_tools::process::end_with_input;
use erpc_tests::lab::{LabService, loopback, work};
use erpc_tests::proto::*;

use crate::load::{LENGTHS, Load, compare, round, tell};
use crate::net::{CLIENT, Net, ROLE, SERVER, say};
use crate::numbers;

const NAME: &str = "drawn::what_the_simulator_draws_happens_to_both_ends_of_a_cable";
/// Plans that are tried, at least; further ones bring the faults that these do not have.
const PLANS: usize = 10;
/// The longest time for which a plan's faults may go on.
const LONGEST: Duration = secs(2);
/// Of one process, and of all, on a machine that has other things to do: it takes 20 s on one.
const LIMIT: Duration = secs(20);
const LIMIT_OF_ALL: Duration = secs(60);
/// A request with this id begins the faults.
const BEGIN: u64 = u64::MAX;
/// Calls that must be answered one after another once the faults are over.
const AFTERWARDS: usize = 300;

/// What happens to packets, in a world without virtual time.
const ON_PACKETS: [Feature; 11] = [
    Feature::Loss,
    Feature::Bursts,
    Feature::Duplicates,
    Feature::Reorder,
    Feature::Spikes,
    Feature::Corruption,
    Feature::Truncation,
    Feature::Extension,
    Feature::Partitions,
    Feature::OneWay,
    Feature::MtuShrink,
];

/// A plan of the simulator's, as far as sockets can have it.
struct Drawn {
    seed: u64,
    plan: Plan,
    lasts: Duration,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        /// On the simulator's clock.
        const BEGINNING: u64 = 1_000_000_000;
        let plan = Plan::draw(seed, Scenario::Pair, &Cut::default());
        let lasts = Duration::from_nanos(plan.heal_at.as_nanos() - BEGINNING);
        Self { seed, plan, lasts }
    }

    /// Seeds that between them have every fault.
    fn seeds() -> Vec<u64> {
        let (mut seeds, mut missing) = (Vec::new(), Features::of(&ON_PACKETS));
        for drawn in (0..).map(Self::new) {
            let features = drawn.plan.features;
            let brings_one = missing.iter().any(|feature| features.has(feature));
            let is_wanted = brings_one || seeds.len() < PLANS;
            if drawn.lasts <= LONGEST && features.has_any(&ON_PACKETS) && is_wanted {
                seeds.push(drawn.seed);
                missing = features.iter().fold(missing, Features::without);
            }
            if seeds.len() >= PLANS && missing == Features::none() {
                break;
            }
        }
        seeds
    }

    /// Whether calls may fail.
    fn kills(&self) -> bool {
        !self.plan.features.spare_sessions()
    }

    fn config(&self) -> EndpointConfig {
        let liveness = if self.kills() { millis(500) } else { secs(10) };
        EndpointConfig::new()
            .ping_interval(liveness / 5)
            .liveness_timeout(liveness)
            .connect_timeout(secs(1))
    }

    /// Of the first endpoint or the last: there is one client.
    fn faults(&self, serves: bool) -> FaultPlan {
        let endpoints = &self.plan.endpoints;
        let endpoint = if serves { endpoints.first() } else { endpoints.last() };
        let (rx, tx) = endpoint.map_or((Faults::none(), Faults::none()), |of| of.faults.clone());
        FaultPlan::new(self.seed * 2 + u64::from(serves)).receiving(rx).sending(tx)
    }

    fn calm(&self) -> FaultPlan {
        FaultPlan::new(self.seed)
    }

    fn serve(&self) {
        let socket = Udp::bind(&loopback().address(SERVER)).expect("the server's socket");
        let transport = Faulty::new(socket, self.calm());
        let faults = transport.handle();
        let endpoint = Endpoint::new(transport, self.config()).expect("the server's endpoint");
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let lab = LabService::new(move |id| match id {
            BEGIN => begins.store(true, Ordering::Relaxed),
            id => say(&format!("EXECUTED {id}")),
        });
        endpoint.listen();
        assert!(endpoint.serve(lab.routes(), None), "it serves once");
        end_with_input();
        say("LISTENING");
        endpoint.run_until(|| begun.load(Ordering::Relaxed));
        // The answer goes out.
        endpoint.run_for(millis(2));
        faults.set_plan(self.faults(true));
        endpoint.run_for(self.lasts);
        faults.set_plan(self.calm());
        endpoint.run_for(millis(20));
        say_acted(&faults);
        endpoint.run_until(|| false);
    }

    fn call(&self) {
        end_with_input();
        let socket = Udp::bind(&loopback().address(CLIENT)).expect("the client's socket");
        let transport = Faulty::new(socket, self.calm());
        let faults = transport.handle();
        let endpoint = Endpoint::new(transport, self.config()).expect("the client's endpoint");
        let session = endpoint.connect(SERVER).expect("the server is there");
        let (request, answer) = work(BEGIN, 0, 0);
        let answered = endpoint.block_on(LabClient::new(session).work(request));
        assert_eq!(answered, Ok(answer));

        faults.set_plan(self.faults(false));
        let (load, begun) = (Load::new(LENGTHS), Instant::now());
        let mut rounds = 0;
        while begun.elapsed() < self.lasts {
            rounds += 1;
            round(&load, &endpoint, || begun.elapsed() >= self.lasts);
        }
        faults.set_plan(self.calm());
        // The other end is a little later.
        endpoint.run_for(millis(200));
        say_acted(&faults);
        let in_faults = load.answered();
        let failed = load.made() as usize - in_faults;
        assert!(failed == 0 || self.kills(), "seed {}: {failed} calls fail", self.seed);

        // The machine may stop a process for longer than peers wait; not all the time.
        let healed = Instant::now();
        loop {
            let before = load.answered();
            let answered = || load.answered() - before;
            round(&load, &endpoint, || answered() >= AFTERWARDS);
            if answered() >= AFTERWARDS {
                break;
            }
            assert!(healed.elapsed() < secs(10), "seed {}: it does not heal", self.seed);
        }
        tell(&load);
        eprintln!(
            "seed {}, {:?} of {}: {in_faults} calls answered, {failed} not, {rounds} times sessions",
            self.seed, self.lasts, self.plan.features
        );
        say("DONE");
    }
}

/// Says how often each fault has acted, for [`add_acted`].
fn say_acted(faults: &FaultHandle) {
    let mut counts = faults.stats().rx;
    counts += faults.stats().tx;
    say(&format!("ACTED {}", numbers(&counts).map(|count| count.to_string()).join(" ")));
}

fn add_acted(sum: &mut [u64; 9], said: &[String]) {
    let acted: Vec<_> = said.iter().filter_map(|line| line.strip_prefix("ACTED ")).collect();
    assert_eq!(acted.len(), 1, "a process says once what acted");
    for (sum, number) in sum.iter_mut().zip(acted[0].split(' ')) {
        *sum += number.parse::<u64>().expect("a number");
    }
}

/// Starts both processes of each plan and compares what they say.
fn watch(net: &Net) {
    let (mut acted, mut answered) = ([0; 9], 0);
    let (seeds, begun) = (Drawn::seeds(), Instant::now());
    for seed in &seeds {
        assert!(begun.elapsed() < LIMIT_OF_ALL, "the plans before seed {seed} take too long");
        let mut server = Net::start(&net.server, &format!("server {seed}"), NAME);
        while server.line() != "LISTENING" {}
        let mut client = Net::start(&net.client, &format!("client {seed}"), NAME);
        let said = client.rest();
        client.finish();
        assert!(said.iter().any(|line| line == "DONE"), "seed {seed}: the client did nothing");
        server.kill();
        let heard = server.rest();
        answered += compare(&heard, &said);
        add_acted(&mut acted, &said);
        add_acted(&mut acted, &heard);
    }
    assert!(acted.iter().all(|&times| times > 0), "a fault of {seeds:?} never acted: {acted:?}");
    assert!(answered > seeds.len() * AFTERWARDS, "{answered} calls were answered");
}

#[test]
fn what_the_simulator_draws_happens_to_both_ends_of_a_cable() {
    let role = env::var(ROLE).unwrap_or_default();
    match role.split_once(' ') {
        Some((role, seed)) => {
            let drawn = Drawn::new(seed.parse().expect("a seed"));
            match role {
                "server" => drawn.serve(),
                _ => within(LIMIT, move || drawn.call()),
            }
        }
        None => match Net::new() {
            Ok(net) => watch(&net),
            Err(reason) => skip(NAME, &reason),
        },
    }
}
