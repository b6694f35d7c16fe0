//! All nodes on one thread, over memory: what the store costs without a kernel.

use std::sync::Arc;
use std::time::Instant;

use erpc::transport::mem::{MemConfig, MemHub, MemTransport};
use erpc::{Channel, Endpoint, EndpointConfig, Transport};
use erpc_txn::coordinator::Node;
use erpc_txn::workloads::Workload;

use super::intervals::Verdict;
use super::lane::{Lane, Ran};
use super::plan::{MEETING, Plan, Schedule, Stages};
use crate::failure::Failure;
use crate::{machine, member};

/// The clock is read after so many rounds over all nodes.
const ROUNDS: u32 = 64;

pub(super) fn run<W: Workload>(plan: &Plan<W>) -> Result<(Vec<Ran>, Option<Verdict>), Failure> {
    machine::pin(plan.args.core)?;
    let hub = MemHub::new();
    // A transaction has at most one message in flight to each other node.
    let packets = 4 * plan.args.tasks * u32::from(plan.args.nodes);
    let config = MemConfig::default().entries(packets.next_power_of_two().max(512));
    let ports: Vec<_> = plan.participants.iter().map(|_| hub.port(config)).collect();
    let routes: Vec<_> = ports.iter().map(Transport::local_route).collect();
    let mut nodes = Vec::new();
    for (port, participant) in ports.into_iter().zip(&plan.participants) {
        let endpoint = Endpoint::new(port, endpoint_config());
        let endpoint = endpoint.map_err(Failure::of("no endpoint"))?;
        endpoint.serve(member::routes::<MemTransport>(participant)?, None);
        endpoint.listen();
        let others = plan.participants.iter().zip(&routes);
        let channels = others
            .filter(|(other, _)| other.node() != participant.node())
            .map(|(other, &route)| (other.node(), Channel::to(&endpoint, vec![route]).build()));
        let node = Node::open(&endpoint, Arc::clone(participant), 0, channels);
        nodes.push((endpoint, node.map_err(Failure::of("no coordinator"))?));
    }
    meet(&nodes)?;
    let stages = Arc::new(Stages::default());
    let mut schedule = Schedule::start(plan);
    let start = |(lane, (endpoint, node)): (usize, &(Endpoint<_>, Node<_>))| {
        Lane::start(endpoint, node.clone(), lane as u64, plan, &stages)
    };
    let mut lanes: Vec<Lane<W, MemTransport>> = nodes.iter().enumerate().map(start).collect();
    while !lanes.iter().all(Lane::is_over) {
        for _ in 0..ROUNDS {
            for (endpoint, _) in &nodes {
                endpoint.run_once();
            }
        }
        schedule.tick(&stages);
        lanes.iter_mut().for_each(Lane::look);
    }
    while schedule.is_waiting() {
        lanes.iter_mut().for_each(Lane::look);
        schedule.tick(&stages);
    }
    Ok((lanes.into_iter().map(Lane::finish).collect(), schedule.finish()?))
}

/// Runs the nodes until all have met.
fn meet(nodes: &[(Endpoint<MemTransport>, Node<MemTransport>)]) -> Result<(), Failure> {
    let end = Instant::now() + MEETING;
    while !nodes.iter().all(|(_, node)| node.participant().is_active()) {
        for (endpoint, _) in nodes {
            endpoint.run_once();
        }
        if Instant::now() > end {
            return Err(Failure::new("the nodes do not meet"));
        }
    }
    Ok(())
}

/// As many slots as a session can have, because there is one session between two nodes, for all
/// tasks.
pub(super) fn endpoint_config() -> EndpointConfig {
    EndpointConfig::new().slots(64)
}
