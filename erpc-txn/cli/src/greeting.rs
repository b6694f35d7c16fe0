//! Says why a member does not serve yet.
//!
//! The members introduce themselves on their own. This repeats the introduction to learn the
//! reason of a refusal, which no further attempt would mend.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::mpsc::Sender;
use std::time::Duration;

use erpc::transport::udp::UdpRoute;
use erpc::{CallError, Channel, Endpoint};
use erpc_txn::cluster::NodeId;
use erpc_txn::participant::{Introduction, Participant};
use erpc_txn::proto::{self, LocalParticipantClient, MeetReply, Verdict};

use crate::failure::Failure;
use crate::member::Addresses;
use crate::serve::Event;

/// The pause between introductions.
const PAUSE: Duration = Duration::from_millis(20);
/// After so many rounds, the missing nodes are named.
const PATIENCE: u32 = 50;

pub(crate) struct Greeter {
    participant: Arc<Participant>,
    others: Vec<(NodeId, String, LocalParticipantClient)>,
}

impl Greeter {
    pub(crate) fn new(on: &Endpoint, participant: &Arc<Participant>, addresses: Addresses) -> Self {
        let others = addresses.into_iter().filter(|&(node, _)| node != participant.node());
        let client = |(node, address)| {
            let channel = Channel::to(on, vec![UdpRoute::from(address)]).build();
            (node, format!("{address}"), LocalParticipantClient::new(channel))
        };
        Self { participant: Arc::clone(participant), others: others.map(client).collect() }
    }

    /// Runs until the member serves, or another member refuses it.
    pub(crate) async fn run(self, tell: Sender<Event>) {
        let me = self.participant.node();
        let mut rounds = 0;
        while !self.participant.is_active() {
            let mut silent = BTreeSet::new();
            for (node, address, client) in &self.others {
                if self.participant.has_met(*node) {
                    continue;
                }
                let message = proto::Introduction::from(self.participant.introduction());
                let refused = match client.meet(message).await {
                    Ok(reply) => self.refusal(*node, reply),
                    Err(CallError::NoSuchMethod(_)) => Some(
                        "it is no node of a transaction store, or one of another version".into(),
                    ),
                    Err(_) => {
                        silent.insert(*node);
                        None
                    }
                };
                if let Some(why) = refused {
                    let why =
                        format!("node {me} cannot join: at {address}, expected node {node}: {why}");
                    // The receiver lives as long as the members.
                    return tell.send(Event::Failed(Failure::new(why))).unwrap_or_default();
                }
            }
            rounds += 1;
            if rounds == PATIENCE {
                let silent: Vec<_> = silent.iter().map(ToString::to_string).collect();
                if !silent.is_empty() {
                    eprintln!("erpc-txn: node {me} waits for nodes {}", silent.join(", "));
                }
            }
            erpc::sleep(PAUSE).await;
        }
        tell.send(Event::Ready).unwrap_or_default();
    }

    /// Why the members do not belong together, if they do not.
    fn refusal(&self, expected: NodeId, reply: MeetReply) -> Option<String> {
        let me = self.participant.introduction();
        let member = reply.member?;
        if member.node != u32::from(expected.0) {
            return Some(format!("it is node {}; compare the addresses", member.node));
        }
        if member.epoch != me.epoch {
            let Introduction { epoch, .. } = me;
            return Some(format!("it has epoch {}, and this node {epoch}", member.epoch));
        }
        if member.configuration != me.configuration {
            return Some("it is of another cluster, or has another configuration file".into());
        }
        let is_refused = reply.verdict() != Verdict::Done;
        if is_refused {
            return Some(reply.reason);
        }
        let (epoch, incarnation) = (member.epoch, member.incarnation);
        let configuration = member.configuration;
        let other = Introduction { epoch, node: expected, incarnation, configuration };
        self.participant.meet(other).err().map(|refusal| refusal.to_string())
    }
}
