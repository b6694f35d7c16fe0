//! `node`: one node, until a signal.

use std::collections::BTreeMap;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;
use std::time::Duration;

use super::args::{Algorithm, NodeArgs};
use super::failure::{Failure, say};
use super::member::{self, Config, Member};

/// How long a leader that stops waits until another one leads, in election times.
const HANDOVER: u32 = 4;

pub(super) fn run(args: &NodeArgs) -> Result<(), Failure> {
    let peers: BTreeMap<_, _> = args.peers.iter().copied().collect();
    if peers.len() != args.peers.len() {
        return Err(Failure::new("--peers names a node twice"));
    }
    let Some(&listen) = peers.get(&args.id) else {
        return Err(Failure::new(format!("--peers has no address for --id {}", args.id)));
    };
    if args.join && args.consensus == Algorithm::OmniPaxos {
        return Err(Failure::new("with omni-paxos, the members do not change: no node can --join"));
    }
    let config = Config {
        id: args.id,
        peers: if args.join { BTreeMap::new() } else { peers },
        dir: args.dir.clone(),
        cluster: args.cluster.clone(),
        consensus: args.consensus,
        election: Duration::from_millis(args.election_ms),
        lease: args.lease,
        snapshot_every: args.snapshot_kb.max(1) << 10,
    };
    let signal = erpc::shutdown_signal().map_err(Failure::of("no handler of signals"))?;
    let mut member = member::open(&config, member::bind(listen)?)?;
    say(format!("node {} of cluster {:?} serves at {listen}", config.id, config.cluster))?;
    if config.dir.is_none() {
        say(format!(
            "it keeps nothing on disk: when it has stopped, add a new node with another id; the others refuse \
             a node {} that has forgotten its votes",
            config.id
        ))?;
    }
    let endpoint = member.endpoint.clone();
    let mut signal = pin!(signal);
    let failed = endpoint.block_on(poll_fn(|cx| {
        if let Poll::Ready(end) = pin!(&mut member.task).poll(cx) {
            return Poll::Ready(Some(end));
        }
        signal.as_mut().poll(cx).map(|_| None)
    }));
    match failed {
        Some(error) => Err(Failure::new(error.to_string())),
        None => {
            eprintln!("raft: stopping");
            hand_over(&member, config.election * HANDOVER);
            Ok(())
        }
    }
}

/// If the node leads, it lets another one lead, so that clients do not wait for an election.
fn hand_over(member: &Member, within: Duration) {
    let endpoint = &member.endpoint;
    let address = member.address.to_string();
    let Ok(nodes) = member::nodes(endpoint, std::slice::from_ref(&address)) else { return };
    let leads = async || nodes.status(&address).await.is_ok_and(|status| status.role == "leader");
    let handed_over = endpoint.timeout(within, async {
        if !leads().await {
            return;
        }
        // If it fails, the others hold an election when the node is gone.
        drop(nodes.transfer(0).await);
        while leads().await {
            erpc::sleep(Duration::from_millis(1)).await;
        }
    });
    endpoint.block_on(handed_over).unwrap_or_default();
    endpoint.block_on(endpoint.drain(Duration::from_millis(200)));
    endpoint.shutdown();
}
