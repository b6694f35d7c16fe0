//! `client`: one call, a load, or a question to all nodes.

use std::collections::BTreeSet;

use erpc::Endpoint;

use super::args::{Action, ClientArgs};
use super::failure::{Failure, say};
use super::{bench, member};
use crate::client::{ClientError, Nodes};
use crate::proto::{ChangeRequest, Member, StatusReply};

pub(super) fn run(args: ClientArgs) -> Result<(), Failure> {
    let endpoint = Endpoint::udp_with(&erpc::UdpConfig::new(), member::endpoint_config())
        .map_err(Failure::of("no socket"))?;
    let nodes = member::nodes(&endpoint, &args.connect)?;
    match args.action {
        Action::Put { key, value } => {
            done(endpoint.block_on(async {
                nodes.open().await?.put(key.as_bytes(), value.as_bytes()).await
            }))
        }
        Action::Get { key } => match done(endpoint.block_on(nodes.get(key.as_bytes())))? {
            Some(value) => say(String::from_utf8_lossy(&value)),
            None => Err(Failure::new(format!("there is no key {key:?}"))),
        },
        Action::Cas { key, expected, absent: _, to } => {
            let swapped = endpoint.block_on(async {
                let session = nodes.open().await?;
                session
                    .cas(key.as_bytes(), expected.as_deref().map(str::as_bytes), to.as_bytes())
                    .await
            });
            match done(swapped)? {
                true => Ok(()),
                false => Err(Failure::new(format!("{key:?} does not have the expected value"))),
            }
        }
        Action::Bench(args) => bench::run(&endpoint, &nodes, &args),
        Action::Status => status(&endpoint, &nodes, &args.connect),
        Action::Change { add, learner, remove } => {
            let member = |(id, address): (u64, std::net::SocketAddr), learner| Member {
                id,
                address: address.to_string(),
                learner,
            };
            let voters = add.into_iter().map(|node| member(node, false));
            let learners = learner.into_iter().map(|node| member(node, true));
            let request = ChangeRequest { add: voters.chain(learners).collect(), remove };
            done(endpoint.block_on(nodes.change(&request)))
        }
        Action::Transfer { to } => done(endpoint.block_on(nodes.transfer(to))),
    }
}

fn done<R>(result: Result<R, ClientError>) -> Result<R, Failure> {
    result.map_err(|error| Failure::new(error.to_string()))
}

/// Asks the nodes that were named, and the members that these name.
fn status(endpoint: &Endpoint, nodes: &Nodes, connect: &[String]) -> Result<(), Failure> {
    let mut wanted: BTreeSet<String> = connect.iter().cloned().collect();
    let mut asked = BTreeSet::new();
    let mut silent = Vec::new();
    let mut lines: Vec<(u64, String)> = Vec::new();
    while let Some(address) = wanted.pop_first() {
        if !asked.insert(address.clone()) {
            continue;
        }
        match endpoint.block_on(nodes.status(&address)) {
            Ok(reply) => {
                wanted.extend(reply.members.iter().map(|member| member.address.clone()));
                lines.push((reply.id, line(&address, &reply)));
            }
            Err(error) => silent.push(error.to_string()),
        }
    }
    lines.sort_unstable();
    say(
        "node  address                role       term  leader     last   commit  applied snapshot     keys  members",
    )?;
    lines.iter().try_for_each(|(_, line)| say(line))?;
    match silent.first() {
        None => Ok(()),
        Some(first) => Err(Failure::new(format!("{} nodes are silent: {first}", silent.len()))),
    }
}

fn line(address: &str, reply: &StatusReply) -> String {
    let leader = reply.leader.as_ref().map_or(0, |leader| leader.id);
    let member = |member: &Member| {
        format!("{}{}", member.id, if member.learner { " (no vote)" } else { "" })
    };
    let members: Vec<_> = reply.members.iter().map(member).collect();
    let joint = if reply.joint { ", changing" } else { "" };
    let StatusReply { id, role, term, last, commit, applied, snapshot, keys, .. } = reply;
    format!(
        "{id:<5} {address:<22} {role:<9} {term:>5} {leader:>7} {last:>8} {commit:>8} {applied:>8} {snapshot:>8} \
         {keys:>8}  {}{joint}",
        members.join(", ")
    )
}
