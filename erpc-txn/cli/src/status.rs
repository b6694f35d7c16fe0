//! `status`: what the nodes say of themselves.

use std::net::SocketAddr;

use clap::Args;
use erpc::Endpoint;
use erpc_txn::proto::Description;

use crate::failure::Failure;
use crate::output;
use crate::outside::{self, WhereArgs};

#[derive(Args)]
pub(crate) struct StatusArgs {
    #[command(flatten)]
    at: WhereArgs,
}

/// Prints one line per node. Fails if one of them does not serve.
pub(crate) fn status(args: &StatusArgs) -> Result<(), Failure> {
    let at = args.at.read()?;
    let endpoint = outside::endpoint()?;
    let found = endpoint.block_on(describe_all(&endpoint, &at.addresses));
    output::line(format_args!(
        "{:<6}{:<22}{:<10}{:>6}{:>10}{:>14}{:>14}{:>9}",
        "node", "address", "state", "epoch", "primaries", "attempts", "commits", "running"
    ))?;
    let mut serving = 0;
    for (address, described) in &found {
        let Ok(of) = described else {
            output::line(format_args!("{:<6}{:<22}{:<10}", "?", address.to_string(), "down"))?;
            continue;
        };
        let (node, epoch) = of.member.map_or((0, 0), |member| (member.node, member.epoch));
        let is_primary = |nodes: &&erpc_txn::proto::Replicas| nodes.nodes.first() == Some(&node);
        let primaries = of.partitions.iter().filter(is_primary).count();
        let state = state(of);
        serving += usize::from(state == "serves");
        let Description { attempts, commits, running, .. } = of;
        output::line(format_args!(
            "{node:<6}{:<22}{state:<10}{epoch:>6}{primaries:>10}{attempts:>14}{commits:>14}{running:>9}",
            address.to_string()
        ))?;
    }
    for (address, described) in &found {
        match described {
            Ok(of) if !of.unreachable.is_empty() => {
                let nodes: Vec<_> = of.unreachable.iter().map(ToString::to_string).collect();
                output::line(format_args!(
                    "the node at {address} cannot reach nodes {}",
                    nodes.join(", ")
                ))?;
            }
            Ok(_) => {}
            Err(failure) => output::line(failure)?,
        }
    }
    if serving == found.len() {
        return Ok(());
    }
    Err(Failure::new(format!("{serving} of {} nodes serve", found.len())))
}

fn state(of: &Description) -> &'static str {
    match (of.active, of.unreachable.is_empty()) {
        (false, _) => "starting",
        (true, true) => "serves",
        (true, false) => "impaired",
    }
}

/// One node after the other, so that each answers for itself.
async fn describe_all(
    endpoint: &Endpoint,
    addresses: &[SocketAddr],
) -> Vec<(SocketAddr, Result<Description, Failure>)> {
    let mut found = Vec::new();
    for &address in addresses {
        let described = async {
            let cluster = outside::connect(endpoint, &[address]).await?;
            cluster.describe().await.map_err(Failure::of("it does not answer"))
        };
        found.push((address, described.await));
    }
    found
}
