//! Networks that lose packets, and servers that are killed.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use erpc::transport::fault::{FaultHandle, FaultPlan, Faults, Faulty};
use erpc::{CongestionControl, Endpoint, EndpointConfig};
use erpc_test_tools::limit::{millis, secs, within};

use super::{Network, Side};
use crate::lab::LabService;
use crate::load::{Ending, Lengths, Load, judge};
use crate::proto::LocalLabClient;

type Executed = Arc<Mutex<Vec<u64>>>;

fn executed(ids: &Executed) -> Vec<u64> {
    ids.lock().expect("no thread panicked").clone()
}

/// One packet in ten is lost in each direction. Every call ends once with the right bytes, and was
/// executed once.
pub fn every_call_is_executed_once_despite_losses<N: Network>() {
    within(secs(120), || calls_survive_a_tenth_lost(&N::new(), 10_000, 11));
}

/// Makes at least `calls` calls through losses of `seed`.
///
/// # Panics
/// If a call fails, or is not executed exactly once, or fewer packets were lost than should be.
pub fn calls_survive_a_tenth_lost<N: Network>(network: &N, calls: usize, seed: u64) {
    // Most messages are small, some need several packets at any datagram size, a few have up to 1
    // MiB.
    const LENGTHS: Lengths =
        &[(100, 1), (700, 200), (170, 4_000), (20, 40_000), (6, 160_000), (4, 1 << 20)];
    let ids = Executed::default();
    let note = Arc::clone(&ids);
    let service = LabService::<N::Transport>::over(move |id| {
        note.lock().expect("no thread panicked").push(id);
    });
    let server = Side::start(network.server(network.address()), service);
    let plan = FaultPlan::new(seed).both(Faults::none().drop(0.1));
    let transport = Faulty::new(network.client(), plan);
    let faults = transport.handle();
    // Congestion control would take a tenth lost for a full queue, and slow down to a crawl.
    let config = EndpointConfig::new().congestion(CongestionControl::None);
    let endpoint = Endpoint::new(transport, config).expect("the configuration is valid");
    let load = Load::new(LENGTHS);
    let began = Instant::now();
    Load::start(&load, || LocalLabClient::new(endpoint.open(server.route())));
    load.run(&endpoint, calls);
    load.drain(&endpoint, secs(20));
    let took = began.elapsed();

    let counts = judge(&executed(&ids), &load.endings());
    assert_eq!(counts, HashMap::from([(Ending::Answered, load.made() as usize)]));

    let (faults, stats) = (faults.stats(), endpoint.stats().expect("called outside of the loop"));
    eprintln!(
        "{took:?}, lost {} of {} sent and {} received; {} retransmitted, {} of them probes",
        faults.tx.dropped,
        stats.transport.tx_packets,
        faults.rx.dropped,
        stats.protocol.retransmissions.packets(),
        stats.protocol.retransmissions.probes
    );
    for (direction, lost, passed) in [
        ("sending", faults.tx.dropped, stats.transport.tx_packets),
        ("receiving", faults.rx.dropped, stats.protocol.rx_packets),
    ] {
        let share = lost as f64 / (lost + passed) as f64;
        assert!(
            (0.08..0.12).contains(&share),
            "the client loses {share:.3} of the packets when {direction}, expected 0.1"
        );
    }
    assert!(
        stats.protocol.retransmissions.packets() > calls as u64 / 20,
        "lost packets are retransmitted"
    );
    assert_eq!(
        (stats.protocol.calls, stats.protocol.responses, stats.protocol.failures),
        (load.made(), load.made(), 0)
    );
}

/// A server that can be killed: no packet of it arrives from then on.
struct Mortal<N: Network> {
    side: Side<Faulty<N::Transport>>,
    network: FaultHandle,
    executed: Executed,
}

impl<N: Network> Mortal<N> {
    fn start(network: &N, address: <N::Transport as erpc::Transport>::Route) -> Self {
        let executed = Executed::default();
        let note = Arc::clone(&executed);
        let service = LabService::<Faulty<N::Transport>>::over(move |id| {
            note.lock().expect("no thread panicked").push(id);
        });
        let transport = Faulty::new(network.server(address), FaultPlan::new(1));
        let faults = transport.handle();
        Self { side: Side::start(transport, service), network: faults, executed }
    }

    fn kill(self) -> Vec<u64> {
        self.network.set_plan(FaultPlan::new(2).both(Faults::none().drop(1.0)));
        self.side.stop();
        executed(&self.executed)
    }
}

/// The server is killed while it works and restarts at the same address. Every call ends once, and
/// its outcome tells correctly whether it was executed.
pub fn call_outcomes_are_true_when_a_server_is_killed_and_restarts<N: Network>() {
    // Some messages need several packets, so that kills hit all phases of a call.
    const LENGTHS: Lengths = &[(16, 500), (3, 100_000), (1, 1 << 20)];
    within(secs(100), || {
        let network = N::new();
        let config = EndpointConfig::new()
            .ping_interval(millis(100))
            .liveness_timeout(millis(500))
            .connect_timeout(secs(5));
        let endpoint = Endpoint::new(network.client(), config).expect("the configuration is valid");
        let load = Load::new(LENGTHS);
        let mut server = Mortal::start(&network, network.address());
        let address = server.side.route();
        let begin = || Load::start(&load, || LocalLabClient::new(endpoint.open(address)));
        let mut did = Vec::new();
        for round in 1..=4 {
            begin();
            load.run(&endpoint, 300 + round * 37);
            did.extend(server.kill());
            // Until the server runs again, the client still sends to the address.
            server = Mortal::start(&network, address);
            let begun = Instant::now();
            load.drain(&endpoint, secs(10));
            eprintln!("round {round}: all calls ended {:?} after the restart", begun.elapsed());
        }
        begin();
        load.run(&endpoint, 300);
        load.drain(&endpoint, secs(10));
        did.extend(server.kill());
        let counts = judge(&did, &load.endings());
        eprintln!("{counts:?}");
        assert!(counts.contains_key(&Ending::MaybeExecuted), "kills hit calls in flight");
        assert!(counts.contains_key(&Ending::NotExecuted), "kills hit calls that waited");
    });
}
