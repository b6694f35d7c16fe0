//! The simulator's faults over real sockets: the faults that `erpc_sim::plan` draws for two hosts
//! hit both ends of a cable at the same time, while the client makes calls. Sessions have checksums
//! here, because the faulty transport announces that it corrupts packets. So contents are right in
//! all plans.

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

const NAME: &str = "drawn::faults_that_the_simulator_draws_hit_both_ends_of_a_cable";
/// Minimum number of plans. The test adds plans for the faults that these plans do not have.
const PLANS: usize = 10;
/// Longest duration of a plan's faults.
const LONGEST: Duration = secs(2);
/// Time limit of one client process, on a machine with other load.
const LIMIT: Duration = secs(20);
/// Time limit of all plans, on a machine with other load. An idle machine needs 20 s.
const LIMIT_OF_ALL: Duration = secs(60);
/// A request with this id starts the faults.
const BEGIN: u64 = u64::MAX;
/// Calls that must be answered without a failure in between, once the faults are over.
const AFTERWARDS: usize = 300;

/// The faults of packets that are possible without virtual time.
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

/// The part of a simulator's plan that real sockets can have.
struct Drawn {
    seed: u64,
    plan: Plan,
    lasts: Duration,
}

impl Drawn {
    fn new(seed: u64) -> Self {
        /// Start of a run on the simulator's clock, in ns.
        const BEGINNING: u64 = 1_000_000_000;
        let plan = Plan::draw(seed, Scenario::Pair, &Cut::default());
        let lasts = Duration::from_nanos(plan.heal_at.as_nanos() - BEGINNING);
        Self { seed, plan, lasts }
    }

    /// At least [`PLANS`] seeds whose plans together have every fault of [`ON_PACKETS`].
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

    /// The faults of the server if `serves`, otherwise of the client. The server has the faults of
    /// the plan's first endpoint, the client those of the last endpoint.
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
        let socket = Udp::bind(&loopback().address(SERVER)).expect("the server's socket opens");
        let transport = Faulty::new(socket, self.calm());
        let faults = transport.handle();
        let endpoint = Endpoint::new(transport, self.config()).expect("the configuration is valid");
        let begun = Arc::new(AtomicBool::new(false));
        let begins = Arc::clone(&begun);
        let lab = LabService::new(move |id| match id {
            BEGIN => begins.store(true, Ordering::Relaxed),
            id => say(&format!("EXECUTED {id}")),
        });
        endpoint.listen();
        assert!(endpoint.serve(lab.routes(), None), "the endpoint did not serve before");
        end_with_input();
        say("LISTENING");
        endpoint.run_until(|| begun.load(Ordering::Relaxed));
        // Sends the answer to the request that starts the faults, before the faults begin.
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
        let socket = Udp::bind(&loopback().address(CLIENT)).expect("the client's socket opens");
        let transport = Faulty::new(socket, self.calm());
        let faults = transport.handle();
        let endpoint = Endpoint::new(transport, self.config()).expect("the configuration is valid");
        let session = endpoint.connect(SERVER).expect("the server answers");
        let (request, answer) = work(BEGIN, 0, 0);
        let answered = endpoint.block_on(LocalLabClient::new(session).work(request));
        assert_eq!(answered, Ok(answer));

        faults.set_plan(self.faults(false));
        let (load, begun) = (Load::new(LENGTHS), Instant::now());
        let mut rounds = 0;
        while begun.elapsed() < self.lasts {
            rounds += 1;
            round(&load, &endpoint, || begun.elapsed() >= self.lasts);
        }
        faults.set_plan(self.calm());
        // Waits until the server's faults have ended, too. They end a little later than the
        // client's.
        endpoint.run_for(millis(200));
        say_acted(&faults);
        let in_faults = load.answered();
        let failed = load.made() as usize - in_faults;
        assert!(failed == 0 || self.kills(), "seed {}: {failed} calls fail", self.seed);

        // Even without faults, calls fail if the machine stalls a process for longer than the
        // liveness timeout. So the client may try several times.
        let healed = Instant::now();
        loop {
            let before = load.answered();
            let answered = || load.answered() - before;
            round(&load, &endpoint, || answered() >= AFTERWARDS);
            if answered() >= AFTERWARDS {
                break;
            }
            assert!(healed.elapsed() < secs(10), "seed {}: calls still fail", self.seed);
        }
        tell(&load);
        eprintln!(
            "seed {}, {:?} of {}: {in_faults} calls answered, {failed} not, sessions opened {rounds} times",
            self.seed, self.lasts, self.plan.features
        );
        say("DONE");
    }
}

/// Prints the number of times that each fault has acted, for [`add_acted`].
fn say_acted(faults: &FaultHandle) {
    let mut counts = faults.stats().rx;
    counts += faults.stats().tx;
    say(&format!("ACTED {}", numbers(&counts).map(|count| count.to_string()).join(" ")));
}

fn add_acted(sum: &mut [u64; 9], said: &[String]) {
    let acted: Vec<_> = said.iter().filter_map(|line| line.strip_prefix("ACTED ")).collect();
    assert_eq!(acted.len(), 1, "a process prints one line with the counts of faults");
    for (sum, number) in sum.iter_mut().zip(acted[0].split(' ')) {
        *sum += number.parse::<u64>().expect("the count is a number");
    }
}

/// Starts both processes of each plan and compares their output.
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
        assert!(said.iter().any(|line| line == "DONE"), "seed {seed}: the client did not finish");
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
fn faults_that_the_simulator_draws_hit_both_ends_of_a_cable() {
    let role = env::var(ROLE).unwrap_or_default();
    match role.split_once(' ') {
        Some((role, seed)) => {
            let drawn = Drawn::new(seed.parse().expect("the seed is a number"));
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
